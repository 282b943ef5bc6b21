"""All that one subscriber decides: the readers of all exchanges and the merge of what they bring.

Pure. The shell opens and closes sockets as `topology` says, feeds what arrives to `handle` (or, for
the fan-out, to `Reader.live` and then `burst`), performs the effects, and takes `out` and `gaps`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from roq.client.session.events import SessionFacts
from roq.client.session.status import ExchangeFacts, SubscriberFacts
from roq.client.subscribe.backpressure import AHEAD_BYTES, MergeBackpressure
from roq.client.subscribe.progress import Progress, oldest
from roq.client.subscribe.resequencer import HELD_BYTES_MAX, Counts, Resequencer
from roq.machine import Tick
from roq.model import ExchangeInfo, LogId, exchange_name
from roq.protocol.version import other_version
from roq.read.events import (
    Ask,
    BelowFloor,
    Confirmed,
    Effect,
    Event,
    From,
    Gone,
    Refetch,
    Start,
    StreamsFound,
    Subscribe,
    Unsubscribe,
    Verify,
)
from roq.read.message import Batch, Gap
from roq.read.offset_chain import LogGap
from roq.read.reader import Reader
from roq.timing import AWAY_SECONDS

HURRY_SECONDS: Final = 0.02
"""Between looks at what waits for its turn."""
DOUBT_SECONDS: Final = 0.1
"""Between two questions to the monitor."""
_RETIRED_MAX: Final = 1_000

Starts = Start | Mapping[int, int]
"""One start for all, or an offset per exchange number (others: from the earliest)."""
Order = tuple[LogId, Ask | Subscribe | Unsubscribe]
"""What the shell does at which exchange."""


@dataclass(frozen=True, slots=True)
class ReceptionStats:
    """What happened on the way to a subscriber since its start."""

    counts: Counts
    gaps: int
    """Ranges of an exchange's log that were gone before they were read."""
    repairs: int
    """Holes in the fan-out that were noticed and fetched."""
    offset_duplicates: int
    """Batches that one exchange brought twice."""
    verification: int
    """Times that an exchange was asked what there is."""
    timeouts: int
    foreign: int
    """Entries of another queue or log."""
    malformed: int
    exchanges: int
    held_bytes: int
    """What waits for its turn."""


