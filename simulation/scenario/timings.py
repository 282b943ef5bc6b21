"""How long each `publish()` took, and when: two arrays of numbers in a file."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self


class Timings:
    """Moments (seconds on the monotonic clock, one for all processes) and durations (seconds)."""

    def __init__(self) -> None:
        self._when = array("d")
        self._took = array("f")

    def add(self, began: float, took: float) -> None:
        """Note one call."""
        self._when.append(began)
        self._took.append(took)

    def __len__(self) -> int:
        return len(self._when)

    def within(self, windows: Iterable[tuple[float, float]]) -> Iterator[float]:
        """Durations of the calls that began in one of these spans of time."""
        spans = sorted(windows)
        index = 0
        for when, took in zip(self._when, self._took, strict=True):
            while index < len(spans) and spans[index][1] < when:
                index += 1
            if index == len(spans):
                return
            if spans[index][0] <= when:
                yield took

    def save(self, path: Path) -> None:
        """Write a file."""
        path.write_bytes(self._when.tobytes() + self._took.tobytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read one."""
        data = path.read_bytes()
        timings = cls()
        count = len(data) // (timings._when.itemsize + timings._took.itemsize)
        split = count * timings._when.itemsize
        timings._when.frombytes(data[:split])
        timings._took.frombytes(data[split:])
        return timings


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that `percent` of them do not exceed; 0.0 if there is none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
