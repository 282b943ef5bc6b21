"""Connections that are slow, break, and lose what was under way: never reordering inside one.

What is sent over one connection arrives in the order of sending, as over TCP, as far as it arrives:
when a connection breaks, each direction has lost some tail. Between connections there is no order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from roq.simulation.virtual.world import World

M = TypeVar("M")
Frames = tuple[bytes, ...]

NOTICE_SECONDS: Final = 0.002
"""How long after a break, at most, an end still hears what was under way, and then notices."""


@dataclass(slots=True)
class Weather:
    """How the network is at present; change it at any time.

    Attributes:
        delay_seconds: a message takes between these two.
        drop: the part of its messages that a fan-out drops (see `Exchange`).
        queue_max: so many messages an exchange has under way to one client at most; None: any
            number. Beyond it a fan-out drops, and other sockets refuse (`Connection.full`).
    """

    delay_seconds: tuple[float, float] = (0.0002, 0.002)
    drop: float = 0.0
    queue_max: int | None = None


class Pipe(Generic[M]):
    """One direction of a connection.

    Args:
        deliver: called with what has arrived.
        ended: called once, after the last delivery.
    """

    def __init__(
        self,
        world: World,
        weather: Weather,
        deliver: Callable[[M], None],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._world = world
        self._weather = weather
        self._deliver = deliver
        self._ended = ended
        self._last = 0.0
        self._until = float("inf")
        self._losses = 0
        self._repeats = 0
        self._held: list[M] | None = None
        self._under_way = 0

    @property
    def full(self) -> bool:
        """Whether what was sent and has not arrived fills the queues of both ends."""
        most = self._weather.queue_max
        held = 0 if self._held is None else len(self._held)
        return most is not None and self._under_way + held >= most

    def send(self, message: M) -> None:
        """Put a message on its way."""
        if self._held is not None:
            self._held.append(message)
            return
        at = self._world.now + self._world.random.uniform(*self._weather.delay_seconds)
        at = self._last = max(at, self._last)
        if self._losses:
            self._losses -= 1
        elif at <= self._until:
            self._under_way += 1
            self._world.call_at(at, partial(self._arrive, at, message))
            if self._repeats:
                self._repeats -= 1
                self._under_way += 1
                self._world.call_at(at, partial(self._arrive, at, message))

    def _arrive(self, at: float, message: M) -> None:
        self._under_way -= 1
        if at <= self._until:
            self._deliver(message)

    def lose(self, messages: int) -> None:
        """Lose the next messages and go on: no network does that, but a full queue may."""
        self._losses += messages

    def repeat(self, messages: int) -> None:
        """Deliver each of the next messages twice: no network does that, but a relay may."""
        self._repeats += messages

    def stall(self, seconds: float) -> None:
        """Deliver nothing for a while, then everything: as TCP does when packets get lost."""
        self._last = max(self._last, self._world.now + seconds)

    def hold(self) -> None:
        """Let nothing more leave until `release`: the way is cut, and the sender does not know."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """The way is free: what was held leaves now."""
        held, self._held = self._held, None
        for message in held or ():
            self.send(message)

    @property
    def held(self) -> bool:
        """Whether the way is cut."""
        return self._held is not None

    @property
    def ended(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._until != float("inf")

    def finish(self) -> None:
        """End when all that was sent has arrived."""
        self._end(max(self._last, self._world.now))

    def break_off(self, within: float) -> None:
        """Lose what would arrive later than some time in the next `within` seconds."""
        self._end(self._world.now + self._world.random.uniform(0.0, within))

    def _end(self, at: float) -> None:
        if at < self._until:
            first = self._until == float("inf")
            self._until = at
            if first:
                self._world.call_at(at, self._ended)


class Connection:
    """One client's connection to one server.

    Attributes:
        number: one for each; never used again.
        open: as far as the client knows.
    """

    def __init__(
        self, number: int, world: World, weather: Weather, client: Client, server: Server
    ) -> None:
        self.number = number
        self.route = number.to_bytes(5, "big")
        self.open = True
        self.accepted = True
        self._client = client
        self._server = server
        self._up: Pipe[Frames] = Pipe(world, weather, self._server_received, self._server_noticed)
        self._down: Pipe[Frames] = Pipe(world, weather, self._client_received, self._client_noticed)

    def send(self, frames: Frames) -> None:
        """From the client to the server."""
        if self.open:
            self._up.send(frames)

    def answer(self, frames: Frames) -> bool:
        """From the server to the client; False if the server knows that it is gone."""
        if self.accepted:
            self._down.send(frames)
        return self.accepted

    @property
    def full(self) -> bool:
        """Whether a socket of the server would refuse to send to the client (`EAGAIN`)."""
        return self.accepted and self._down.full

    def close(self) -> None:
        """The client is done: what it has sent arrives, what is on its way back does not."""
        if self.open:
            self.open = False
            self._up.finish()

    def abort(self) -> None:
        """The client is done, and what it has sent last may not have left."""
        if self.open:
            self.open = False
            self._up.break_off(NOTICE_SECONDS)

    @property
    def over(self) -> bool:
        """Whether both ends know, or are about to notice, that it has ended."""
        return self._up.ended and self._down.ended

    @property
    def held(self) -> bool:
        """Whether the way is cut in a direction."""
        return self._up.held or self._down.held

    def hold(self, *, up: bool, down: bool) -> None:
        """Let nothing through to the server, to the client or both ways, until told otherwise."""
        for pipe, wanted in ((self._up, up), (self._down, down)):
            if wanted:
                pipe.hold()
            elif pipe.held:
                pipe.release()

    def lose(self, messages: int) -> None:
        """Lose the next messages to the server."""
        self._up.lose(messages)

    def repeat(self, messages: int) -> None:
        """Bring the next messages to the server twice."""
        self._up.repeat(messages)

    def stall(self, seconds: float, *, up: bool, down: bool) -> None:
        """To the server, to the client or both ways nothing arrives for a while."""
        if up:
            self._up.stall(seconds)
        if down:
            self._down.stall(seconds)

    def cut(self) -> None:
        """The connection breaks; both ends notice, each in its time."""
        self._up.break_off(NOTICE_SECONDS)
        self._down.break_off(NOTICE_SECONDS)

    def server_gone(self) -> None:
        """The server has died: it hears no more; some of what it said last may not have left."""
        self.accepted = False
        self._up.break_off(0.0)
        self._down.break_off(NOTICE_SECONDS)

    def _server_received(self, frames: Frames) -> None:
        self._server.received(self, frames)

    def _client_received(self, frames: Frames) -> None:
        if self.open:
            self._client.received(self, frames)

    def _client_noticed(self) -> None:
        if self.open:
            self.open = False
            self._up.break_off(0.0)
            self._client.disconnected(self)

    def _server_noticed(self) -> None:
        if self.accepted:
            self.accepted = False
            self._down.break_off(0.0)
            self._server.disconnected(self)


class Server(Protocol):
    """A server at an address."""

    def accepted(self, connection: Connection) -> None:
        """A client has connected."""
        ...

    def received(self, connection: Connection, frames: Frames) -> None:
        """A client says this."""
        ...

    def disconnected(self, connection: Connection) -> None:
        """This connection has ended."""
        ...


class Client(Protocol):
    """A client of a server."""

    def received(self, connection: Connection, frames: Frames) -> None:
        """The server says this."""
        ...

    def disconnected(self, connection: Connection) -> None:
        """The connection has ended without the client's doing, or no server listens there."""
        ...