class SubscriberMachine:
    """One subscriber.

    Args:
        prefixes: of topics.
        start: where to begin on the exchanges that are there.
        below_floor: what to do if that is an offset which is kept no more.
        nonce: gives 16 random bytes, others each time.
        now: the present time; active time, which does not jump when the process was stopped.
        name: of the subscriber, for exchanges.
        elapsed: seconds since now, by a clock that counts such time as well.
        ahead_bytes: see `MergeBackpressure`.
        away_seconds: see `roq.client.subscribe.losses`.
        repair, check_duplicates: off only in tests that prove what these are good for.

    Attributes:
        out: batches in order; the shell takes them away.
        gaps: reports; likewise.
        log_gaps: ranges of logs that were gone before they were read.
        away: exchanges of a durable queue that do not serve; their readers stay.
    """

    def __init__(
        self,
        prefixes: list[bytes],
        start: Starts,
        *,
        below_floor: BelowFloor = BelowFloor.EARLIEST,
        nonce: Callable[[], bytes],
        now: float,
        name: bytes = b"",
        elapsed: Callable[[], float] | None = None,
        held_bytes_max: int | None = None,
        ahead_bytes: int = AHEAD_BYTES,
        away_seconds: float = AWAY_SECONDS,
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.readers: dict[LogId, Reader] = {}
        self.confirmed = False
        self.gaps: list[Gap] = []
        self._latest = isinstance(start, Start) and start.at is From.LATEST
        self.resequencer = Resequencer(
            now,
            elapsed=elapsed,
            held_bytes_max=HELD_BYTES_MAX if held_bytes_max is None else held_bytes_max,
            check_duplicates=check_duplicates,
            early=not self._latest,
            away_seconds=away_seconds,
        )
        self.away: frozenset[LogId] = frozenset()
        self._durable = False
        self._unread: frozenset[LogId] = frozenset()
        """Logs of a durable queue that nobody serves, and that were not read here before; their
        generations are not known, and 0 here."""
        self._prefixes = prefixes
        self._start = start
        self._below_floor = below_floor
        self._nonce = nonce
        self._name = name
        self._repair = repair
        self._progress = Progress()
        self._backpressure = MergeBackpressure(ahead_bytes)
        self._doubt_not_before = float("-inf")
        self._retired: dict[LogId, int] = {}
        self._recalling = False
        self.log_gaps = 0
        self._past = [0] * 6

    @property
    def held_back(self) -> frozenset[LogId]:
        """The exchanges whose fan-out is not to be read for the moment; `pace` changes it."""
        return self._backpressure.held_back

    @property
    def out(self) -> list[Batch]:
        """What was delivered; see `take`."""
        return self.resequencer.out

    def take(self) -> list[Batch]:
        """Take away what was delivered."""
        out, self.resequencer.out = self.resequencer.out, []
        return out

    # --- exchanges --------------------------------------------------------------------------------

    def open(self, exchange: ExchangeInfo, queue: bytes, now: float) -> Reader:
        """Begin to read an exchange: connect and feed its reader."""
        source = exchange.log
        first = not self.confirmed
        self.resequencer.source_came(source, now, alone=not (first or self.readers))
        reader = self.readers[source] = Reader(
            exchange,
            queue,
            self._prefixes,
            self._start_of(source, first=first),
            nonce=self._nonce(),
            streams=first,
            now=now,
            repair=self._repair,
        )
        reader.positions.name = self._name
        return reader

    def topology_known(
        self, serving: Collection[LogId], logs: Collection[int], now: float
    ) -> list[LogId]:
        """The monitor has said which exchanges there are, perhaps that nothing has changed.

        Args:
            serving: those that serve.
            logs: numbers of all that a durable queue has; empty: it is volatile.
            now: the present time.

        Returns:
            Those that are to be left, as they are gone for good. Who has not found out where to
            begin has nothing to wait for.
        """
        self._durable = bool(logs)
        self.resequencer.topology_known(now, durable=self._durable)
        numbers = {log.number for log in serving}
        missing = [source for source in self.readers if source not in serving]
        self.away = frozenset(
            source
            for source in missing
            if source.number in logs
            and source.number not in numbers
            and self.confirmed
            and self.readers[source].chain.verified is not None
        )
        read = numbers.union(source.number for source in self.away)
        self._unread = frozenset(LogId(number, 0) for number in logs if number not in read)
        return [source for source in missing if source not in self.away]

    def leave(self, source: LogId, now: float) -> list[Order]:
        """An exchange is gone for good; what it still had to say was fed before."""
        reader = self.readers[source]
        orders = self.burst(source, now)
        # Before the rest comes, which cannot be put aside.
        self.resequencer.source_gone(source, now)
        reader.chain.surrender()
        self._pass_on(source, reader, now)
        del self.readers[source]
        self._past = [a + b for a, b in zip(self._past, _figures(reader), strict=True)]
        if reader.chain.verified is not None and len(self._retired) < _RETIRED_MAX:
            self._retired[source] = reader.chain.verified
        self._look_confirmed(now)
        return [order for order in orders if order[0] != source]

    def trouble(self) -> str:
        """What the start still waits for, in words."""
        if not self.readers:
            return "the queue's monitor has named no exchange yet"
        return "; ".join(
            _trouble(reader) for reader in self.readers.values() if not reader.confirmed
        )

    @property
    def not_kept(self) -> str:
        """Why the start is none: an offset that is kept no more was asked for, and only that."""
        return next((each.not_kept for each in self.readers.values() if each.not_kept), "")

    def facts(self, queue: str, session: SessionFacts, now: float) -> SubscriberFacts:
        """What the watchdog wants to know."""
        hole = oldest(self.resequencer.waiting_streams())
        return SubscriberFacts(
            queue,
            session,
            confirmed=self.confirmed,
            start="" if self.confirmed else self.trouble(),
            exchanges=tuple(
                _facts(reader, now, away=source in self.away)
                for source, reader in self.readers.items()
            ),
            hole=now - hole.since if hole is not None else 0.0,
            missing=hole.text(self._verified()) if hole is not None else "",
            unread=tuple(exchange_name(source.number) for source in self._unread),
            behind=tuple(r.exchange.name for r in self.readers.values() if r.positions.behind),
        )

    def stats(self) -> ReceptionStats:
        """The counters."""
        figures = [self._past, *(_figures(reader) for reader in self.readers.values())]
        repairs, duplicates, verification, timeouts, foreign, malformed = (
            sum(values) for values in zip(*figures, strict=True)
        )
        return ReceptionStats(
            counts=replace(self.resequencer.counts),
            gaps=self.log_gaps,
            repairs=repairs,
            offset_duplicates=duplicates,
            verification=verification,
            timeouts=timeouts,
            foreign=foreign,
            malformed=malformed,
            exchanges=len(self.readers),
            held_bytes=self.resequencer.held_bytes,
        )

    def has_news(self, now: float) -> bool:
        """Whether the monitor is to be told at once how far the exchanges are read."""
        return self._progress.is_news(self.readers, now)

    def has_doubts(self, now: float) -> bool:
        """Whether to ask the monitor now which exchanges there are; see
        `roq.client.subscribe.losses`.

        It says so each second anyway. But where much is lost, much is put aside within a second.
        """
        if (
            now < self._doubt_not_before
            or self.resequencer.held_bytes < self._backpressure.ahead_bytes
        ):
            return False
        if not self.resequencer.doubtful:
            return False
        self._doubt_not_before = now + DOUBT_SECONDS
        return True

    def read(self) -> list[tuple[int, int, int]]:
        """How far they are: (number, generation, offset); see `roq.protocol.control.Alive`."""
        return self._progress.report(self.readers, self.resequencer.put_aside())

    def _start_of(self, source: LogId, *, first: bool) -> Start:
        if source in self._retired:
            return Start(From.OFFSET, self._retired.pop(source))
        if not first:
            return Start(From.NEW)
        if isinstance(self._start, Start):
            return replace(self._start, below=self._below_floor)
        offset = self._start.get(source.number)
        if offset is None:
            return Start(From.EARLIEST)
        return Start(From.OFFSET, offset, self._below_floor)

    def _look_confirmed(self, now: float) -> None:
        if (
            not self.confirmed
            and self.readers
            and all(reader.confirmed for reader in self.readers.values())
        ):
            self.confirmed = True
            self.resequencer.tables_complete(now)

    # --- what happens -----------------------------------------------------------------------------

    def handle(self, source: LogId, event: Event, now: float) -> list[Order]:
        """Something happened at one exchange."""
        orders: list[Order] = []
        self._step(source, event, now, orders)
        return orders

    def burst(self, source: LogId, now: float) -> list[Order]:
        """`Reader.live` was called, once or several times: the hot path."""
        reader = self.readers.get(source)
        if reader is None:
            return []
        if reader.dirty:
            return self.handle(source, Tick(), now)
        self._pass_on(source, reader, now)
        if not self.resequencer.recalls:
            return []
        orders: list[Order] = []
        self._recall(now, orders)
        return orders

    def pass_on(self, source: LogId, now: float) -> bool:
        """The part of `burst` that may be interrupted; whether the rest of it is wanted."""
        reader = self.readers[source]
        self._pass_on(source, reader, now)
        resequencer = self.resequencer
        return bool(reader.dirty or resequencer.recalls or resequencer.waiting or self.gaps)

    def recount(self) -> None:
        """Put right what follows from what was delivered, after an interrupted `pass_on`."""
        self.resequencer.recount()

    def tick(self, now: float, *, resting: bool = False) -> list[Order]:
        """Time has passed.

        Args:
            now: the present time.
            resting: the user takes nothing, so that nothing is missed for the moment.
        """
        orders: list[Order] = []
        for source, reader in list(self.readers.items()):
            deadline = reader.next_deadline()
            if deadline is not None and deadline <= now:
                self._step(source, Tick(), now, orders)
        if not resting:
            self.settle(now, orders)
        for source, reader in self.readers.items():
            self._report(source, reader, now, orders)
        return orders

    def settle(self, now: float, orders: list[Order]) -> None:
        """Find out whether what is missing will still come."""
        if not self.resequencer.waiting:
            return
        wanted = self.resequencer.settle(
            now, self._verified(), unread=self._unread, away=bool(self._absent())
        )
        self._collect()
        self._verify(wanted, now, orders)

    def pace(self, now: float) -> list[Order]:
        """Find out who is `held_back` from now on."""
        orders: list[Order] = []
        before = self._backpressure.held_back
        held_back = self._backpressure.look(
            self.resequencer.waiting_streams(), self.resequencer.held_bytes, self._verified(), now,
            absent=self._absent() if self.resequencer.crowded else (),
        )  # fmt: skip
        for source in before ^ held_back:
            if source in self.readers:
                self.readers[source].held_back = source in held_back
                self._step(source, Tick(), now, orders)
        self._verify(self._backpressure.wanted, now, orders)
        return orders

    def _absent(self) -> frozenset[LogId]:
        """The exchanges that do not answer, and whose logs come back with them."""
        if not self._durable:
            return frozenset()
        return self.away.union(
            self._unread,
            (source for source, reader in self.readers.items() if not reader.connected),
        )

    def read_again(self, now: float) -> None:
        """Nobody has read for a while: the user was slow."""
        self.resequencer.read_again(now)

    def _verified(self) -> dict[LogId, float]:
        verified = dict.fromkeys(self._unread, float("-inf"))
        for source, reader in self.readers.items():
            verified[source] = reader.verification.verified_as_of
        return verified

    def _verify(self, wanted: float | None, now: float, orders: list[Order]) -> None:
        """Have all exchanges verified as of this time."""
        if wanted is not None:
            for source, reader in list(self.readers.items()):
                if reader.verification.verified_as_of < wanted:
                    self._step(source, Verify(wanted), now, orders)

    def next_deadline(self, now: float) -> float | None:
        """When `tick` is wanted."""
        times: list[float | None] = []
        for reader in self.readers.values():
            times += reader.next_deadline(), reader.report_at()
        if self.resequencer.waiting:
            times.append(now + HURRY_SECONDS)
        return min((time for time in times if time is not None), default=None)

    def check(self) -> None:
        """Assert the invariants."""
        self.resequencer.check()
        for reader in self.readers.values():
            reader.check()

    def _step(self, source: LogId, event: Event, now: float, orders: list[Order]) -> None:
        reader = self.readers.get(source)
        if reader is None:
            return
        effects = reader.handle(event, now)
        self._pass_on(source, reader, now)
        for effect in effects:
            self._perform(source, reader, effect, now, orders)
        if self.resequencer.recalls:
            self._recall(now, orders)
        self._collect()
        self._report(source, reader, now, orders)

    def _report(self, source: LogId, reader: Reader, now: float, orders: list[Order]) -> None:
        if reader.report_at() > now:
            return
        aside = self.resequencer.put_aside() if self.resequencer.counts.stubbed else {}
        ask = reader.report(now, aside.get(source))
        if ask is not None:
            orders.append((source, ask))

    def _pass_on(self, source: LogId, reader: Reader, now: float) -> None:
        passed = reader.chain.passed
        if passed:
            add = self.resequencer.add
            for topic, offset, batch in passed:
                add(source, topic, offset, batch, now)
            passed.clear()
            self._collect()

    def _perform(
        self, source: LogId, reader: Reader, effect: Effect, now: float, orders: list[Order]
    ) -> None:
        match effect:
            case Ask() | Subscribe() | Unsubscribe():
                orders.append((source, effect))
            case StreamsFound(streams):
                self.resequencer.start(source, streams, latest=self._latest)
            case Confirmed():
                self._look_confirmed(now)
            case Gone(topic, offset):
                self.resequencer.gone(source, topic, offset)
            case LogGap():
                self._log_gap(reader.exchange, effect, behind=reader.positions.behind)
            case _:
                assert_never(effect)

    def _recall(self, now: float, orders: list[Order]) -> None:
        if self._recalling:
            return  # what is answered at once may want more: see the loop
        self._recalling = True
        try:
            while self.resequencer.recalls:
                recalls, self.resequencer.recalls = self.resequencer.recalls, []
                for recall in recalls:
                    if recall.source in self.readers:
                        refetch = Refetch(recall.topic, recall.offset)
                        self._step(recall.source, refetch, now, orders)
                    else:
                        self.resequencer.source_missing(recall.source, now)
        finally:
            self._recalling = False

    def _collect(self) -> None:
        if self.resequencer.gaps:
            self.gaps.extend(self.resequencer.gaps)
            self.resequencer.gaps.clear()

    def _log_gap(self, exchange: ExchangeInfo, gap: LogGap, *, behind: bool) -> None:
        self.log_gaps += 1
        text = (
            f"exchange {exchange.name} {'has' if gap.certain else 'may have'} lost the batches of "
            f"offsets {gap.first} to {gap.end - 1}: they left its memory before they were read"
        )
        if behind:
            text += "; this subscriber was left behind, as it did not read on in time"
        self.gaps.append(
            Gap(
                topic=gap.topic.decode("utf-8", "replace"),
                text=text,
                exchange=exchange.name,
                first_offset=gap.first,
                end_offset=gap.end,
            )
        )


def _facts(reader: Reader, now: float, *, away: bool) -> ExchangeFacts:
    exchange = reader.exchange
    return ExchangeFacts(
        exchange.name,
        exchange.data,
        connected=reader.connected,
        read=now - reader.verification.verified_as_of,
        silent=now - reader.live_at,
        away=away,
        unreadable=_other_format(reader) if reader.other_version else "",
    )


def _trouble(reader: Reader) -> str:
    """What a reader still waits for."""
    exchange = reader.exchange
    if not reader.connected:
        return f"no connection to exchange {exchange.name} at {exchange.data}"
    if not reader.present and reader.other_version:
        return f"exchange {exchange.name} at {exchange.live}: {_other_format(reader)}"
    if not reader.present:
        return f"exchange {exchange.name} does not confirm the subscription at {exchange.live}"
    return f"exchange {exchange.name} at {exchange.data} does not answer where to start"


def _other_format(reader: Reader) -> str:
    """Why an exchange of another version of RoQ cannot be read."""
    return other_version("it", reader.other_version, "this client")


def _figures(reader: Reader) -> list[int]:
    return [
        reader.chain.repairs_started, reader.chain.duplicates, reader.verification.made,
        reader.requests.timeouts, reader.foreign, reader.malformed,
    ]  # fmt: skip
