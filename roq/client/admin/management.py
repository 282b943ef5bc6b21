"""Requests to the management interface: finds the leading manager, asks once, brings the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Final

import zmq
from bson.errors import BSONError

from roq.client.admin.command_route import CommandRoute, GiveUp, SendCommand, Step, Visit
from roq.client.io.engine import Engine
from roq.errors import (
    InvalidRequest,
    OtherVersion,
    RegistryAway,
    RemoteProtocolError,
    Unavailable,
)
from roq.model import is_address
from roq.number_ranges import UNREADABLE
from roq.protocol import documents
from roq.protocol.control import Answer, ClusterInfo, ClusterInfoRequest, Failure
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import error_of
from roq.runtime import descriptors, sockets
from roq.runtime.backoff import Backoff
from roq.runtime.interfaces import Timer
from roq.runtime.leader_finder import SEARCH_MOST_SECONDS, LeaderFinder
from roq.runtime.lifeline import Lifeline, never_connected
from roq.runtime.rpc import Party

INFO_SECONDS: Final = 1.0
LAST_SECONDS: Final = 0.05
"""Nothing is begun when less is left."""
ADDRESSES_MAX: Final = 256
"""Managers that are learnt from others, with those that were given."""


class Management:
    """Asks configuration managers, in the I/O thread; the results are futures.

    Args:
        engine: the client's I/O thread.
        addresses: client endpoints of configuration managers; more are learnt from their answers.
    """

    def __init__(self, engine: Engine, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)
        self._engine = engine
        self._party = Party()

    def info(self, timeout: float) -> Future[ClusterInfo]:
        """Where the interfaces of the cluster are; from whichever manager answers first."""
        future: Future[ClusterInfo] = Future()
        future.set_running_or_notify_cancel()  # nobody can cancel it under the I/O thread's hands
        deadline = self._engine.reactor.now() + timeout
        self._engine.call_soon(_Search(self, self._engine, future, deadline).ask)
        return future

    def ask(self, document: RawDocument, timeout: float) -> Future[RawDocument]:
        """The answer to one management command; a refusal is raised as its `RequestError`.

        Raises:
            InvalidRequest: it has something that cannot travel, such as a number above 64 bits.
        """
        try:
            frame = documents.encode_raw(document)
        except (BSONError, *UNREADABLE) as error:
            raise InvalidRequest(f"a cluster cannot be told that: {error}") from None
        future: Future[RawDocument] = Future()
        future.set_running_or_notify_cancel()
        deadline = self._engine.reactor.now() + timeout
        self._engine.call_soon(lambda: _Command(self, frame, future, deadline).start())
        return future

    def pause(self, seconds: float) -> Future[None]:
        """A future that is done after so long."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()

        def begin() -> None:
            self._engine.reactor.call_later(seconds, lambda: future.set_result(None))

        self._engine.call_soon(begin)
        return future

    # --- I/O thread -------------------------------------------------------------------------------

    def socket(self) -> zmq.Socket[bytes]:
        """One for a command. However many there are, the manager takes them for one client."""
        socket = sockets.dealer(self._engine.context)
        socket.setsockopt(zmq.ROUTING_ID, self._party.routing_id())
        return socket

    def visit(
        self,
        address: str,
        deadline: float,
        found: Callable[[ClusterInfo], None],
        silent: Callable[[Unavailable | OtherVersion], None],
    ) -> None:
        """Ask a manager about the cluster; one of the two is called."""

        def answered(answer: Answer | Unavailable) -> None:
            if isinstance(answer, ClusterInfo):
                self._learn(answer.managers)
                found(answer)
            else:
                silent(self._no_help(answer))

        left = deadline - self._engine.reactor.now()
        self._engine.managers.ask(
            self._engine.translate(address),
            ClusterInfoRequest(),
            max(LAST_SECONDS, min(INFO_SECONDS, left)),
            answered,
        )

    def prefer(self, good: str) -> None:
        """A manager has answered: it is asked first the next time, before those that are dead."""
        if good in self.addresses:
            self.addresses.remove(good)
        self.addresses.insert(0, good)

    def _learn(self, managers: Iterable[str]) -> None:
        new = (each for each in managers if is_address(each) and each not in self.addresses)
        self.addresses += islice(new, max(0, ADDRESSES_MAX - len(self.addresses)))

    def _no_help(self, answer: Answer | Unavailable) -> Unavailable | OtherVersion:
        shown = ", ".join(self.addresses)
        if not isinstance(answer, Failure):
            return Unavailable(f"no configuration manager answers at {shown}. Is the cluster up?")
        if OtherVersion.code == answer.CODE:
            return OtherVersion(answer.COMMENT)
        return Unavailable(
            f"no configuration manager at {shown} can tell about the cluster: {answer.COMMENT}"
        )


