"""What is noticed of requests: who makes them, who runs them, and how each is told to have ended.

A request is known by its number, which is what it sends; a run by its own, which is in its
response. So each response tells which run has made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from struct import Struct
from typing import Any, Final

from roq.client.consume.holding import Holding
from roq.client.request.pending import EXCHANGE_GONE, Pending
from roq.errors import RequestUnknown
from roq.model import LogId
from roq.protocol.requesting import ENDS, RequestEnd, RequestState
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.sharing import Place

SHOWN_MAX: Final = 5
"""Broken promises of one kind that are told."""
NUMBERS: Final = Struct(">II")
"""A response: of the request, and of the run."""
KEEP_SECONDS: Final = 90.0
"""What nobody fetches is kept for so long (`keep_result`)."""
GONE: Final = frozenset({RequestState.RETRIEVED, RequestState.EXPIRED})
"""Of a request that has ended somebody may hear this later."""


@dataclass(eq=False)
class Asked:
    """A request.

    Attributes:
        once: it must not be begun again.
        requester: the process.
        made_at: when.
        find: gives it as its requester has it; None: it was not made.
        cancelled: its requester has said so.
        wants_call: its requester wants to be called back.
        called: so often it was.
    """

    number: int
    once: bool
    requester: Process
    made_at: float
    find: Callable[[], Pending[bytes] | None] = lambda: None
    cancelled: bool = False
    wants_call: bool = False
    called: int = 0

    @property
    def pending(self) -> Pending[bytes] | None:
        """As its requester has it; None: it was not made."""
        return self.find()

    @property
    def waits(self) -> bool:
        """Whether somebody waits for it."""
        pending = self.pending
        return self.requester.alive and pending is not None and not pending.done()

    def why(self) -> str:
        """What it waits for, in words."""
        return f"request {self.number} of {self.requester} has not ended: {self.pending}"

    @property
    def told(self) -> str:
        """How an exchange has told its requester that it has ended; empty: none has.

        One that the cluster has given up may come back: then more is known by the id.
        """
        pending = self.pending
        if pending is None or pending.state not in ENDS or self.given_up:
            return ""
        return pending.state

    @property
    def given_up(self) -> bool:
        """Whether its requester was told that its exchange is gone."""
        pending = self.pending
        if pending is None or pending.state != RequestState.UNKNOWN:
            return False
        try:
            pending.result(0)
        except RequestUnknown as error:
            return EXCHANGE_GONE in str(error)
        return False


@dataclass(eq=False)
class Run:
    """One run of a handler."""

    number: int
    request: int
    instance: str
    place: Place
    began_at: float
    over: str = ""
    """How it has ended: `done`, `failed` or `again`; empty: not yet."""


@dataclass
class _At:
    """What is known of a place in a log.

    Attributes:
        to: to whom it was handed out last, and when.
        lease: the number of that lease.
        end: how it was told to have ended.
    """

    to: tuple[str, float] = ("", 0.0)
    lease: int = 0
    end: RequestEnd | None = None
    runs: list[Run] = field(default_factory=list)


class Asking:
    """Watches over one service at all exchanges.

    Args:
        found: told of broken promises.
        checked: counts how often each one was looked at.

    Attributes:
        asked: requests that were made, by number.
        runs: of handlers, by number.
        states: how often requesters were told each.
        healed_at: since when all is well, for good.
    """

    def __init__(self, found: Callable[[str], None], checked: Counter[str]) -> None:
        self.asked: dict[int, Asked] = {}
        self.runs: dict[int, Run] = {}
        self.states: Counter[str] = Counter()
        self.healed_at = inf
        self._found = found
        self._checked = checked
        self._places: dict[Place, _At] = {}
        self._told: Counter[str] = Counter()
        self._expired: list[str] = []
        """What nobody was told of before its time was over."""
        self._open: list[Asked] = []
        """Those that may still wait."""

    def make(self, requester: Process, *, once: bool) -> Asked:
        """One more request is about to be made."""
        number, now = len(self.asked), requester.world.now
        asked = self.asked[number] = Asked(number, once, requester, now)
        self._open.append(asked)
        return asked

    # --- while it happens -------------------------------------------------------------------------

    def leased(
        self, instance: str, log: LogId, offset: int, run: range, lease: int, now: float
    ) -> None:
        """An exchange sends these requests of a batch to an instance."""
        for index in run:
            place = Place(log, offset, index)
            at = self._places.setdefault(place, _At())
            at.to, at.lease = (instance, now), lease
            if at.end is not None:
                self._tell("leased", f"{place} is handed out, though it is {at.end.state}")

    def resumed(self, instance: str, holding: Holding) -> None:
        """An instance holds on to what it had, by these leases: what runs there since goes on."""
        for number, first, length in holding.segments:
            for index in range(first, first + length):
                at = self._places.setdefault(Place(holding.log, holding.offset, index), _At())
                if number > at.lease:
                    at.to, at.lease = (instance, 0.0), number

    def begins(self, instance: str, place: Place, number: int, now: float) -> Run:
        """A handler is called."""
        run = self.runs[len(self.runs)] = Run(len(self.runs), number, instance, place, now)
        at = self._places.setdefault(place, _At())
        if self.asked[number].once:
            self._checked["what must not be begun again is not"] += 1
            before = next((each for each in at.runs if each.over != "again"), None)
            if before is not None:
                self._tell(
                    "twice",
                    f"{instance} begins request {number} at {place}, which {before.instance} has "
                    f"begun at {before.began_at:.3f} ({before.over or 'it was lost'})",
                )
        at.runs.append(run)
        return run

    def told(self, log: LogId, ends: Sequence[RequestEnd]) -> None:
        """A requester is told how requests have ended."""
        for end in ends:
            place = Place(log, end.offset, end.index)
            self.states[end.state] += 1
            self._checked["each request has one outcome"] += 1
            at = self._places.setdefault(place, _At())
            before = at.end
            if end.state in GONE:
                text = f"{place} is {end.state}, and nobody was told how it ended"
                if before is None and end.state is RequestState.EXPIRED:
                    asked = self.asked[at.runs[0].request if at.runs else 0]
                    if asked.requester.world.now - asked.made_at < KEEP_SECONDS:
                        self._expired.append(text)
                elif before is None:
                    self._tell("gone", text)
                continue
            if end.state not in ENDS:
                self._tell("lost", f"{place} is told to be {end.state}")
            elif before is None:
                at.end = end
                self._look_at(place, at, end)
            elif (before.state, before.value) != (end.state, end.value):
                self._tell("ends", f"{place} is {before.state} and then {end.state}")

    def called(self, asked: Asked) -> None:
        """A callback is called."""
        self._checked["a callback is called once"] += 1
        asked.called += 1
        if asked.called > 1:
            self._tell("called", f"the callback of request {asked.number} is called again")
        if asked.waits:
            self._tell("called", f"request {asked.number} is not done, and its callback is called")

    def _look_at(self, place: Place, at: _At, end: RequestEnd) -> None:
        if end.state is RequestState.DONE:
            self._look_at_response(place, at, end.value)
        elif end.state is RequestState.FAILED:
            if not any(run.over == "failed" for run in [*at.runs, *self._elsewhere(at)]):
                self._tell("failed", f"{place} has failed, and no handler: {end.text[-200:]}")
        elif end.state is RequestState.DISCARDED:
            lost = [run for run in at.runs if run.over != "again" and self.asked[run.request].once]
            if lost:
                self._tell("discarded", f"{place} is discarded, and {lost[0].instance} runs it")

    def _look_at_response(self, place: Place, at: _At, value: bytes) -> None:
        self._checked["a response is that of the valid attempt"] += 1
        number, of = NUMBERS.unpack(value)
        run = self.runs[of]
        to, since = at.to
        if run.request != number or (run.place != place and self.asked[number].once):
            self._tell("foreign", f"{place} is answered with what was requested at {run.place}")
        elif run.place != place:
            self._look_at_former(place, run)
        elif run.over != "done":
            self._tell("foreign", f"{place} is answered by a run that has not ended")
        elif run.instance != to or run.began_at < since:
            self._tell(
                "outdated",
                f"{place} is answered by {run.instance}, which has begun at {run.began_at:.3f}; "
                f"{to} has it since {since:.3f}",
            )

    def _look_at_former(self, place: Place, run: Run) -> None:
        """The answer is that of a run elsewhere, of a request that was sent once more."""
        self._checked["an answer finds the request where it was sent once more"] += 1
        if run.over != "done":
            self._tell("foreign", f"{place} is answered by a run elsewhere that has not ended")

    def _elsewhere(self, at: _At) -> list[Run]:
        """Runs of what may be begun again, at other places, that may have answered this one."""
        numbers = {run.request for run in at.runs}
        return [
            run
            for run in self.runs.values()
            if not self.asked[run.request].once and (run.request in numbers or not numbers)
        ]

    # --- at the end -------------------------------------------------------------------------------

    @property
    def open(self) -> Asked | None:
        """A request of a living requester that has not ended; None: there is none.

        This is asked before each event, so what waits no more is not looked at again.
        """
        while self._open:
            if self._open[-1].waits:
                return self._open[-1]
            self._open.pop()
        return None

    def look_again(self, asked: Asked, found: Pending[Any], *, there: bool) -> None:
        """Somebody has asked for an accepted request by its id, when all is over.

        Args:
            there: its log is.
        """
        self._checked["each accepted request can be asked for"] += 1
        if not there:
            return
        state, place = found.state, found.at
        if state not in ENDS | GONE:
            self._tell("asked", f"request {asked.number} at {place} is {state} when asked for")
        mine = asked.pending
        known = "" if mine is None or mine.at != place else asked.told
        if known and state not in {known, *GONE}:
            self._tell("asked", f"request {asked.number} was {known}, and is {state} by its id")

    def look_at_ends(self, *, kept: bool, jumped: bool) -> None:
        """What living requesters believe, and were called back for.

        Args:
            kept: what an exchange knows is on a disk, and no log was removed.
            jumped: a wall clock has, by which an exchange that is started again counts lives on.
        """
        for text in self._expired if not jumped else ():
            self._tell("gone", text)
        for each in self.asked.values():
            pending = each.pending
            if pending is None or not each.requester.alive:
                continue
            if each.wants_call and each.called != 1:
                text = f"is called back {each.called} times for request {each.number}: {pending}"
                self._tell("called", f"{each.requester.name} {text}")
            if pending.at is not None:
                log, (offset, index) = pending.at
                end = self._places.get(Place(log, offset, index), _At()).end
                if kept and end is None and each.given_up:
                    self._tell("gone", f"an exchange on a disk is gone: {pending}")
                if end is not None and each.told not in {"", end.state}:
                    self._tell("believes", f"request {each.number} is {end.state}: {pending}")
            if pending.state == RequestState.CANCELLED and not each.cancelled:
                self._tell("cancelled", f"nobody has cancelled request {each.number}")
            if pending.state == "unavailable" and each.made_at > self.healed_at:
                self._tell("unavailable", f"nobody says how request {each.number} ends: {pending}")

    def _tell(self, kind: str, text: str) -> None:
        self._told[kind] += 1
        if self._told[kind] <= SHOWN_MAX:
            self._found(text)
