"""Decides, while everything runs, whether requests have ended as was promised. Pure.

Requesters write down what they ask for, under which id it was accepted, and each callback; handlers
write down each run before it begins. Journals are read one after the other, so a request is judged
when nothing new has come of it for a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from roq.client.request.context import parse_id
from roq.client.request.pending import EXCHANGE_GONE
from roq.protocol.requesting import DELAYED_FROM
from roq.simulation.real.instance import KEEP_SECONDS, RESULT_SECONDS
from roq.simulation.real.journal import Accepted, Asked, Begun, Left, Ran, Told

SETTLE_SECONDS: Final = 3.0
PENDING_SECONDS: Final = 180.0
"""What has not ended after so long never will; what has is forgotten."""
REMEMBER_SECONDS: Final = 600.0
"""So long an exchange knows how a request has ended."""
SHOWN_MAX: Final = 5
"""Findings that are told between two looks."""
ASKED_AGAIN: Final = 10
"""So many requests that have ended are asked for once more when their requester has gone."""
ENDS: Final = frozenset({"done", "failed", "discarded", "cancelled", "late", "unknown"})
OVER: Final = ENDS | {"retrieved", "expired", "forgotten", "lost", "never"}
"""An exchange has decided, or nobody will."""


@dataclass(slots=True)
class RunOf:
    """A run of a handler: of which id, and by which leases it was held."""

    id: str
    leases: list[int]


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        when: it was made.
        news: when something was heard of it last.
        once: it must not be begun twice.
        within: seconds after which it is late.
        cancels: its requester has cancelled it.
        owner: who waits for it; empty: that is not heard yet.
        ids: under which it was accepted, and when.
        ends: who was told what.
        told: something is wrong, and that was told.
    """

    when: float
    news: float
    once: bool = False
    within: float = 0.0
    cancels: bool = False
    owner: str = ""
    ids: dict[str, float] = field(default_factory=dict)
    ends: list[tuple[str, Told]] = field(default_factory=list)
    runs: dict[str, RunOf] = field(default_factory=dict)
    told: bool = False

    @property
    def over(self) -> bool:
        """Whether somebody was told how it has ended."""
        return any(told.state in OVER for _, told in self.ends)

    @property
    def open(self) -> bool:
        """Whether it was accepted, and nobody was told how it has ended."""
        return bool(self.ids) and not self.over

    # --- what never may be ------------------------------------------------------------------------

    def wrong(self, *, durable: bool) -> Iterator[str]:
        """What never may be, in words."""
        calls = Counter((who, told.ask) for who, told in self.ends)
        for (who, ask), times in calls.items():
            if times > 1:
                yield f"callback {ask} of {who} was called {times} times"
        yield from self._two_ends()
        for who, told in self.ends:
            yield from (f"{each}, {who} was told" for each in self._told(told, durable=durable))
        yield from self._twice(durable=durable)

    def _two_ends(self) -> Iterator[str]:
        first: dict[str, tuple[str, Told]] = {}
        for who, told in self.ends:
            if told.state not in ENDS:
                continue
            other, before = first.setdefault(told.id, (who, told))
            if (before.state, before.run) != (told.state, told.run):
                yield (
                    f"{other} was told that it is {before.state} ({before.run or '-'}), and {who} "
                    f"that it is {told.state} ({told.run or '-'})"
                )

    def _told(self, told: Told, *, durable: bool) -> Iterator[str]:
        young = told.when < self.when + RESULT_SECONDS + KEEP_SECONDS
        match told.state:
            case "done" | "failed":
                yield from self._answered(told, durable=durable)
            case "discarded" if self.once and self._runs_of(told.id):
                yield "it was begun, and nobody has taken it"
            case "late" if told.when < self.when + self.within:
                yield f"it is late after {told.when - self.when:.1f} s of {self.within:g}"
            case "cancelled" if not self.cancels:
                yield "nobody has cancelled it"
            case "never":
                yield "it was accepted, and there was no such request"
            case "lost" | "unknown" if (
                durable and EXCHANGE_GONE in told.text and young and not self._ended(told)
            ):  # what was told before may go with an exchange that was emptied
                yield f"its exchange is gone with a log on disk: {told.state}"
            case "forgotten" if told.when < self.when + REMEMBER_SECONDS:
                yield f"it is forgotten after {told.when - self.when:.1f} s"
            case "expired" if told.when < self.when + KEEP_SECONDS:
                yield f"nobody has fetched it in time, after {told.when - self.when:.1f} s"
            case "retrieved" if not self._ended(told):
                yield "it was fetched, and nobody has it"
            case _:
                pass

    def _ended(self, but: Told) -> bool:
        """Whether somebody was told how it has ended, under the same id, by its exchange."""
        return any(
            told is not but
            and told.state in ENDS
            and told.id == but.id
            and EXCHANGE_GONE not in told.text
            for _, told in self.ends
        )

    def _answered(self, told: Told, *, durable: bool) -> Iterator[str]:
        run = self.runs.get(told.run)
        if run is None:
            if told.run or told.state == "done":
                yield f"its response is of run {told.run or '-'}, which is none of its runs"
            return
        if told.id and run.id != told.id:
            # An answer outlives its volatile exchange, where the request was sent once more.
            if durable or self.once:
                yield f"its response is of run {told.run}, which was one of {run.id}"
            return
        if not durable and _was_delayed(run.id):
            return  # as below
        for name, other in self._runs_of(told.id).items():
            # Who has lost it before it ended leaves it to who held it before, and comes back: under
            # a new lease, with which that one tells its answer once more, and which nobody notes.
            if other.leases[0] > max(run.leases) and other.leases[-1]:
                yield (
                    f"its response is of run {told.run} by lease {max(run.leases)}, while {name} "
                    f"had {other.leases[0]}"
                )

    def _twice(self, *, durable: bool) -> Iterator[str]:
        """A volatile exchange may die, or be left, before it says that it has one, which is in two
        logs then, or twice in one. Who was delayed has one id wherever it is."""
        if self.once:
            ids = [each for each in self._places() if not _was_delayed(each)]
            places = [self.runs] if durable else [self._runs_of(each) for each in ids]
            for runs in places:
                if len(runs) > 1:
                    yield f"it was begun {len(runs)} times, and must not be: {', '.join(runs)}"

    def _places(self) -> set[str]:
        return {run.id for run in self.runs.values()}

    def _runs_of(self, id_: str) -> dict[str, RunOf]:
        return {name: run for name, run in self.runs.items() if run.id == id_}


