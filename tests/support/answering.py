"""Servers of control messages on one reactor, for tests of whoever asks them; no test in here."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import msgspec

from roq.protocol import documents
from roq.protocol.control import NOT_LEADER, Control, Failure, GcmRequest, MonitorRequest
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcServer, read_request

SECONDS_MAX = 60.0


class Answering:
    """A reactor with servers that answer as they are told, and remember what they were asked.

    Attributes:
        asked: (address of the server, question), in order.
    """

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        self.asked: list[tuple[str, Control]] = []
        self._servers: list[RpcServer] = []

    def server(self, answer: Callable[[Control], Control | None]) -> str:
        """Start one; gives its address."""
        socket = sockets.router(self.context)
        endpoint = f"tcp://127.0.0.1:{sockets.bind(socket, '127.0.0.1')}"

        def received(peer: Peer, data: bytes) -> None:
            request = read_request(data, GcmRequest | MonitorRequest)  # type: ignore[arg-type]
            self.asked.append((endpoint, request))
            answered = answer(request)
            if answered is not None:
                reply = msgspec.structs.replace(answered, id=request.id)
                server.send(peer, documents.encode(reply))

        server = RpcServer(self.reactor, socket, received)
        self._servers.append(server)
        return endpoint

    def asked_at(self, endpoint: str) -> list[Control]:
        """What this server was asked."""
        return [question for where, question in self.asked if where == endpoint]

    def run(self, until: Callable[[], object]) -> None:
        """Let things happen until a condition holds, within a deadline."""
        if until():
            return
        late = self.reactor.call_later(SECONDS_MAX, self.reactor.stop)

        def look() -> None:
            if until():
                self.reactor.stop()
            else:
                self.reactor.call_later(0.005, look)

        look()
        self.reactor._stopping = False
        self.reactor.run()
        late.cancel()
        assert until(), f"not within {SECONDS_MAX:g} s"

    def __enter__(self) -> Answering:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        self.context.term()
        self.reactor.close()


def redirects_to(endpoint: str) -> Failure:
    """The answer of a manager that does not lead."""
    return Failure(RESULT=NOT_LEADER, COMMENT="not me", CODE="not_leader", ENDPOINT=endpoint)
