"""A monitor that does what the scenario wants: it assigns, relocates, and tells who serves.

It keeps the words and the order of the real one (`roq.monitor`), without its policies: subscribers
hear of an exchange before publishers are sent there, a Relocate is repeated until it is answered,
each attempt has a higher epoch, and an answer to an older one does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from roq.model import Limits, PublisherId, publisher_epoch
from roq.protocol.control import Assigned, Control, Relocate, Relocated, Topology, Version
from roq.simulation.virtual.actors.exchange import Exchange
from roq.simulation.virtual.network import Pipe, Weather
from roq.simulation.virtual.world import World

KPI_SECONDS: Final = 1.0
VERSION_SECONDS: Final = 1.0
RELOCATE_TRIES: Final = 5
ATTACH_SECONDS: Final = 0.1
"""Between two looks for an exchange while none serves."""

Key = tuple[int, int]


class Listener(Protocol):
    """A client of the monitor."""

    def told(self, message: Control) -> None:
        """The monitor says this."""
        ...


@dataclass(slots=True)
class Move:
    """One relocation under way."""

    message: Relocate
    targets: tuple[Key, ...]
    tries: int = 0


@dataclass(slots=True)
class Figures:
    """What became of relocations."""

    asked: int = 0
    accepted: int = 0
    failed: int = 0
    given_up: int = 0
    overtaken: int = 0
    """By an assignment: the publisher had lost its exchange meanwhile."""
    striped: int = 0
    """Accepted ones with several exchanges."""
    pauses_us: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Client:
    pipe: Pipe[Control]
    at: tuple[Key, ...] = ()
    move: Move | None = None


class Monitor:
    """Who publishes where.

    Args:
        weather: of its connections to clients.

    Attributes:
        serving: the exchanges of the topology.
        left: the exchange that a publisher was moved away from last.
        read: how far subscribers have said that they have read.
        figures: what became of relocations.
    """

    def __init__(self, world: World, weather: Weather, queue: bytes, limits: Limits) -> None:
        self.serving: dict[Key, Exchange] = {}
        self.left: Key | None = None
        self.read: dict[str, dict[Key, int]] = {}
        self.figures = Figures()
        self._world = world
        self._weather = weather
        self._queue = queue
        self._limits = limits
        self._version = 0
        self._epochs = 0
        self._publishers: dict[bytes, _Client] = {}
        self._subscribers: list[Pipe[Control]] = []
        self._up: dict[bytes, Pipe[Callable[[], None]]] = {}
        self._tell_version()

    @property
    def pipes(self) -> list[Pipe[Control]]:
        """To all clients."""
        return [*self._subscribers, *(each.pipe for each in self._publishers.values())]

    # --- exchanges --------------------------------------------------------------------------------

    def add(self, exchange: Exchange) -> None:
        """This exchange serves from now on."""
        self.serving[exchange.key] = exchange
        self._tell_topology()

    def remove(self, key: Key) -> None:
        """This exchange is gone for good."""
        if self.serving.pop(key, None) is not None:
            self._tell_topology()

    def _tell_topology(self) -> None:
        self._version += 1
        for pipe in self.pipes:
            pipe.send(self._topology())

    def _tell_version(self) -> None:
        for pipe in self._subscribers:
            pipe.send(Version(queue_id=self._queue, epoch=1, version=self._version))
        self._world.call_later(VERSION_SECONDS, self._tell_version)

    def _topology(self) -> Topology:
        return Topology(
            queue_id=self._queue, epoch=1, version=self._version,
            exchanges=[exchange.info for exchange in self.serving.values()],
        )  # fmt: skip

    # --- clients ----------------------------------------------------------------------------------

    def join(self, subscriber: Listener) -> None:
        """A subscriber wants to know the exchanges."""
        pipe: Pipe[Control] = Pipe(self._world, self._weather, subscriber.told)
        self._subscribers.append(pipe)
        pipe.send(self._topology())

    def enter(self, publisher: PublisherId, listener: Listener) -> None:
        """A publisher introduces itself and wants an exchange."""
        self._publishers[publisher] = _Client(Pipe(self._world, self._weather, listener.told))
        self._up[publisher] = Pipe(self._world, self._weather, lambda action: action())
        self._attach(publisher, ())

    def attach(self, publisher: PublisherId, failed: tuple[Key, ...]) -> None:
        """See `Desk`."""
        self._up[publisher].send(lambda: self._attach(publisher, failed))

    def relocated(self, message: Relocated) -> None:
        """See `Desk`."""
        self._up[PublisherId(message.publisher)].send(lambda: self._relocated(message))

    def told_read(self, subscriber: str, read: list[tuple[int, int, int]]) -> None:
        """A subscriber says how far it has read."""
        self.read[subscriber] = {(number, epoch): offset for number, epoch, offset in read}

    def _attach(self, publisher: bytes, failed: tuple[Key, ...]) -> None:
        client = self._publishers[publisher]
        if client.move is not None:
            self.figures.overtaken += 1
            client.move = None
        usable = [each for each in self.serving.values() if each.key not in failed]
        if not usable:
            usable = list(self.serving.values())
        if not usable:
            self._world.call_later(ATTACH_SECONDS, lambda: self._attach(publisher, ()))
            return
        exchange = self._world.random.choice(usable)
        client.at = (exchange.key,)
        client.pipe.send(
            Assigned(exchange=exchange.info, epoch=self._next_epoch(), limits=self._limits)
        )

    def _next_epoch(self) -> int:
        self._epochs += 1
        return publisher_epoch(1, self._epochs)

    # --- relocations ------------------------------------------------------------------------------

    def where(self, publisher: bytes) -> tuple[Key, ...]:
        """(number, epoch) of the exchanges at which a publisher is, as far as is known."""
        return self._publishers[publisher].at

    def is_moving(self, publisher: bytes) -> bool:
        """Whether a relocation of this publisher is under way."""
        return self._publishers[publisher].move is not None

    def relocate(self, publisher: bytes, targets: list[Exchange]) -> None:
        """Send a publisher to these exchanges, over and over until it answers."""
        message = Relocate(
            queue_id=self._queue, publisher=publisher, epoch=self._next_epoch(),
            exchanges=[exchange.info for exchange in targets],
        )  # fmt: skip
        move = Move(message, tuple(exchange.key for exchange in targets))
        self._publishers[publisher].move = move
        self.figures.asked += 1
        self._push(publisher, move)

    def _push(self, publisher: bytes, move: Move) -> None:
        client = self._publishers[publisher]
        if client.move is not move:
            return
        if move.tries == RELOCATE_TRIES:
            client.move = None
            self.figures.given_up += 1
            return
        move.tries += 1
        client.pipe.send(move.message)
        self._world.call_later(KPI_SECONDS, lambda: self._push(publisher, move))

    def _relocated(self, message: Relocated) -> None:
        client = self._publishers[message.publisher]
        move = client.move
        if move is None or move.message.epoch != message.epoch:
            return
        client.move = None
        if message.outcome != "accepted":
            self.figures.failed += 1
            return
        self.figures.accepted += 1
        self.figures.striped += len(move.targets) > 1
        self.figures.pauses_us.append(message.pause_us)
        self._pass_on(message, client.at, move)
        client.at = move.targets

    def _pass_on(self, message: Relocated, before: tuple[Key, ...], move: Move) -> None:
        """Tell the exchanges that were left."""
        addresses = [exchange.data for exchange in move.message.exchanges]
        for key in before:
            exchange = self.serving.get(key)
            if exchange is not None and key not in move.targets:
                self.left = key
                delay = self._world.random.uniform(*self._weather.delay_seconds)
                left = partial(exchange.passed, message.publisher, message.epoch, addresses)
                self._world.call_later(delay, left)