def _was_delayed(id_: str) -> bool:
    return parse_id(id_).position.offset >= DELAYED_FROM


class Answering:
    """The requests of one queue.

    Args:
        durable: the queue is.

    Attributes:
        counts: requests by how they have ended for who was told first, and runs.
    """

    def __init__(self, *, durable: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._durable = durable
        self._now = 0.0
        self._read_to = 0.0
        """To this time all journals were read when somebody looked last: one after the other, which
        takes seconds on a machine that is full."""
        self._requests: dict[str, Request] = {}
        """By ticket, the oldest one first."""
        self._fresh: set[str] = set()
        """Of which something new has come."""
        self._gone: set[str] = set()
        """Workers that have ended."""

    # --- taking in --------------------------------------------------------------------------------

    def take(self, worker: str, record: Asked | Accepted | Told | Begun | Ran) -> None:
        """The next record of a requester, or of an instance."""
        self._now = max(self._now, record.when)
        if isinstance(record, Asked):
            for ticket in record.tickets:
                request = self._request(ticket, record.when)
                request.once, request.when, request.owner = record.once, record.when, worker
                request.within, request.cancels = record.within, record.cancels
            self.counts["made"] += len(record.tickets)
            return
        request = self._request(record.ticket, record.when)
        match record:
            case Accepted(id=id_, when=when):
                self.counts["accepted"] += not request.ids
                request.ids.setdefault(id_, when)
            case Told(state=state):
                self.counts[state] += not request.over
                request.ends.append((worker, record))
            case Begun(run=run, id=id_, lease=lease):
                self.counts["runs"] += 1
                self.counts["runs again"] += bool(request.runs)
                request.runs[run] = RunOf(id_, [lease])
            case Ran(run=run, lease=lease) if run in request.runs:
                request.runs[run].leases.append(lease)
            case Ran():
                pass

    def begin(self, worker: str) -> None:
        """It is there."""
        self._gone.discard(worker)

    def end(self, worker: str) -> None:
        """It has ended: what it waits for others have to ask for."""
        self._gone.add(worker)

    def left(self) -> list[Left]:
        """Requests that somebody has to ask for; and some more, to compare what that one is
        told."""
        ended: list[Left] = []
        open_ones: list[Left] = []
        for ticket, request in self._requests.items():
            if request.owner in self._gone and request.ids:
                where = open_ones if request.open else ended
                where.append(Left(ticket, next(reversed(request.ids))))
        return open_ones + ended[-ASKED_AGAIN:]

    def hand_over(self, left: list[Left], worker: str) -> None:
        """This one asks for them from now on."""
        for each in left:
            self._requests[each.ticket].owner = worker

    # --- judging ----------------------------------------------------------------------------------

    def pending(self, since: float) -> list[str]:
        """Requests that were accepted before that and have not ended, in sentences."""
        open_ones = [
            (ticket, request)
            for ticket, request in self._requests.items()
            if request.open and min(request.ids.values()) <= since
        ]
        return [
            f"{ticket} ({next(reversed(request.ids))}) has not ended, for {request.owner}"
            for ticket, request in open_ones[:SHOWN_MAX]
        ]

    def check(self) -> list[str]:
        """What was wrong since the last look, in sentences; what is old is forgotten."""
        found: list[str] = []
        read_to, self._read_to = self._read_to, self._now
        for ticket in list(self._fresh):
            request = self._requests.get(ticket)
            if request is None:
                self._fresh.discard(ticket)
            elif request.news < read_to - SETTLE_SECONDS:
                self._fresh.discard(ticket)
                self._judge(ticket, request, found)
        for ticket, request in list(self._requests.items()):
            if request.when >= self._now - PENDING_SECONDS:
                break
            if request.open and not request.told:
                found.append(f"request {ticket} was accepted, and has not ended")
            if not (request.ids or request.ends or request.owner in {"", *self._gone}):
                found.append(f"request {ticket} was made, and nobody knows what has become of it")
            del self._requests[ticket]
        return found[:SHOWN_MAX]

    def _request(self, ticket: str, when: float) -> Request:
        """Something is heard of it; an instance may be heard before who has made it."""
        self._fresh.add(ticket)
        request = self._requests.setdefault(ticket, Request(when, when))
        request.news = max(request.news, when)
        return request

    def _judge(self, ticket: str, request: Request, found: list[str]) -> None:
        why = next(request.wrong(durable=self._durable), "")
        if why and not request.told:
            request.told = True
            found.append(f"request {ticket} ({', '.join(request.ids) or 'no id'}): {why}")