class Void:
    """Where nothing arrives and nothing comes from."""

    def accepted(self, connection: Connection) -> None:
        """Nothing hears of it."""

    def received(self, connection: Connection, frames: Frames) -> None:
        """Nothing arrives."""

    def disconnected(self, connection: Connection) -> None:
        """Nothing ends."""


class _Nobody(Void):
    """Refuses where no server listens."""

    def accepted(self, connection: Connection) -> None:
        """It ends at once."""
        connection.server_gone()


class Wire(Protocol):
    """The network as an actor sees it."""

    @property
    def weather(self) -> Weather:
        """How it is at present."""
        ...

    def listen(self, address: str, server: Server) -> None:
        """Take connections at this address."""
        ...

    def shut(self, address: str) -> None:
        """Take no more."""
        ...

    def connect(self, address: str, client: Client) -> Connection:
        """Open a connection; whatever is wrong with it shows later."""
        ...


class Network:
    """Who listens where, and all connections."""

    def __init__(self, world: World, weather: Weather | None = None) -> None:
        self.weather = weather or Weather()
        self._world = world
        self._servers: dict[str, Server] = {}
        self._numbers = count(1)

    def listen(self, address: str, server: Server) -> None:
        """A client that connects to this address from now on reaches this server."""
        self._servers[address] = server

    def shut(self, address: str) -> None:
        """No server listens at this address any more."""
        self._servers.pop(address, None)

    def connect(self, address: str, client: Client) -> Connection:
        """Open a connection; whatever is wrong with it shows later."""
        return self._connect_to(self._servers.get(address) or _Nobody(), client)

    def listens(self, address: str) -> bool:
        """Whether a server listens at this address."""
        return address in self._servers

    def _connect_to(self, server: Server, client: Client) -> Connection:
        connection = Connection(next(self._numbers), self._world, self.weather, client, server)
        server.accepted(connection)
        return connection
