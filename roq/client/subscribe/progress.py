"""How far a subscriber has read each exchange, and when the monitor is to hear of it at once: pure.

The monitor sends publishers to a new exchange when the subscribers are there, and stops one that it
has emptied when they have read it to its end. Both wait for what is said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roq.model import LogId
from roq.read.reader import Reader

NEWS_SECONDS: Final = 0.5
"""Between two reports that are made at once."""


class Progress:
    """What one subscriber tells about its reading."""

    def __init__(self) -> None:
        self._told: dict[LogId, int] = {}
        self._not_before = float("-inf")

    def is_news(self, readers: Mapping[LogId, Reader], now: float) -> bool:
        """Whether to report now.

        That is when an exchange was verified for the first time, or one that has become quiet was
        verified to its end; and not too often.
        """
        if now < self._not_before or not any(
            reader.verification.verified
            and (source not in self._told or (reader.at_rest and self._told[source] < _end(reader)))
            for source, reader in readers.items()
        ):
            return False
        self._not_before = now + NEWS_SECONDS
        return True

    def report(
        self, readers: Mapping[LogId, Reader], put_aside: Mapping[LogId, int]
    ) -> list[tuple[int, int, int]]:
        """(number, generation, offset below which everything is received or known to be gone).

        Args:
            readers: of all exchanges; those that were never verified are left out.
            put_aside: the lowest offset of each exchange that is to be fetched again.
        """
        self._told = {
            source: _end(reader)
            for source, reader in readers.items()
            if reader.verification.verified
        }
        return [
            (*source, min(end, put_aside.get(source, end))) for source, end in self._told.items()
        ]


def _end(reader: Reader) -> int:
    return reader.chain.verified or 0
