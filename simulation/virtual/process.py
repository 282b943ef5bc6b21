"""A process on a machine: a reactor on the virtual clock, with a clock of its own, that may fail.

It is a `Loop` to the shells that run in it. What comes while it stands still waits for it, as
for a process that was stopped; when it dies everything that it had is gone. An exception that
leaves a handler ends it, as in real life, and is remembered: no fault of the surroundings excuses
that.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol, runtime_checkable

from roq.machine import ObservedClock
from roq.runtime.interfaces import Call, Loop, Source, Timer
from roq.simulation.virtual.network import Client, Connection, Frames, Server, Weather
from roq.simulation.virtual.wires import HEARTBEAT_SECONDS, Wires
from roq.simulation.virtual.world import WALL_CLOCK_AT_START, World
from roq.simulation.virtual.world import Call as WorldCall

ROUNDING_SECONDS: Final = 1e-7
ACTIVE_STEP_SECONDS: Final = 0.25
"""See `roq.client.subscribe.shell.ActiveClock`."""


@runtime_checkable
class LooksAgain(Protocol):
    """A source that may have been readable before a handler was there."""

    def look_again(self) -> None:
        """Tell the handler that there is something to read, if there is."""
        ...


class Clocks:
    """What the clocks of a machine show.

    Attributes:
        rate: of the monotonic clock, against true time.
        wall: how far the wall clock is ahead, seconds.
    """

    def __init__(self, world: World, rate: float = 1.0, wall: float = 0.0) -> None:
        self.rate = rate
        self.wall = wall
        self._world = world

    def true(self, monotonic: float) -> float:
        """The true time at which the monotonic clock shows this."""
        return monotonic / self.rate + ROUNDING_SECONDS

    def wall_clock(self) -> float:
        """Seconds since 1970."""
        return WALL_CLOCK_AT_START + self._world.now + self.wall


class Process(Loop):
    """One process.

    Args:
        name: for people; processes that take one another's place may share it.
        machine: where it runs.
        clocks: of that machine.
        on_end: called once when it has ended, with a reason.

    Attributes:
        alive: it has not ended.
        sources: what is readable is told to these.
    """

    def __init__(
        self,
        world: World,
        wires: Wires,
        name: str,
        machine: str,
        clocks: Clocks,
        on_end: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.clocks = clocks
        self.alive = True
        self.sources: dict[object, Call] = {}
        self.at_kill: list[Call] = []
        """Called when it ends, however it ends, to tell its surroundings."""
        self._wires = wires
        self._on_end = on_end
        self._paused_until: float | None = None
        self._late: deque[Call] = deque()
        self._addresses: list[str] = []
        self._connections: dict[Connection, bool] = {}

    def __repr__(self) -> str:
        return f"<{self.name} on {self.machine}>"

    # --- as a reactor -----------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds on the monotonic clock of its machine."""
        return self.world.now * self.clocks.rate

    def add(self, source: Source, handler: Call) -> None:
        """Call `handler` when `source` says that it is readable."""
        self.sources[source] = handler
        if isinstance(source, LooksAgain):
            self.call_soon(source.look_again)

    def remove(self, source: Source) -> None:
        """Forget `source`."""
        self.sources.pop(source, None)

    def readable(self, source: object) -> bool:
        """There is something to read; whether a handler does. Only in a turn of this process."""
        handler = self.sources.get(source)
        if handler is not None:
            handler()
        return handler is not None

    def call_soon(self, function: Call) -> None:
        """Call `function` in a turn of its own."""
        self.world.call_at(self.world.now, partial(self.turn, function))

    def call_at(self, when: float, function: Call) -> Timer:
        """Call `function` at the time `when` of `now()`."""
        timer = Timer(when, function)
        self.world.call_at(self.clocks.true(when), partial(self._due, timer))
        return timer

    def _due(self, timer: Timer) -> None:
        if self.paused:
            self.turn(partial(_ring, timer))
        elif self.alive and timer.call is not None:
            call, timer.call = timer.call, None
            self.turn(call)

    def stop(self) -> None:
        """The process ends by itself."""
        self.end("stopped")

    def close(self) -> None:
        """There is nothing to give back."""

    # --- its life ---------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._paused_until is not None

    def turn(self, call: Call) -> None:
        """Run a handler, now or when it goes on; an exception is its end."""
        if not self.alive:
            return
        if self._paused_until is not None:
            self._late.append(call)
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - whatever it is, it would have ended the process
            self.world.crashes.append(f"{self.name} on {self.machine}: {traceback.format_exc()}")
            self.end("an exception")

    def pause(self, seconds: float) -> None:
        """Stand still as by SIGSTOP; peers give its connections up after a while."""
        if not self.alive or self.paused:
            return
        until = self._paused_until = self.world.now + seconds
        self.world.call_later(seconds, lambda: self.resume(until))
        for connection in list(self._connections):
            patience = self.world.random.uniform(*HEARTBEAT_SECONDS)
            if seconds > patience:
                self.world.call_later(patience, partial(self._given_up, connection, until))

    def end(self, reason: str, *, silently: bool = False) -> None:
        """It is no more.

        Args:
            silently: its machine is gone as well, so no peer notices by the connections.
        """
        if not self.alive:
            return
        self.alive = False
        self._late.clear()
        for address in self._addresses:
            self._wires.shut(address)
        if not silently:
            for connection, dialed in self._connections.items():
                if dialed:
                    connection.abort()
                else:
                    connection.server_gone()
        self._connections.clear()
        for call in self.at_kill:
            call()
        self.world.note(self.name, f"ends: {reason}")
        self._on_end(reason)

    def resume(self, until: float | None = None) -> None:
        """Go on; with `until` only if it stands still until then."""
        if self._paused_until is None or until not in {None, self._paused_until}:
            return
        self._paused_until = None
        late, self._late = self._late, deque()
        while late and self.alive:
            self.turn(late.popleft())

    def _given_up(self, connection: Connection, until: float) -> None:
        if self._paused_until == until:
            connection.cut()

    # --- connections ------------------------------------------------------------------------------

    def listen(self, address: str, server: Server) -> None:
        """Take connections at this address."""
        self._addresses.append(address)
        self._wires.listen_at(self.machine, address, _Gate(self, server, server))

    def shut(self, address: str) -> None:
        """Take no more."""
        self._wires.shut(address)

    def connect(self, address: str, client: Client) -> Connection:
        """Connect to an address."""
        gate = _Gate(self, client, None)
        connection = self._wires.dial(self.machine, address, gate)
        self.joined(connection, dialed=True)
        return connection

    def answers(self, address: str) -> bool | None:
        """Whether a server listens there; None if nothing comes back from there."""
        return self._wires.answers(self.machine, address)

    def joined(self, connection: Connection, *, dialed: bool) -> None:
        """A connection of this process."""
        if len(self._connections) > 64:
            self._connections = {
                each: one for each, one in self._connections.items() if not each.over
            }
        self._connections[connection] = dialed

    @property
    def connections(self) -> list[Connection]:
        """Those that have not ended."""
        return [each for each in self._connections if not each.over]

    @property
    def weather(self) -> Weather:
        """How the network is at present."""
        return self._wires.weather


