"""BSON documents between processes: one document a frame, DEALER or REQ to ROUTER.

The server answers the asking peer, with the empty delimiter if the question had one, and never
waits for a client. The client gives each request an id and a deadline, so requests overlap and a
late answer is dropped. Whatever arrives at a server is read so that it can be answered.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple, TypeVar, cast

import msgspec
import zmq

from roq.errors import (
    InvalidRequest,
    OtherVersion,
    RemoteProtocolError,
    Unavailable,
)
from roq.protocol import documents
from roq.protocol.control import FAILED, Answer, Control, Failure, failure
from roq.protocol.documents import RawDocument
from roq.protocol.version import WIRE_VERSION, check_version, other_version, spoken_in
from roq.runtime import descriptors, sockets
from roq.runtime.interfaces import Dialer, Loop, Socket, Source, Timer
from roq.runtime.lifeline import Lifeline
from roq.runtime.reactor import drain
from roq.runtime.structured_logs import RateLimited

PENDING_MAX: Final = 10_000
"""Requests that one client may have under way."""
WAITING_MAX: Final = 65_536
"""Messages that may wait in its socket: a socket that is full is taken for one that has ended."""
READ_MAX: Final = 50
"""Messages that are read before other sources have their turn."""
AGAIN_SECONDS: Final = 1.0
"""Between two attempts to make a socket while no descriptor is left."""
_NO_SOCKET: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PARTY_BYTES: Final = 16
"""Connections whose routing ids begin with the same bytes are one party's; ids that a server has
given are shorter, so a peer that has said nothing stands for itself."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Peer(NamedTuple):
    """Who asked: the routing id, and whether the question came behind an empty delimiter."""

    routing_id: bytes
    delimiter: bool

    @property
    def party(self) -> bytes:
        """Who stands behind it, perhaps with several connections."""
        return self.routing_id[:PARTY_BYTES]


class Party:
    """One who makes several connections, and says so."""

    def __init__(self) -> None:
        self._name = b"p" + os.urandom(PARTY_BYTES - 1)  # none may begin with a zero
        self._numbers = count(1)

    def routing_id(self) -> bytes:
        """For one more connection."""
        return self._name + next(self._numbers).to_bytes(8, "big")


class RpcServer:
    """A ROUTER that hands out one frame per request.

    `handle` gets the frame; an empty request or one of several frames arrives as b"", which no
    decoder accepts, so that it is answered like any other garbage.
    """

    def __init__(
        self,
        reactor: Loop,
        socket: Socket,
        handle: Callable[[Peer, bytes], None],
    ) -> None:
        self._reactor = reactor
        self._socket = socket
        self._handle = handle
        reactor.add(socket, self._readable)

    def send(self, peer: Peer, data: bytes) -> bool:
        """Send one frame without waiting; False if the peer is gone or does not read."""
        head = [peer.routing_id, b""] if peer.delimiter else [peer.routing_id]
        return sockets.send_to(self._socket, [*head, data])

    def close(self) -> None:
        """Stop serving and close the socket."""
        self._reactor.remove(self._socket)
        self._socket.close(0)

    def _readable(self) -> None:
        drain(self._socket, self._received)

    def _received(self, frames: list[bytes]) -> None:
        delimiter = len(frames) > 2 and frames[1] == b""
        body = frames[2:] if delimiter else frames[1:]
        self._handle(Peer(frames[0], delimiter), body[0] if len(body) == 1 else b"")


class _Pending(NamedTuple):
    on_answer: Callable[[Answer | Unavailable], None]
    timer: Timer


