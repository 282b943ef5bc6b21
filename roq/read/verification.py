"""Finds out whether everything that a log has was received: pure.

A check is one question what there is (HEADS), with everything that follows from its answer: when
all that it names was passed on, the log is *verified as of* the time at which it was asked. A
missing batch is fetched at once if the fan-out is provably past it, else when the fan-out is
silent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roq.protocol.channel import Heads
from roq.read.offset_chain import OffsetChain
from roq.timing import END_SILENT_SECONDS

SILENT_CHECK_SECONDS: Final = 0.5
"""Between two checks while the fan-out is silent: the data connection stands in for it."""
CHECK_SECONDS: Final = 0.02
"""Between two checks that the merge waits for."""


@dataclass(slots=True)
class _Check:
    """One question, and what is still to come of its answer."""

    sent_at: float
    since: int
    """The next page begins here."""
    end: int = -1
    """The end of the log when the first page was made."""
    complete: bool = False
    """All pages have come."""
    missing: dict[bytes, int] = field(default_factory=dict)
    """Topics of which something up to this offset was not passed on yet."""


class Verification:
    """The checks of one log, one after the other.

    Attributes:
        wanted: a check is to be made as soon as it may be.
        verified_as_of: everything that was in the log at this time was passed on.
        made: how many were begun.
    """

    def __init__(self, chain: OffsetChain, now: float) -> None:
        self.wanted = True
        self.verified_as_of = float("-inf")
        self.made = 0
        self._chain = chain
        self._check: _Check | None = None
        self._not_before = now
        self._demand = float("-inf")
        self._awaited = False

    @property
    def verified(self) -> bool:
        """Whether a check was ever completed."""
        return self.verified_as_of > float("-inf")

    def demand(self, since: float) -> None:
        """The merge wants this log verified as of `since` or later."""
        self._demand = max(self._demand, since)

    def question(self, now: float, live_at: float) -> int | None:
        """From which offset on to ask what there is; None: nothing is to be asked now.

        Args:
            now: the present time.
            live_at: when the fan-out has said something last.
        """
        check = self._check
        if check is None:
            silent = now - live_at >= END_SILENT_SECONDS
            if not (silent or self._is_wanted()) or now < self._not_before:
                return None
            self.made += 1
            self.wanted = False
            self._not_before = now + (SILENT_CHECK_SECONDS if silent else CHECK_SECONDS)
            check = self._check = _Check(now, self._chain.verified or 0)
        return None if check.complete else check.since

    def answered(self, answer: Heads) -> None:
        """Take a page of what there is."""
        check = self._check
        if check is None:
            return
        if check.end < 0:
            check.end = answer.end
        for topic, head in answer.heads:
            if not self._chain.has(topic, head):
                check.missing[topic] = head
        check.complete = not answer.more or not answer.heads
        if answer.heads:
            check.since = answer.heads[-1][1] + 1

    def give_up(self) -> None:
        """The question will not be answered: ask again."""
        self._check = None
        self.wanted = True

    def resolve(self, now: float, live_at: float, position: int) -> None:
        """Fetch what is missing; note when nothing is missing any more.

        Args:
            now: the present time.
            live_at: when the fan-out has said something last.
            position: the highest offset that the fan-out is known to have passed.
        """
        check = self._check
        if check is None or not check.complete:
            return
        silent = now - live_at >= END_SILENT_SECONDS
        self._awaited = False
        for topic, head in list(check.missing.items()):
            if self._chain.has(topic, head):
                del check.missing[topic]
            elif head <= position or silent or topic in self._chain.repairs:
                self._chain.need(topic, head)
            else:
                self._awaited = True
        if not check.missing:
            self._chain.advance(check.end)
            self.verified_as_of = check.sent_at
            self._check = None

    def next_deadline(self, live_at: float) -> float | None:
        """When something is to be asked, or fetched, if nothing happens before."""
        if self._check is None:
            return max(0.0 if self._is_wanted() else live_at + END_SILENT_SECONDS, self._not_before)
        return live_at + END_SILENT_SECONDS if self._awaited else None

    def _is_wanted(self) -> bool:
        return self.wanted or self._demand > self.verified_as_of
