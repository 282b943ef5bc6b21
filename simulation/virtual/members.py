"""Members of a consumer group as processes: the real shell, connections, and a user who works.

The user takes what has come, works for a while, and acknowledges most of it; some it gives back, in
whole or in part. Now and then it takes its time, or leaves the group and lets another one do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from roq.client.consume.holding import Holding, Segment
from roq.client.consume.message import DONE, Settlement
from roq.client.consume.seat import Membership, SeatPhase
from roq.client.consume.shell import ConsumerShell
from roq.client.session.machine import CONSUMER
from roq.client.session.shell import MonitorSession
from roq.errors import LeaseLost, RoQError
from roq.model import LogId
from roq.protocol.channel import READER_TAG_BYTES
from roq.protocol.consuming import GroupSettings
from roq.simulation.virtual.clients import ClientEngine
from roq.simulation.virtual.network import Connection, Frames
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.sharing import Sharing
from roq.simulation.virtual.sockets import SILENCE_SECONDS

GROUP: Final = "workers"
LEASE_SECONDS: Final = 3.0
RETRY_SECONDS: Final = (0.2, 1.0)
PREFETCH: Final = 20
WORK_SECONDS: Final = (0.0, 0.02)
LONG_SECONDS: Final = 4.0
"""Longer than a lease: it goes on in the background."""
LONG_SHARE: Final = 0.01
BACK_SHARE: Final = 0.06
"""The part of what it takes that it gives back."""
PART_SHARE: Final = 0.2
"""Likewise, of which it acknowledges a part, and then the rest."""
RECONNECT_SECONDS: Final = (0.05, 0.3)
HANDSHAKE_SECONDS: Final = 0.001
_LETTER_BYTES: Final = 2
_TAG: Final = bytes(range(1, READER_TAG_BYTES + 1))


class Line:
    """A connection to an exchange that is made again: see `ExchangeConnection`."""

    trouble = ""

    def __init__(
        self,
        process: Process,
        address: str,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_answers: Callable[[list[list[bytes]]], None],
    ) -> None:
        self._process = process
        self._address = address
        self._on_up, self._on_down, self._on_answers = on_up, on_down, on_answers
        self._connection: Connection | None = None
        self._closed = False
        self._wait = process.world.random.uniform
        process.call_soon(self._attempt)

    def ask(self, frames: list[bytes]) -> None:
        """Send, if it stands."""
        if self._connection is not None:
            letter, *rest = frames
            self._connection.send((letter + _TAG, *rest))

    def close(self, farewells: list[list[bytes]]) -> None:
        """Use it no more, when these are sent."""
        for frames in farewells:
            self.ask(frames)
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def received(self, connection: Connection, frames: Frames) -> None:
        """See `Client`."""
        if connection is self._connection:
            letter, *rest = frames
            self._on_answers([[letter[:_LETTER_BYTES], *rest]])

    def disconnected(self, connection: Connection) -> None:
        """See `Client`."""
        if connection is self._connection:
            self._connection = None
            self._process.call_later(self._wait(*RECONNECT_SECONDS), self._attempt)
            self._on_down()

    def _attempt(self) -> None:
        self._process.call_later(HANDSHAKE_SECONDS, self._answered)

    def _answered(self) -> None:
        if self._closed:
            return
        listens = self._process.answers(self._address)
        if listens:
            self._connection = self._process.connect(self._address, self)
            self._on_up()
        else:  # nothing comes back, or it is refused
            seconds = SILENCE_SECONDS if listens is None else self._wait(*RECONNECT_SECONDS)
            self._process.call_later(seconds, self._attempt)


class Engine(ClientEngine):
    """What a consumer needs of its client besides: see `ConsumerEngine`."""

    def __init__(self, process: Process, on_answered: Callable[[], None]) -> None:
        super().__init__(process)
        self._process = process
        self._on_answered = on_answered

    @property
    def exchanges(self) -> Engine:
        """Makes connections itself."""
        return self

    def open(
        self,
        address: str,
        *,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_answers: Callable[[list[list[bytes]]], None],
        on_heard: Callable[[], None] | None = None,
    ) -> Line:
        """Connect, and again whenever that ends."""

        def answered(answers: list[list[bytes]]) -> None:
            on_answers(answers)
            if on_heard is not None:
                on_heard()
            self._on_answered()

        return Line(self._process, address, on_up, on_down, answered)


class Joining:
    """A process that is a member of a group.

    Attributes:
        left: it has left the group, and its process ends.
    """

    shell: ConsumerShell

    def __init__(self, process: Process) -> None:
        self.process = process
        self.id = process.world.random.randbytes(16)
        self.left = False
        self._reason = "new"

    def _begin(self, engine: Engine, managers: Sequence[str], queue: str) -> None:
        self._session = MonitorSession(
            engine, managers, queue, client_id=self.id, role=CONSUMER,
            on_topology=self.shell.topology, on_state=self._state,
        )  # fmt: skip
        self._session.start()

    @property
    def places(self) -> dict[LogId, SeatPhase]:
        """How it stands at each exchange that it knows."""
        return {log: seat.phase for log, seat in self.shell.seats.items()}

    @property
    def why(self) -> str:
        """How it is, in words."""
        return f"{self.shell.places()}; session {self._reason}"

    def leave(self) -> None:
        """Give back what is held, say goodbye, and end."""
        self.process.turn(self._leave)

    def _leave(self) -> None:
        self.left = True
        self._close()

    def _close(self) -> None:
        self.shell.close()
        self._session.close()
        self.process.call_later(0.01, self.process.stop)

    def _state(self, state: str, reason: str) -> None:
        self._reason = f"{state}: {reason}"
        self.process.world.note(self.process.name, f"session {self._reason}")

    def _refused(self, error: RoQError) -> None:
        self.process.world.crashes.append(f"{self.process.name} is refused: {error}")


class MemberShell(Joining):
    """One process that is a member of the group."""

    def __init__(
        self, process: Process, managers: Sequence[str], queue: str, mode: str, sharing: Sharing
    ) -> None:
        super().__init__(process)
        self._random: Random = process.world.random
        self._sharing = sharing
        self._working = False
        self._pending: list[Holding] = []
        """Acknowledged, and not all of it confirmed."""
        self._held: dict[Holding, list[Segment]] = {}
        """By which leases, as the watch knows it; others come as another list."""
        retry, most = RETRY_SECONDS
        member = Membership(
            id=self.id, name=process.name, group=GROUP, latest=False, start_us=0,
            settings=GroupSettings(
                mode=mode, lease_seconds=LEASE_SECONDS, attempts=0, retry_seconds=retry,
                retry_seconds_max=most,
            ),
            prefetch=PREFETCH, prefetch_bytes=1 << 20,
        )  # fmt: skip
        engine = Engine(process, self._answered)
        self.shell = ConsumerShell(engine, member, on_joined=lambda: None, on_refused=self._refused)
        self.shell.on_ready = self._work_soon
        self._begin(engine, managers, queue)

    # --- the user ---------------------------------------------------------------------------------

    def _work_soon(self) -> None:
        if not self._working and not self.left:
            self._working = True
            self.process.call_soon(self._work)

    def _work(self) -> None:
        holding = None if self.left else self.shell.take()
        while holding is not None and not holding.open:  # put back: users are not handed any of it
            holding = self.shell.take()
        if holding is None:
            self._working = False
            return
        slow = self._random.random() < LONG_SHARE
        seconds = LONG_SECONDS if slow else self._random.uniform(*WORK_SECONDS)
        self.process.call_later(seconds, lambda: self._finish(holding))

    def _finish(self, holding: Holding) -> None:
        if not self.left:
            self._pending.append(holding)
            self._settle(holding)
            self._sharing.acknowledged(holding)
            self._work()

    def _settle(self, holding: Holding) -> None:
        count, random = len(holding.batch), self._random
        kind = random.random()
        if kind < BACK_SHARE:
            first = random.randrange(count)
            if first:
                self._say(holding, 0, first, DONE)
            self._say(holding, first, count - first, Settlement(reason="chance"))
        elif kind < BACK_SHARE + PART_SHARE:
            for index in random.sample(range(count), count):
                self._say(holding, index, 1, DONE)
        else:
            self._say(holding, 0, count, DONE)

    def _say(self, holding: Holding, first: int, count: int, verdict: Settlement) -> None:
        try:
            self.shell.settle(holding, first, count, verdict)
        except LeaseLost:
            self.process.world.note(self.process.name, "has lost what it worked on")

    def _answered(self) -> None:
        name, known = self.process.name, self._held
        holdings = [each for seat in self.shell.seats.values() for each in seat.holdings.values()]
        self._held = {each: each.segments for each in holdings}
        for each, segments in self._held.items():
            if known.get(each) is not segments:
                self._sharing.resumed(name, each)
        self._pending = [each for each in self._pending if self._sharing.look_at(name, each)]
