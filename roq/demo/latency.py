"""Percentiles of any number of values in bounded memory: counts in buckets that are 2 % wide."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

_STEP: Final = math.log(1.02)
_LEAST: Final = 1e-6


def bucket_of(seconds: float) -> int:
    """The bucket of a value; anything below a microsecond is a microsecond."""
    return int(math.log(max(seconds, _LEAST) / _LEAST) / _STEP)


def middle_of(bucket: int) -> float:
    """Seconds in the middle of a bucket."""
    return _LEAST * math.exp((bucket + 0.5) * _STEP)


class Histogram:
    """Counts of seconds; a percentile is exact to about 1 %."""

    def __init__(self, counts: dict[str, int] | None = None) -> None:
        self._counts: Counter[int] = Counter(
            {int(bucket): count for bucket, count in (counts or {}).items()}
        )

    def add(self, seconds: float, count: int = 1) -> None:
        """Note `count` values; anything below a microsecond is a microsecond."""
        self._counts[bucket_of(seconds)] += count

    def merge(self, other: Histogram) -> None:
        """Take over the values of another one."""
        self._counts.update(other._counts)

    def percentile(self, percent: float) -> float:
        """Seconds that `percent` of the values do not exceed; 0.0 if there is none."""
        rank = math.ceil(len(self) * percent / 100)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return middle_of(bucket)
        return 0.0

    def mean(self) -> float:
        """Seconds; 0.0 if there is none."""
        middles = (middle_of(bucket) * count for bucket, count in self._counts.items())
        return sum(middles) / len(self) if self else 0.0

    def __len__(self) -> int:
        return sum(self._counts.values())

    def counts(self) -> dict[str, int]:
        """As it travels in JSON."""
        return {str(bucket): count for bucket, count in self._counts.items()}