class RpcClient:
    """A DEALER to one server; keeps nothing that is past its deadline.

    Args:
        reactor, context: where it lives.
        endpoint: address of the server.
        on_push: called with what the server says unasked.
        local: the server runs on this machine: its end shows at once, and nothing need be said to
            notice it.
        on_lost: called once, with the reason, when the connection has ended or could not be made;
            without it the client connects again by itself, for ever, also when there is no
            descriptor left for a socket.

    Raises:
        zmq.ZMQError: there can be no such address; with `on_lost` also: there can be no socket.
    """

    def __init__(
        self,
        reactor: Loop,
        context: Dialer[Socket],
        endpoint: str,
        on_push: Callable[[Answer], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
        *,
        local: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self._reactor = reactor
        self._on_push = on_push
        self._local = local
        self._ids = count(1)
        self._pending: dict[int, _Pending] = {}
        self._limited = RateLimited(log)
        self._context = context
        self._on_lost = on_lost
        self._socket: Socket | None = None
        self._source: Source | None = None
        """What the reactor watches."""
        self._lifeline: Lifeline | None = None
        self._again: Timer | None = None
        self._trouble = ""
        """Why there is no socket."""
        try:
            self._open()
        except zmq.ZMQError as error:
            if on_lost is not None or error.errno not in _NO_SOCKET:
                raise
            self._open_later(error)

    def _open(self) -> None:
        socket = self._socket = sockets.dealer(self._context)
        try:
            socket.setsockopt(zmq.SNDHWM, WAITING_MAX)
            socket.setsockopt(zmq.RCVHWM, PENDING_MAX)
            if self._local:
                socket.setsockopt(zmq.HEARTBEAT_IVL, 0)
            if self._on_lost is not None:
                self._lifeline = Lifeline(
                    self._reactor, socket, self._on_lost, on_stands=self._stands, rests=True
                )
                self._lifeline.connect(self.endpoint)
            else:
                socket.connect(self.endpoint)
        except zmq.ZMQError:
            self._shut()
            raise
        self._trouble = ""
        self._watch(socket)

    def _watch(self, source: Source) -> None:
        if self._source is not None:
            self._reactor.remove(self._source)
        self._source = source
        self._reactor.add(source, self.read)

    def _stands(self) -> None:
        if self._socket is not None and self._lifeline is not None and self._lifeline.resting:
            # Its end shows at the descriptor, and not as something to read.
            self._watch(cast("int", self._socket.getsockopt(zmq.FD)))
            self._reactor.call_soon(self.read)

    def _open_later(self, error: zmq.ZMQError) -> None:
        self._trouble = f"cannot connect to {self.endpoint}: {descriptors.reason(error)}"
        self._limited.warning("no_socket", self._reactor.now(), "%s", self._trouble)
        self._again = self._reactor.call_later(AGAIN_SECONDS, self._open_again)

    def _open_again(self) -> None:
        try:
            self._open()
        except zmq.ZMQError as error:
            self._open_later(error)

    def request(
        self,
        message: Control,
        timeout: float,
        on_answer: Callable[[Answer | Unavailable], None],
    ) -> None:
        """Ask; `on_answer` is called once, in the loop, with the answer or an `Unavailable`.

        Args:
            message: its `id` is replaced.
            timeout: seconds; afterwards `Unavailable`.
            on_answer: a refusal arrives as a `Failure`.
        """
        number = next(self._ids)
        if len(self._pending) >= PENDING_MAX or not self.send(
            msgspec.structs.replace(message, id=number)
        ):
            failure = Unavailable(self._trouble or f"too much is under way to {self.endpoint}")
            self._reactor.call_soon(lambda: on_answer(failure))
            return
        timer = self._reactor.call_later(timeout, lambda: self._expired(number, timeout))
        self._pending[number] = _Pending(on_answer, timer)

    @property
    def waiting(self) -> list[Callable[[Answer | Unavailable], None]]:
        """Those that have not got their answers; `close` forgets them."""
        return [each.on_answer for each in self._pending.values()]

    def send(self, message: Control) -> bool:
        """Send without expecting an answer; False if the way is blocked."""
        if self._socket is None:
            return False
        sent = sockets.send_to(self._socket, [documents.encode(message)])
        self._look()
        return sent

    def close(self, linger_ms: int = 0) -> None:
        """Drop what is under way (nobody is called any more) and close the socket.

        Args:
            linger_ms: how long what was sent last may still take to leave, in the background.
        """
        for pending in self._pending.values():
            pending.timer.cancel()
        self._pending.clear()
        if self._again is not None:
            self._again.cancel()
        self._shut(linger_ms)

    def _shut(self, linger_ms: int = 0) -> None:
        socket, self._socket = self._socket, None
        if socket is None:
            return
        if self._lifeline is not None:
            self._lifeline.close()
        if self._source is not None:
            self._reactor.remove(self._source)
            self._source = None
        socket.close(linger_ms)

    def read(self, most: int = READ_MAX) -> None:
        """Take so many of what has come, at most; before it is decided that nothing has."""
        if self._socket is not None:
            drain(self._socket, self._received, most)
            self._look()

    def _look(self) -> None:
        """After each use of a socket whose descriptor is watched: it tells of news only once."""
        if self._socket is None or self._lifeline is None or not self._lifeline.resting:
            return
        events = cast("int", self._socket.getsockopt(zmq.EVENTS))
        if events & zmq.POLLIN:
            self._reactor.call_soon(self.read)
        elif not events & zmq.POLLOUT:
            self._reactor.call_soon(self._lifeline.ended)

    def _received(self, frames: list[bytes]) -> None:
        try:
            raw = documents.decode_raw(frames[-1])
            version = spoken_in(raw)
            if version != WIRE_VERSION:
                raw = self._foreign(raw, version)
                if not raw["id"]:
                    return  # said unasked: it is logged
            answer: Answer = documents.convert(raw, Answer)  # type: ignore[arg-type]
        except RemoteProtocolError as error:
            self._limited.warning(
                "garbage",
                self._reactor.now(),
                "unreadable answer from %s: %s",
                self.endpoint,
                error,
            )
            return
        if answer.id == 0:
            if self._on_push is not None:
                self._on_push(answer)
            return
        pending = self._pending.pop(answer.id, None)
        if pending is not None:
            pending.timer.cancel()
            pending.on_answer(answer)

    def _foreign(self, document: RawDocument, version: object) -> RawDocument:
        """The refusal that stands for an answer of a server that speaks another version."""
        text = other_version(self.endpoint, version)
        self._limited.warning(OtherVersion.code, self._reactor.now(), "%s", text)
        refusal = Failure(RESULT=FAILED, COMMENT=text, CODE=OtherVersion.code)
        return {**msgspec.to_builtins(refusal), "id": document.get("id", 0)}

    def _expired(self, number: int, timeout: float) -> None:
        self.read(PENDING_MAX)  # a loop that is late may find the answer there
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.on_answer(Unavailable(f"no answer from {self.endpoint} within {timeout:.3g} s"))


def read_request(data: bytes, kind: type[T]) -> T | Failure:
    """The request in one frame, or the answer that says why there is none.

    Args:
        data: one frame; empty for a request that was empty or had several frames.
        kind: a struct or a union of tagged ones.
    """
    request_id = 0
    try:
        raw = documents.decode_raw(data)
        request_id = _id_of(raw)
        check_version(raw)
        return documents.convert(raw, kind)
    except OtherVersion as error:
        return failure(request_id, str(error), error.code)
    except RemoteProtocolError as error:
        text = f"{error}" if data else "a request is one frame with one BSON document"
        return failure(request_id, text, InvalidRequest.code)


def _id_of(raw: documents.RawDocument) -> int:
    found = raw.get("id")
    usable = isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63
    return found if usable and isinstance(found, int) else 0
