"""The counters of a publisher."""

from __future__ import annotations

import msgspec


class PublisherStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the publisher was opened, and its present state."""

    messages: int
    """Sealed into batches."""
    batches: int
    acked_messages: int
    acked_batches: int
    failed_messages: int
    """Given up, certainly not delivered."""
    unknown_messages: int
    """Given up after they had left: whether they were delivered is not known."""
    unacked_batches: int
    unacked_bytes: int
    open_batches: int
    replayed_batches: int
    connections: int
    moves: int
    """Exchanges assigned and relocations done, the first assignment included."""
    resets: int
    refused: int
    forgotten: int
    malformed: int
    window_waits: int
    callback_errors: int
    """Callbacks of receipts that have raised."""
    exchange: str
    """Name of the present exchange, or several with commas; empty if there is none."""
    ready: bool
