"""How long each `publish()` took, and when: a file of pairs of numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self


class Timings:
    """Moments (seconds on the monotonic clock, one for all processes) and durations (seconds)."""

    def __init__(self) -> None:
        self._pairs = array("d")

    def add(self, began: float, took: float) -> None:
        """Note one call."""
        self._pairs.extend((began, took))

    def __len__(self) -> int:
        return len(self._pairs) // 2

    def within(self, windows: Iterable[tuple[float, float]]) -> Iterator[float]:
        """Durations of the calls that began in one of these spans of time."""
        spans = sorted(windows)
        index = 0
        for when, took in zip(self._pairs[::2], self._pairs[1::2], strict=True):
            while index < len(spans) and spans[index][1] < when:
                index += 1
            if index == len(spans):
                return
            if spans[index][0] <= when:
                yield took

    def append_to(self, path: Path) -> None:
        """Write what was noted to the end of a file, and begin anew."""
        if self._pairs:
            with path.open("ab") as file:
                self._pairs.tofile(file)
            self._pairs = array("d")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file, as far as whole pairs are in it; there may be none yet."""
        timings = cls()
        data = path.read_bytes() if path.exists() else b""
        pair = 2 * timings._pairs.itemsize
        timings._pairs.frombytes(data[: len(data) // pair * pair])
        return timings


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that `percent` of them do not exceed; 0.0 if there is none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
