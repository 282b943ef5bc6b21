"""When is a missing message lost? Pure.

A batch above a hole proves that whatever is missing below its *bound*
(`roq.client.subscribe.stream`) was in some log before it. So the hole is lost when every exchange
of the topology was verified as of the batch's arrival and it was nowhere. Some things make that
more careful:

* A striped publisher's batches take several ways at once: of a hole above all bounds nothing is
  known yet. It waits for a batch with a higher FLOOR.
* When an exchange is gone, publishers send again what it had acknowledged, and may append that
  *behind* newer batches. Nothing is lost before they had the time for it, and every exchange was
  verified after that time.
* What is missing below a fence or in a striped stream may lie in an exchange that one has not heard
  of. The monitor must have said since then that there is none. Of a durable queue waiting does not
  end either before the monitor has said so, but for what is older than the start, and while there
  is no room for more to wait.
* An exchange that brought such a batch need not be asked, as long as publishers append in order:
  the chain of offsets shows that it had nothing of the kind before.
* Of a durable queue an exchange that does not answer comes back with its log, and what is missing
  may be in it, also if it has not served since the subscriber began: publishers may reach it where
  the monitor does not. Or it is still with a publisher that could not reach that exchange either:
  what no batch proves has as long again, once all exchanges answer.

Waiting ends after some seconds of active time in any case; for exchanges and the monitor of a
durable queue that do not answer, after `away_seconds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roq.client.subscribe.stream import BOUNDS, Stream
from roq.model import LogId
from roq.timing import AWAY_SECONDS, LOSS_SECONDS, REPLAY_SECONDS, STRIPED_LOSS_SECONDS

_LOOK_SECONDS: Final = 0.00002
"""For each batch that waits: how long it is not looked at again. Many take long to look at."""


class LossRules:
    """Decides what is lost, for all streams of one subscriber.

    Args:
        away_seconds: how long a hole of a durable queue waits for exchanges that do not answer.

    Attributes:
        durable: logs outlive their exchanges.
        wanted: as of when the exchanges should be verified, for what was judged since it was reset;
            None if nothing depends on it.
        doubtful: likewise: something is lost, unless it is at an exchange one has not heard of.
    """

    def __init__(self, away_seconds: float = AWAY_SECONDS) -> None:
        self.durable = False
        self._away_seconds = away_seconds
        self.wanted: float | None = None
        self.doubtful = False
        self._replayed_at = float("-inf")
        self._read_since = float("-inf")
        self._known_at = float("inf")
        self._away_at = float("-inf")

    def topology_known(self, now: float) -> None:
        """The monitor has said which exchanges there are, or that nothing has changed."""
        self._known_at = now

    def replaying(self, now: float) -> None:
        """An exchange has gone, or is the first to come again: publishers are replaying now."""
        self._replayed_at = max(self._replayed_at, now + REPLAY_SECONDS)

    def read_again(self, now: float) -> None:
        """Nobody has read before now, so nobody had the time to bring what is missing."""
        self._read_since = now

    def away(self, now: float) -> None:
        """An exchange of a durable queue does not answer."""
        self._away_at = now

    def over(self, at: float, now: float, verified: Mapping[LogId, float]) -> bool:
        """Whether what was not found in any exchange as of `at` is lost."""
        as_of = max(at, self._replayed_at)
        known = self._known_at >= as_of or not self.durable
        patience = self._patience(LOSS_SECONDS, as_of, verified, known=known)
        if now >= max(at, self._read_since) + patience:
            return True
        at = as_of
        if now < at:
            return False
        if known and min(verified.values(), default=float("-inf")) >= at:
            return True
        self.doubtful |= not known
        self._want(at)
        return False

    def lost_until(
        self, stream: Stream, now: float, verified: Mapping[LogId, float], *, patient: bool = True
    ) -> int | None:
        """The end of what is lost, from the expected sequence on; None: nothing is lost yet.

        Args:
            stream: holds something above its expected sequence.
            now: active time: it must not jump when the process was stopped.
            verified: as of when each exchange of the topology was verified.
            patient: it may wait for a silent monitor: it is not older than the start, and there is
                room for more to wait.
        """
        end = self._searched(stream, now, verified)
        if end is None and self._given_up(stream, now, verified, patient=patient):
            end = stream.held[0].first
        if end is None:
            end = self._searched_elsewhere(stream, now, verified)
        if end is None:
            stream.look_at = now + _LOOK_SECONDS * len(stream.held)
        return end

    def _searched(self, stream: Stream, now: float, verified: Mapping[LogId, float]) -> int | None:
        """All exchanges were looked through; decides most cases at the first batch."""
        as_of = min(verified.values(), default=float("-inf"))
        if _was_elsewhere(stream):
            as_of = min(as_of, self._known_at)
        if now < self._replayed_at or as_of < self._replayed_at:
            return None
        for held in stream.held:
            if held.arrived <= as_of and held.bound > stream.expected:
                return min(held.bound, stream.held[0].first)
        return None

    def _patience(
        self, seconds: float, since: float, verified: Mapping[LogId, float], *, known: bool = True
    ) -> float:
        """How long it is waited: longer for logs that come back and were not read since then.

        Args:
            known: there is no other log in which it may be.
        """
        silent = not known or any(as_of < since for as_of in verified.values())
        return max(seconds, self._away_seconds) if silent and self.durable else seconds

    def _given_up(
        self, stream: Stream, now: float, verified: Mapping[LogId, float], *, patient: bool
    ) -> bool:
        """It has waited for too long, and nothing of its kind has come meanwhile."""
        patience = LOSS_SECONDS
        if now < self._replayed_at or self._is_open(stream):
            patience = STRIPED_LOSS_SECONDS
        # What nothing has proven yet may have been appended anywhere until waiting would end.
        first = stream.held[0].first
        proven = min((held.arrived for held in stream.held if held.bound >= first), default=None)
        oldest = min(held.arrived for held in stream.held)
        as_of = max(oldest + patience if proven is None else proven, self._replayed_at)
        if self.durable and now >= as_of > min(verified.values(), default=as_of):
            self._want(as_of)  # where nothing is published nobody else asks
        known = not (patient and _was_elsewhere(stream)) or self._known_at >= as_of
        self.doubtful |= now >= as_of and not known and self.durable
        patience = self._patience(patience, as_of, verified, known=known)
        since = max(stream.filled_at, self._read_since)
        if proven is None:
            since = max(since, min(self._away_at, oldest + self._away_seconds - patience))
        if since > now - patience:
            return False
        return any(held.arrived <= now - patience for held in stream.held)

    def _is_open(self, stream: Stream) -> bool:
        """What is missing may still be on its way to any exchange."""
        held = stream.held
        return not any(each.bound > stream.expected for each in held) and any(
            each.floored for each in held
        )

    def _searched_elsewhere(
        self, stream: Stream, now: float, verified: Mapping[LogId, float]
    ) -> int | None:
        """All exchanges were looked through but those that have brought what proves the hole."""
        end = min(max(held.bound for held in stream.held), stream.held[0].first)
        if end <= stream.expected:
            return None
        proofs = [held for held in stream.held if held.bound >= end]
        since = max(min(held.arrived for held in proofs), self._replayed_at)
        brought = {held.source for held in proofs}
        if not verified or now < self._replayed_at:
            return None
        known = self._known_at >= since or not _was_elsewhere(stream)
        self.doubtful |= not known
        searched = all(
            as_of >= (self._replayed_at if source in brought else since)
            for source, as_of in verified.items()
        )
        if not searched:
            self._want(since)
        return end if known and searched else None

    def _want(self, since: float) -> None:
        self.wanted = since if self.wanted is None else max(self.wanted, since)


def _was_elsewhere(stream: Stream) -> bool:
    """Whether the publisher was, or is, at another exchange than the one that shows the hole."""
    lowest = stream.held[0]
    return lowest.floored or lowest.kind in BOUNDS
