"""Open transactions of one exchange: which there are, who is asked about them, how they end. Pure.

    prepared -> open --commit--> its messages are due at once
                  |   --rollback--> gone
                  +-- nothing is heard: a producer of its group is asked, again and again
                        +-- nobody knows: what its producer has said for that

What they hold is kept as delayed messages are (`roq.exchange.delayed_messages`), as messages that
are never due: in the log, in its snapshots, in its bounds. An end is one record of the log, which
takes the half message away and, if it is a commit, has its messages in it: so all come or none.
Here is who may be asked, and when; that is in memory alone, so a new process begins to count anew.
It runs on the monotonic clock: jumps of the wall clock change nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush, nsmallest
from typing import Final, Generic, NamedTuple, TypeVar

from roq.errors import RemoteProtocolError
from roq.exchange.commit import OwedAnswers
from roq.exchange.delayed_message import KeptMessage, kept
from roq.exchange.events import Effect, Send
from roq.exchange.producers import AT_ONCE, Producer, Producers
from roq.exchange.readers import RefusedRequest, check_queue
from roq.exchange.requests import Request
from roq.log.log import Log
from roq.log.timing_wheel import Row
from roq.protocol import documents
from roq.protocol.delayed import MESSAGE_ID_BYTES, Delayed
from roq.protocol.transaction import (
    CHECK,
    ENROLL,
    SETTLE,
    TRANSACTIONS,
    CheckHead,
    Decision,
    Enroll,
    Enrolled,
    Fate,
    Half,
    Policy,
    Settle,
    Settled,
    TransactionFigures,
    Transactions,
    TransactionsQuery,
    TransactionState,
    attributes_of_half,
    decode_half,
)
from roq.timing import PRODUCER_SILENT_SECONDS

B = TypeVar("B")

OPEN_MAX: Final = 100_000
"""Transactions that are open at one exchange; more are refused, none is forgotten."""
COMMITTED_MAX: Final = 100_000
"""So many of their messages may wait beside delayed ones: what was committed is published as soon
as that can be."""
ENDED_MAX: Final = 10_000
"""Of so many it is remembered how they have ended; each takes 9 bytes in a snapshot."""
ANSWER_SECONDS: Final = 15.0
"""So long has a producer to answer; then another one is asked."""
BACKOFF_SECONDS: Final = 600.0
"""The longest time between two looks, unless the first one was longer."""
LONELY_SECONDS: Final = 60.0
"""While nobody of a group is there, so long is waited for its patience to end."""
RETRY_SECONDS: Final = 1.0
"""What cannot be done now is tried again after so long,"""
RETRIES_A_SECOND: Final = 1_000
"""or so seldom that all that are open are not tried more often than this."""
LOOKS_MAX: Final = 20
"""Transactions that are looked at in one turn; of each a batch of the log may be read."""
SETTLED_BYTES: Final = 16 * 1024 * 1024
"""What is read and written for one message of a producer; the rest it says again."""
NEVER: Final = float("inf")
_ENDED_BYTES: Final = MESSAGE_ID_BYTES + 1


class NotNow(Exception):
    """The disk does not give it, or has no room for it; later it may."""


class Terms(NamedTuple):
    """What is known of a half message without its messages."""

    group: str
    publisher: bytes
    check_seconds: float
    attempts: int
    patience_seconds: float
    otherwise: Policy


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """One that is open.

    Attributes:
        since: when this process has seen it first.
        at: when it is looked at next.
        terms: None: they were not read yet.
        attempts: so often was a producer asked that did not know.
        asked: who is asked now; `last`: who was asked last and did not know, or did not answer.
        alone_since: nobody of its group is there since then, as far as was looked; None: somebody.
        kept: it is left to a person.
    """

    row: Row
    since: float
    at: float
    terms: Terms | None = None
    attempts: int = 0
    asked: Producer | None = None
    last: Producer | None = None
    alone_since: float | None = None
    kept: bool = False


class TransactionTable(Generic[B]):
    """What is open at one exchange.

    Args:
        queue: id of the queue.
        read: gives what a row stands for; None: it is lost, and its row is gone. May raise
            `NotNow`.
        settle: writes the end of a transaction, with the messages that are due by it; raises
            `NotNow` if it could not.
        owed: what is sent when all that has happened so far is kept.
        log: in which they are.

    Attributes:
        now: monotonic seconds, set by who calls.
        kept: of what is open, so many are left to a person.
        handlers: of requests, by letter.
    """

    def __init__(
        self,
        queue: bytes,
        read: Callable[[Row], KeptMessage | None],
        settle: Callable[[Row, list[KeptMessage], bool], None],
        owed: OwedAnswers[B],
        log: Log[B],
    ) -> None:
        self.now = 0.0
        self.kept = 0
        self.handlers: Final[dict[bytes, Callable[[Request], list[Effect]]]] = {
            ENROLL: self._enroll,
            SETTLE: self._settle_all,
            TRANSACTIONS: self._list,
        }
        self._queue = queue
        self._read = read
        self._settle = settle
        self._owed = owed
        self._log = log
        self._open: dict[bytes, OpenTransaction] = {}
        self._looks: list[tuple[float, bytes]] = []
        self._ended: OrderedDict[bytes, bool] = OrderedDict()
        """Whether it was committed."""
        self._producers = Producers()
        self._lonely: dict[str, set[bytes]] = {}
        """What waits for anybody of a group."""
        counts = "prepared", "committed", "rolled_back", "checked", "by_policy"
        self._counts = dict.fromkeys(counts, 0)

    def __len__(self) -> int:
        """Transactions that are open."""
        return len(self._open)

    # --- what is kept -----------------------------------------------------------------------------

    def why_not(self, transactions: list[bytes]) -> tuple[str, str] | None:
        """Why these half messages are refused: code and sentence; None: they are not."""
        if len(self._open) + len(transactions) > OPEN_MAX:
            return "full", (
                f"{len(self._open):,} transactions are open at this exchange, which keeps "
                f"{OPEN_MAX:,} at most: end some of them (`roq transaction list` shows them)"
            )
        known = [each for each in transactions if each in self._open or each in self._ended]
        if known or len(set(transactions)) < len(transactions):
            return "invalid_request", "there was a transaction of this id before"
        return None

    def opened(self, row: Row, held: KeptMessage) -> None:
        """One was prepared."""
        terms = _terms(held)
        made = OpenTransaction(row, self.now, self.now, terms)
        self._open[row.id] = made
        self._counts["prepared"] += 1
        self._look_at(made, self.now + terms.check_seconds)

    def recovered(self, rows: Iterable[Row]) -> None:
        """These were open when an earlier process ended."""
        for row in rows:
            if row.id not in self._open and row.id not in self._ended:
                self._open[row.id] = made = OpenTransaction(row, self.now, self.now)
                self._look_at(made, self.now)

    def has(self, row: Row) -> bool:
        """Whether one that is open lies there: of a damaged snapshot others may have its id."""
        return row.id in self._open and self._open[row.id].row.place == row.place

    def moved(self, row: Row) -> None:
        """It lies elsewhere now."""
        self._open[row.id].row = row

    def lost(self, row: Row) -> None:
        """The log has it not any more."""
        if self.has(row):
            self._let_go(self._open.pop(row.id))

    def were_ended(self, ends: Iterable[tuple[bytes, bool]]) -> None:
        """An earlier process has ended these, and whether it has committed them."""
        for transaction, committed in ends:
            self._note_end(transaction, committed=committed)

    def snapshot(self) -> bytes:
        """How transactions have ended, for `recover`."""
        return b"".join(name + bytes((committed,)) for name, committed in self._ended.items())

    def recover(self, snapshot: bytes) -> None:
        """Go on with what `snapshot` gave.

        Raises:
            RemoteProtocolError: it gave no such thing.
        """
        if len(snapshot) % _ENDED_BYTES:
            raise RemoteProtocolError("the transactions of a snapshot cannot be read")
        for at in range(0, len(snapshot), _ENDED_BYTES):
            part = snapshot[at : at + _ENDED_BYTES]
            self._note_end(part[:-1], committed=bool(part[-1]))

    # --- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When `run` has something to do; None: it is not known."""
        return self._looks[0][0] if self._looks else None

    def run(self) -> list[Effect]:
        """Look at what is due, some of it."""
        effects: list[Effect] = []
        looked = 0
        while self._looks and self._looks[0][0] <= self.now and looked < LOOKS_MAX:
            at, transaction = heappop(self._looks)
            found = self._open.get(transaction)
            if found is not None and found.at == at:
                looked += 1
                try:
                    effects += self._look(found)
                except NotNow:
                    self._look_again(found)
        if len(self._looks) > 2 * len(self._open) + 100:
            live = ((each.at, name) for name, each in self._open.items() if each.at < NEVER)
            self._looks = sorted(live)
        return effects

    def _look_at(self, found: OpenTransaction, at: float) -> None:
        found.at = at
        if at < NEVER:
            heappush(self._looks, (at, found.row.id))

    def _look_again(self, found: OpenTransaction) -> None:
        """It cannot be done now; the more are open, the later it is tried again."""
        self._look_at(found, self.now + max(RETRY_SECONDS, len(self._open) / RETRIES_A_SECOND))

    def _look(self, found: OpenTransaction) -> list[Effect]:
        """Nothing was heard of it until its time: ask somebody, or do what is to be done then."""
        known = found.terms is not None
        terms = self._terms_of(found)
        if terms is None:
            return []
        if not known:
            self._look_at(found, self.now + terms.check_seconds)
            return []
        self._unask(found, knew=False)  # whoever was asked has not answered in time
        if found.attempts >= terms.attempts:
            self._give_up(found, terms)
            return []
        self._forget_silent()
        producer = self._producers.choose(terms.group, terms.publisher, found.last)
        if producer is not None:
            return self._ask(found, producer)
        if self._producers.has(terms.group):  # each of them is asked as much as it is at a time
            found.alone_since = None
            self._look_again(found)
            return []
        if found.alone_since is None:
            found.alone_since = self.now
        until = found.alone_since + terms.patience_seconds
        if until <= self.now:
            self._give_up(found, terms)
        else:
            self._lonely.setdefault(terms.group, set()).add(found.row.id)
            self._look_at(found, min(self.now + LONELY_SECONDS, until))
        return []

    def _ask(self, found: OpenTransaction, producer: Producer) -> list[Effect]:
        held = self._read(found.row)
        if held is None:
            return []
        found.asked, found.alone_since = producer, None
        found.attempts += 1
        self._producers.ask(producer, found.row.id)
        self._counts["checked"] += 1
        self._look_at(found, self.now + ANSWER_SECONDS)
        head = CheckHead(
            transaction=found.row.id, publisher=held.message.publisher,
            prepared_us=held.message.published_us, attempt=found.attempts,
        )  # fmt: skip
        parts = CHECK + producer.tag, documents.encode(head) + held.message.payload
        return [Send(producer.route, parts)]

    def _unask(self, found: OpenTransaction, *, knew: bool) -> None:
        """Nobody is asked any more."""
        if found.asked is not None:
            del found.asked.asked[found.row.id]
            found.last, found.asked = (None if knew else found.asked), None

    def _give_up(self, found: OpenTransaction, terms: Terms) -> None:
        if terms.otherwise == "keep":
            found.kept = True
            self.kept += 1
            self._look_at(found, NEVER)
            return
        self._end(found, committed=terms.otherwise == "commit")
        self._counts["by_policy"] += found.row.id in self._ended  # or its messages were lost

    # --- its end ----------------------------------------------------------------------------------

    def _end(self, found: OpenTransaction, *, committed: bool) -> None:
        """Have the log take its end.

        Raises:
            NotNow: there is no room for that.
        """
        due: list[KeptMessage] = []
        if committed:
            held = self._read(found.row)
            if held is None:
                return
            due = _messages(held)
        self._settle(found.row, due, committed)
        del self._open[found.row.id]
        self._let_go(found)
        self._note_end(found.row.id, committed=committed)
        self._counts["committed" if committed else "rolled_back"] += 1

    def _let_go(self, found: OpenTransaction) -> None:
        self._unask(found, knew=True)
        self.kept -= found.kept
        if found.terms is not None:
            waiting = self._lonely.get(found.terms.group, set())
            waiting.discard(found.row.id)
            if not waiting:
                self._lonely.pop(found.terms.group, None)

    def _note_end(self, transaction: bytes, *, committed: bool) -> None:
        self._ended[transaction] = committed
        if len(self._ended) > ENDED_MAX:
            self._ended.popitem(last=False)

    def _said(self, producer: Producer | None, group: str, name: bytes, decision: Decision) -> Fate:
        """Somebody of this group says what is to become of it."""
        found = self._open.get(name)
        try:
            terms = None if found is None else self._terms_of(found)
            if found is None or terms is None:
                return self._fate(name)
            if terms.group != group:
                return Fate.FOREIGN
            if decision in {Decision.COMMIT, Decision.ROLLBACK}:
                self._end(found, committed=decision is Decision.COMMIT)
                return self._fate(name)
        except NotNow:
            return Fate.FULL
        if producer is not None and found.asked is producer:
            self._unask(found, knew=decision is Decision.BUSY)
            wait = terms.check_seconds
            if decision is Decision.BUSY:
                found.attempts -= 1
            else:
                longest = max(wait, BACKOFF_SECONDS)
                wait = min(longest, wait * 2.0 ** min(found.attempts, 32))
            self._look_at(found, self.now + wait)
        return Fate.OPEN

    def _terms_of(self, found: OpenTransaction) -> Terms | None:
        """Read from the log the first time; None: it is lost."""
        if found.terms is None:
            held = self._read(found.row)
            found.terms = None if held is None else _terms(held)
        return found.terms

    def _fate(self, name: bytes) -> Fate:
        if name in self._open:
            return Fate.OPEN
        committed = self._ended.get(name)
        return {None: Fate.NOT_HERE, True: Fate.COMMITTED, False: Fate.ROLLED_BACK}[committed]

    # --- who is there -----------------------------------------------------------------------------

    def gone(self, route: bytes) -> None:
        """A connection has ended: what was asked there is asked elsewhere."""
        for producer in self._producers.of(route):
            self._forget(producer)

    def _heard(self, asked: Request, group: str) -> Producer | None:
        """Who asks, if it is one of this group that may be asked."""
        return self._producers.heard(asked.route, asked.reader, group, self.now)

    def _forget_silent(self) -> None:
        """A link that lets nothing through does not end for long."""
        since = self.now - PRODUCER_SILENT_SECONDS
        while (producer := self._producers.silent(since)) is not None:
            self._forget(producer)

    def _forget(self, producer: Producer) -> None:
        self._producers.remove(producer)
        for name in producer.asked:
            found = self._open[name]
            found.asked = None
            found.attempts -= 1
            self._look_at(found, self.now)

    # --- what is asked ----------------------------------------------------------------------------

    def _enroll(self, asked: Request) -> list[Effect]:
        enroll = documents.decode(asked.document, Enroll)
        check_queue(enroll.queue, self._queue)
        self._forget_silent()
        producer = self._heard(asked, enroll.group)
        if enroll.leave:
            if producer is not None:
                self._forget(producer)
        elif producer is None:
            self._producers.add(
                Producer(asked.route, asked.reader, enroll.group, enroll.publisher, self.now)
            )
            for name in self._lonely.pop(enroll.group, ()):
                found = self._open.get(name)
                if found is not None and not found.kept:
                    self._look_at(found, self.now)
        answer = Enrolled(id=enroll.id, generation=self._log.generation)
        return [Send(asked.route, (ENROLL + asked.reader, documents.encode(answer)))]

    def _settle_all(self, asked: Request) -> list[Effect]:
        settle = documents.decode(asked.document, Settle)
        check_queue(settle.queue, self._queue)
        self._owed.check_room()
        producer = self._heard(asked, settle.group)
        fates: list[Fate] = []
        size = 0
        for name, decision in settle.ends:
            found = self._open.get(name)
            size += 0 if found is None else found.row.size
            later = fates and size > SETTLED_BYTES
            fates.append(Fate.FULL if later else self._said(producer, settle.group, name, decision))
        answer = Settled(id=settle.id, generation=self._log.generation, fates=fates)
        self._owed.add(Send(asked.route, (SETTLE + asked.reader, documents.encode(answer))))
        return []

    def _list(self, asked: Request) -> list[Effect]:
        query = documents.decode(asked.document, TransactionsQuery)
        check_queue(query.queue, self._queue)
        rest = b""
        if query.transaction:
            self._owed.check_room()
            rows = [self._state_of(query.transaction)]
            try:
                found = self._open.get(query.transaction)
                held = None if found is None else self._read(found.row)
            except NotNow:
                raise RefusedRequest("full", "the disk does not give it now; try again") from None
            rest = b"" if held is None else held.message.payload
        else:
            chosen = (
                each for each in self._open.values()
                if not query.group or (each.terms and each.terms.group == query.group)
            )  # fmt: skip
            oldest = nsmallest(query.most, chosen, key=lambda each: each.since)
            rows = [self._state(each) for each in oldest]
        answer = Transactions(
            id=query.id, generation=self._log.generation, figures=self.figures(), transactions=rows
        )
        send = Send(asked.route, (TRANSACTIONS + asked.reader, documents.encode(answer) + rest))
        if not query.transaction or rest:
            return [send]
        self._owed.add(send)  # that it has ended is true when that is kept
        return []

    def figures(self) -> TransactionFigures:
        """Counts."""
        return TransactionFigures(
            open=len(self._open), kept=self.kept, oldest_seconds=self.oldest_seconds,
            producers=len(self._producers), **self._counts,
        )  # fmt: skip

    @property
    def oldest_seconds(self) -> float:
        """For so long is the oldest one open, as far as this process has seen it."""
        oldest = next(iter(self._open.values()), None)  # they are in this order
        return 0.0 if oldest is None else max(0.0, self.now - oldest.since)

    @property
    def counts(self) -> Mapping[str, int]:
        """What has happened since the start, by the names of `TransactionFigures`."""
        return self._counts

    def _state_of(self, name: bytes) -> TransactionState:
        found = self._open.get(name)
        if found is not None:
            return self._state(found)
        whole = name.rjust(MESSAGE_ID_BYTES, b"\0")
        return TransactionState(transaction=whole, fate=self._fate(name))

    def _state(self, found: OpenTransaction) -> TransactionState:
        return TransactionState(
            transaction=found.row.id, fate=Fate.OPEN,
            group="" if found.terms is None else found.terms.group,
            seconds=max(0.0, self.now - found.since), size=found.row.size,
            attempts=found.attempts, kept=found.kept,
            next_seconds=0.0 if found.kept else max(0.0, found.at - self.now),
        )  # fmt: skip

    def check(self) -> None:
        """Assert the invariants."""
        asked = {name: each.asked for name, each in self._open.items() if each.asked is not None}
        for producer in self._producers:
            mine = {name for name, each in asked.items() if each is producer}
            assert producer.asked.keys() == mine  # noqa: S101
            assert len(mine) <= AT_ONCE  # noqa: S101
        assert set(self._producers).issuperset(asked.values())  # noqa: S101
        self._producers.check()
        assert not self._open.keys() & self._ended.keys()  # noqa: S101
        assert self.kept == sum(each.kept for each in self._open.values())  # noqa: S101
        assert len(self._ended) <= ENDED_MAX  # noqa: S101
        looks = set(self._looks)
        for name, each in self._open.items():
            assert each.row.id == name  # noqa: S101
            assert each.at == NEVER or (each.at, name) in looks, "it is looked at"  # noqa: S101
            assert (each.at == NEVER) is each.kept  # noqa: S101


def _terms(held: KeptMessage) -> Terms:
    half = decode_half(held.message.payload)
    return Terms(
        half.group, held.message.publisher, half.check_seconds, half.attempts,
        half.patience_seconds, half.otherwise,
    )  # fmt: skip


def _messages(held: KeptMessage) -> list[KeptMessage]:
    """Those of a half message, as delayed ones that are due, whatever a clock says."""
    half: Half = decode_half(held.message.payload)
    of = held.message
    made: list[KeptMessage] = []
    for (topic, payload), attributes in zip(half.messages, attributes_of_half(half), strict=True):
        # Under an id of its own, so that nobody takes it for a delayed message and cancels it.
        name = blake2b(of.id + bytes((len(made),)), digest_size=MESSAGE_ID_BYTES).digest()
        message = Delayed(0, topic, payload, name, of.publisher, of.published_us, of.id)
        made.append(kept(message, attributes))
    return made
