"""Requests to the management interface: finds the leading manager, asks once, brings the answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, TypeVar

import zmq

from roq.client.admin.errand import Errand, GiveUp, Search, Send, Step, Visit
from roq.client.admin.managers import MANAGERS_MOST_SECONDS
from roq.client.io.engine import Engine
from roq.errors import RegistryAway, RemoteProtocolError, Unavailable
from roq.protocol import documents
from roq.protocol.control import Answer, ClusterInfo, ClusterInfoRequest, Failure
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import error_of
from roq.runtime import descriptors, sockets
from roq.runtime.backoff import Backoff
from roq.runtime.lifeline import Lifeline, never_connected
from roq.runtime.reactor import Timer
from roq.runtime.rpc import Party

INFO_SECONDS: Final = 1.0
LAST_SECONDS: Final = 0.05
"""Nothing is begun when less is left."""
GRACE_SECONDS: Final = 0.5

T = TypeVar("T")


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
        """The answer to one management command; a refusal is raised as its `RequestError`."""
        future: Future[RawDocument] = Future()
        future.set_running_or_notify_cancel()
        deadline = self._engine.reactor.now() + timeout
        frame = documents.encode_raw(document)
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

    def prefer(self, good: str) -> None:
        """A manager has answered: it is asked first the next time, before those that are dead."""
        self.addresses.remove(good)
        self.addresses.insert(0, good)

    def learn(self, info: ClusterInfo) -> None:
        """A manager knows of others."""
        for address in info.managers:
            if address not in self.addresses:
                self.addresses.append(address)

    def ask_others(self, before: str) -> None:
        """This manager knows nobody who leads: the others are asked before it."""
        self.addresses.remove(before)
        self.addresses.append(before)


class _Search:
    """Asks one manager after the other, until one answers or the time is over; I/O thread."""

    def __init__(
        self, owner: Management, engine: Engine, future: Future[ClusterInfo], deadline: float
    ) -> None:
        self._owner = owner
        self._engine = engine
        self._future = future
        self._deadline = deadline
        self._turn = 0
        self._backoff = Backoff(engine.jitter, MANAGERS_MOST_SECONDS)

    def ask(self) -> None:
        """Ask the manager whose turn it is."""
        address = self._owner.addresses[self._turn % len(self._owner.addresses)]

        def answered(answer: Answer | Unavailable, _late: bool) -> None:
            self._turn += 1
            if isinstance(answer, ClusterInfo):
                self._owner.prefer(address)
                self._owner.learn(answer)
                self._future.set_result(answer)
            else:
                self._no_answer(answer)

        left = self._deadline - self._engine.reactor.now()
        self._engine.directory.ask(
            self._engine.translate(address),
            ClusterInfoRequest(),
            max(LAST_SECONDS, min(INFO_SECONDS, left)),
            answered,
        )

    def _no_answer(self, answer: Answer | Unavailable) -> None:
        """Ask the next one, at once unless all were asked."""
        reactor = self._engine.reactor
        left = self._deadline - reactor.now()
        if left < LAST_SECONDS:
            self._future.set_exception(Unavailable(self._nobody(answer)))
            return
        rounds = self._turn % len(self._owner.addresses) == 0
        reactor.call_later(min(self._backoff.wait(), left / 2) if rounds else 0.0, self.ask)

    def _nobody(self, answer: Answer | Unavailable) -> str:
        shown = ", ".join(self._owner.addresses)
        if isinstance(answer, Failure):
            return (
                f"no configuration manager at {shown} can tell about the cluster: {answer.COMMENT}"
            )
        return f"no configuration manager answers at {shown}. Is the cluster up?"


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
        self._errand = Errand(owner.addresses, Backoff(self._engine.jitter))
        self._found_by = owner.addresses[0]
        self._memory: RawDocument | None = None
        """What a manager has told that may be behind: better than nothing."""
        self._socket: zmq.Socket[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._timer: Timer | None = None

    def start(self) -> None:
        """Find a manager, then ask it."""
        self._owner.info(max(LAST_SECONDS, self._left())).add_done_callback(self._found)

    def _go(self, step: Step) -> None:
        match step:
            case Send():
                self._send(step.endpoint)
            case Visit():
                self._visit(step.address)
            case GiveUp():
                self._fail(step.error)
            case Search() if step.after + LAST_SECONDS < self._left():
                self._owner.ask_others(self._found_by)
                self._engine.reactor.call_later(step.after, self.start)
            case Search():
                self._fail(step.why)

    def _left(self) -> float:
        return self._deadline - self._engine.reactor.now()

    def _found(self, future: Future[ClusterInfo]) -> None:
        error = future.exception()
        if error is not None:
            self._fail(error)
        else:
            self._found_by = self._owner.addresses[0]  # who has answered is the first since
            self._go(self._errand.found(self._found_by, future.result()))

    def _visit(self, address: str) -> None:
        def answered(answer: Answer | Unavailable, _late: bool) -> None:
            if isinstance(answer, ClusterInfo):
                self._owner.learn(answer)
                self._found_by = address
                self._go(self._errand.found(address, answer))
            else:
                self._go(self._errand.silent(Unavailable(f"{address} does not answer")))

        self._engine.directory.ask(
            self._engine.translate(address),
            ClusterInfoRequest(),
            max(LAST_SECONDS, min(INFO_SECONDS, self._left())),
            answered,
        )

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
            self._go(self._errand.refused(refusal))
        elif "FromMemory" in document:
            self._memory = self._memory or document
            self._go(self._errand.from_memory())
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
            self._go(self._errand.silent(gone))
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


def wait_result(future: Future[T], timeout: float) -> T:
    """The result of a future in the caller's thread.

    Raises:
        RoQError: what the future failed with.
        Unavailable: the I/O thread gave no answer at all.
    """
    try:
        return future.result(timeout + GRACE_SECONDS)
    except FutureTimeoutError:
        raise Unavailable(f"no answer within {timeout:g} s") from None