def _ring(timer: Timer) -> None:
    """It may have been cancelled while its process stood still."""
    if timer.call is not None:
        call, timer.call = timer.call, None
        call()


class _Gate:
    """Hands what the network brings to a process, in its turns."""

    __slots__ = ("_peer", "_process", "_server")

    def __init__(self, process: Process, peer: Client, server: Server | None) -> None:
        self._process = process
        self._peer = peer
        self._server = server

    def accepted(self, connection: Connection) -> None:
        server, process = self._server, self._process
        assert server is not None  # noqa: S101 - only servers are connected to
        process.joined(connection, dialed=False)
        process.turn(partial(server.accepted, connection))

    def received(self, connection: Connection, frames: Frames) -> None:
        self._process.turn(partial(self._peer.received, connection, frames))

    def disconnected(self, connection: Connection) -> None:
        self._process.turn(partial(self._peer.disconnected, connection))


class LocalWorld:
    """The world as an actor in a process sees it: with the clocks of its machine.

    Args:
        active: its time stands still while the process does, as a subscriber's.
    """

    def __init__(self, process: Process, *, active: bool = False) -> None:
        self._process = process
        self._active = ObservedClock(process.now(), ACTIVE_STEP_SECONDS) if active else None
        self._seen = process.now()

    @property
    def now(self) -> float:
        """Seconds."""
        process = self._process
        now = process.world.now * process.clocks.rate
        self._seen = now if self._active is None else self._active.read(now)
        return self._seen

    @property
    def seen(self) -> float:
        """What `now` was when the actor has looked last: a look changes nothing."""
        return self._seen

    @property
    def time_us(self) -> int:
        """The wall clock, in microseconds since 1970."""
        return int(self._process.clocks.wall_clock() * 1_000_000)

    @property
    def random(self) -> Random:
        """The only source of chance."""
        return self._process.world.random

    def call_at(self, at: float, action: Call) -> WorldCall:
        """Have this done at a time."""
        return self.call_later(at - self.now, action)

    def call_later(self, delay: float, action: Call) -> WorldCall:
        """Have this done in so many seconds."""
        process = self._process
        at = process.world.now + max(0.0, delay) / process.clocks.rate + ROUNDING_SECONDS
        return process.world.call_at(at, partial(process.turn, action))