class _Search:
    """Asks one manager after the other, until one answers or the time is over; I/O thread."""

    def __init__(
        self, owner: Management, engine: Engine, future: Future[ClusterInfo], deadline: float
    ) -> None:
        self._owner = owner
        self._reactor = engine.reactor
        self._future = future
        self._deadline = deadline
        self._finder = LeaderFinder(owner.addresses)
        self._backoff = Backoff(engine.jitter, SEARCH_MOST_SECONDS)

    def ask(self) -> None:
        """Ask the manager whose turn it is."""
        address = self._finder.ask(self._reactor.now())
        self._owner.visit(address, self._deadline, self._found, self._silent)

    def _found(self, info: ClusterInfo) -> None:
        self._owner.prefer(self._finder.address)
        self._future.set_result(info)

    def _silent(self, why: Unavailable | OtherVersion) -> None:
        now = self._reactor.now()
        others, left = self._finder.silent(now), self._deadline - now
        if left < LAST_SECONDS or (isinstance(why, OtherVersion) and not others):
            self._future.set_exception(why)
        else:
            self._reactor.call_later(
                0.0 if others else min(self._backoff.wait(), left / 2), self.ask
            )


class _Command:
    """One management command on its way, in the I/O thread."""

    def __init__(
        self, owner: Management, frame: bytes, future: Future[RawDocument], deadline: float
    ) -> None:
        self._owner = owner
        self._engine = owner._engine  # noqa: SLF001 - one class in two parts
        self._frame = frame
        self._future = future
        self._deadline = deadline
        self._route = CommandRoute(owner.addresses, Backoff(self._engine.jitter))
        self._found_by = ""
        self._memory: RawDocument | None = None
        """What a manager has told that may be behind: better than nothing."""
        self._socket: zmq.Socket[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        """Find a manager, then ask it."""
        self._visit(self._route.begin(self._now()))

    def _go(self, step: Step) -> None:
        match step:
            case SendCommand():
                self._send(step.endpoint)
            case GiveUp():
                self._fail(step.error)
            case Visit():
                left = self._deadline - self._now()
                if left < LAST_SECONDS:
                    self._fail(step.why)
                else:
                    self._engine.reactor.call_later(
                        min(step.after, left / 2), lambda: self._visit(step.address)
                    )

    def _now(self) -> float:
        return self._engine.reactor.now()

    def _visit(self, address: str) -> None:
        def found(info: ClusterInfo) -> None:
            if not self._found_by:
                self._owner.prefer(address)
            self._found_by = address
            self._go(self._route.found(info, self._now()))

        def silent(why: Unavailable | OtherVersion) -> None:
            self._go(self._route.silent(why, self._now()))

        self._owner.visit(address, self._deadline, found, silent)

    def _send(self, endpoint: str) -> None:
        try:
            socket = self._connect(endpoint)
        except zmq.ZMQError as error:
            self._done()
            reason = descriptors.reason(error)
            self._fail(Unavailable(f"cannot connect to {endpoint}: {reason}"))
            return
        self._timer = self._engine.reactor.call_at(self._deadline, lambda: self._late(endpoint))
        sockets.send_to(socket, [self._frame])

    def _connect(self, endpoint: str) -> zmq.Socket[bytes]:
        reactor = self._engine.reactor
        socket = self._socket = self._owner.socket()
        self._lifeline = Lifeline(reactor, socket, lambda reason: self._lost(endpoint, reason))
        reactor.add(socket, self._readable)
        self._lifeline.connect(self._engine.translate(endpoint))
        return socket

    def _readable(self) -> None:
        if self._socket is None:
            return
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        self._done()
        try:
            document = documents.decode_raw(frames[-1])
        except RemoteProtocolError as error:
            self._fail(error)
            return
        refusal = error_of(document)
        if refusal is not None:
            self._go(self._route.refused(refusal, self._now()))
        elif "FromMemory" in document:
            self._memory = self._memory or document
            self._go(self._route.from_memory(self._now()))
        else:
            self._owner.prefer(self._found_by)
            self._future.set_result(document)

    def _lost(self, endpoint: str, reason: str) -> None:
        """There is no connection, or no more; what came over it before is read first."""
        self._readable()
        if self._socket is None:
            return
        self._done()
        if never_connected(reason):
            gone = Unavailable(f"the manager at {endpoint} is gone: {reason}")
            self._go(self._route.silent(gone, self._now()))
        else:
            self._fail(_unanswered(endpoint, reason))

    def _late(self, endpoint: str) -> None:
        self._done()
        self._fail(_unanswered(endpoint, "it did not come in time"))

    def _done(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._lifeline is not None:
            self._lifeline.close()
        if self._socket is not None:
            socket, self._socket = self._socket, None
            self._engine.reactor.remove(socket)
            socket.close(0)

    def _fail(self, error: BaseException) -> None:
        if self._future.done():
            return
        if self._memory is not None and isinstance(error, RegistryAway | Unavailable):
            self._future.set_result(self._memory)
        else:
            self._future.set_exception(error)


def _unanswered(endpoint: str, why: str) -> Unavailable:
    """A manager got the command, and said nothing."""
    return Unavailable(f"no answer from {endpoint}: {why}; the command may still be carried out")
