"""The counters of one subscriber: pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """What has happened since the start, in messages unless the name says otherwise."""

    delivered: int = 0
    duplicates: int = 0
    """Batches below the expected sequence: replays."""
    before_start: int = 0
    void: int = 0
    lost: int = 0
    corrupt: int = 0
    """Batches whose checksum or body is wrong; their messages are in `lost`."""
    stubbed: int = 0
    """Batches that were put aside for want of memory."""
    streams_forgotten: int = 0
