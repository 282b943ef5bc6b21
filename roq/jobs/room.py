"""How long runs take, and how much an instance may claim for that: its threads, and what it may
have wait for them. Pure.

Jobs of a type that take some milliseconds are claimed ahead: each would wait for a commit. A job
that may take longer is claimed when there is a thread for it, whatever the others of its instance
take: nobody else could run it, and its time would pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from roq.jobs.rows import Want
from roq.jobs.states import SHORT_SECONDS, RunEnd, claim_ahead

_UNKNOWN_SECONDS: Final = 0.1
_SMOOTHING: Final = 0.1
BOUNDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0)
"""Seconds; of a bucket what took no longer."""


class JobPlaces(NamedTuple):
    """What an instance has room for now."""

    free: int
    """Threads without a long run; each can have one."""
    short: int = 0
    """Short runs that it has: on those threads, or waiting for one."""


class JobRoom:
    """How long jobs of each type take, and what follows for an instance.

    Args:
        threads: of the instance.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._mean: dict[str, float] = {}

    def ran(self, kind: str, seconds: float) -> None:
        """A run of this type has had a thread for so long."""
        mean = self._mean.get(kind, _UNKNOWN_SECONDS)
        self._mean[kind] = mean + _SMOOTHING * (seconds - mean)

    def places(self, runs: Iterable[tuple[str, float]]) -> JobPlaces:
        """What there is room for, from the type of each run that is there, and for how many
        seconds it has had a thread."""
        long = short = 0
        for kind, seconds in runs:
            if seconds < SHORT_SECONDS and self._mean.get(kind, _UNKNOWN_SECONDS) < SHORT_SECONDS:
                short += 1
            else:
                long += 1
        return JobPlaces(max(0, self._threads - long), short)

    def ahead(self, kind: str, places: JobPlaces) -> int:
        """How many jobs of a type may wait for the free threads."""
        return claim_ahead(places.free, self._mean.get(kind, _UNKNOWN_SECONDS))


def chosen(
    jobs: Sequence[tuple[int, int, str]],
    wants: Mapping[str, Want],
    most: Mapping[str, int],
    places: JobPlaces,
) -> list[tuple[int, int, str]]:
    """Which jobs (id, token, type) an instance takes of those that are offered in order.

    Args:
        jobs: that are offered.
        wants: by type; others are not taken.
        most: by type, how many.
        places: that the instance has.
    """
    left = dict(most)
    free, short = places
    taken = []
    for job in jobs:
        kind = job[2]
        if kind not in wants or left[kind] <= 0:
            continue
        ahead = wants[kind].ahead
        if ahead == 0 and free > 0:
            free -= 1
        elif ahead > 0 and short < free + ahead:
            short += 1
        else:
            continue
        left[kind] -= 1
        taken.append(job)
    return taken


class RunTimes:
    """Counters since the start of the instance.

    Attributes:
        ends: (type, end) → runs.
        buckets: type → runs by `BOUNDS`, and those that took longer than the last.
        seconds: type → of all its runs.
    """

    def __init__(self) -> None:
        self.ends: dict[tuple[str, RunEnd], int] = {}
        self.buckets: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}

    def ended(self, kind: str, end: RunEnd, seconds: float | None) -> None:
        """A run has ended, and had a thread for so long; None: for no time."""
        self.ends[kind, end] = self.ends.get((kind, end), 0) + 1
        if seconds is not None:
            # Before its buckets: whoever looks meanwhile asks for the seconds of those.
            self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
            buckets = self.buckets.setdefault(kind, [0] * (len(BOUNDS) + 1))
            buckets[bisect_left(BOUNDS, seconds)] += 1
