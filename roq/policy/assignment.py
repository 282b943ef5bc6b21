"""Which exchange gets a publisher that arrives: the known rule, with rates instead of totals.

No exchange above a tenth of the limit (cold start): nothing is known about the load yet, so the one
with the fewest publishers. Otherwise: the one with the lowest throughput. A newcomer is counted at
once, so a crowd that arrives between two reports spreads out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

COLD_START_FRACTION: Final = 0.10
"""Of the limit of one exchange; below it throughput says nothing yet."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An exchange that could take a publisher.

    Attributes:
        number: of the exchange in its queue.
        epoch: of the exchange's process.
        publishers: how many publish there, those included that were sent there just now.
        throughput: payload bytes per minute that it takes in.
    """

    number: int
    epoch: int
    publishers: int
    throughput: float

    @property
    def key(self) -> tuple[int, int]:
        """What publishers call an exchange that failed: (number, epoch)."""
        return (self.number, self.epoch)


def assign(
    candidates: Sequence[Candidate], limit: float, failed: Collection[tuple[int, int]] = ()
) -> Candidate | None:
    """Choose the exchange for one newcomer.

    Args:
        candidates: all exchanges that serve.
        limit: of one exchange, payload bytes per minute.
        failed: exchanges, as (number, epoch), that this publisher could not reach or has lost.

    Returns:
        The exchange, or None when there is none but failed ones. Equal ones are decided by the
        other figure and then by the number, so the same snapshot always gives the same answer.
    """
    usable = [candidate for candidate in candidates if candidate.key not in failed]
    if not usable:
        return None
    if is_cold(candidates, limit):
        return min(usable, key=lambda each: (each.publishers, each.throughput, each.number))
    return min(usable, key=lambda each: (each.throughput, each.publishers, each.number))


def is_cold(candidates: Sequence[Candidate], limit: float) -> bool:
    """Whether no exchange carries enough for its throughput to mean anything."""
    return all(each.throughput <= COLD_START_FRACTION * limit for each in candidates)


def expected_load(candidates: Sequence[Candidate]) -> float:
    """Bytes per minute that a newcomer will probably bring: the mean of those that are there."""
    publishers = sum(each.publishers for each in candidates)
    return sum(each.throughput for each in candidates) / publishers if publishers else 0.0


def counted(candidate: Candidate, load: float) -> Candidate:
    """The exchange as it will be with one more publisher that brings `load` bytes per minute."""
    return replace(
        candidate, publishers=candidate.publishers + 1, throughput=candidate.throughput + load
    )
