"""What the shells of all daemons have in common: addresses, a server, a machine with a timer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Generic, Protocol, TypeVar

import msgspec

from roq.protocol import documents
from roq.runtime.interfaces import Timer
from roq.runtime.rpc import Peer, RpcServer
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.sockets import Router

Event = TypeVar("Event")
Effect = TypeVar("Effect")
Event_contra = TypeVar("Event_contra", contravariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)


class Ports:
    """Gives out addresses; none is used twice."""

    def __init__(self) -> None:
        self._next: defaultdict[str, count[int]] = defaultdict(lambda: count(20_000))

    def take(self, machine: str) -> str:
        """An address on this machine."""
        return f"tcp://{machine}:{next(self._next[machine])}"


class Server:
    """A ROUTER of a process.

    Args:
        handle: called with the peer and the frame.
    """

    def __init__(
        self, process: Process, address: str, handle: Callable[[Peer, bytes], None]
    ) -> None:
        socket = Router(process)
        socket.bind(address)
        self.address = address
        self._server = RpcServer(process, socket, handle)

    def send(self, peer: tuple[bytes, bool], message: msgspec.Struct) -> None:
        """Send one message to the peer that asked."""
        self._server.send(Peer(*peer), documents.encode(message))

    def push(self, peers: Iterable[tuple[bytes, bool]], message: msgspec.Struct) -> None:
        """Send the same message to many."""
        data = documents.encode(message)
        for peer in peers:
            self._server.send(Peer(*peer), data)

    def send_raw(self, peer: tuple[bytes, bool], data: bytes) -> None:
        """Send one frame to the peer that asked."""
        self._server.send(Peer(*peer), data)


class Decides(Protocol[Event_contra, Effect_co]):
    """A machine, see `roq.machine`."""

    def handle(self, event: Event_contra, now: float) -> Sequence[Effect_co]:
        """Take one event in."""
        ...

    def next_deadline(self) -> float | None:
        """When a tick is wanted."""
        ...

    def check(self) -> None:
        """Assert the invariants."""
        ...


CHECK_EVERY = 16


class Driver(Generic[Event, Effect]):
    """Feeds a machine, has its effects performed in order, and ticks it in time.

    Args:
        tick: the event that says that time has passed.
        perform: performs one effect.
    """

    def __init__(
        self,
        process: Process,
        machine: Decides[Event, Effect],
        tick: Event,
        perform: Callable[[Effect], None],
    ) -> None:
        self._process = process
        self._machine = machine
        self._tick = tick
        self._perform = perform
        self._events: list[Event] = []
        self._busy = False
        self._timer: Timer | None = None
        self._handled = 0

    def feed(self, event: Event) -> None:
        """Take one event to the machine; one that an effect brings waits for its turn."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for effect in self._machine.handle(self._events.pop(0), self._process.now()):
                    self._perform(effect)
        finally:
            self._busy = False
        self._handled += 1
        if self._handled % CHECK_EVERY == 0:
            self._machine.check()
        self.arm()

    def arm(self) -> None:
        """Have the machine ticked when it wants to be."""
        deadline = self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None and self._timer.call is not None:
            if self._timer.when <= deadline:
                return
            self._timer.cancel()
        self._timer = self._process.call_at(deadline, self._time_passed)

    def _time_passed(self) -> None:
        self.feed(self._tick)
