"""The counters of one publisher. Pure."""

from __future__ import annotations


class Tally:
    """What one publisher counts, over all of its links.

    Attributes:
        acked_messages, acked_batches: accepted by an exchange, once each.
        replayed_batches: sent again.
        failed_messages: given up, certainly not delivered.
        unknown_messages: given up after they had left.
        last_reason: why messages were given up last.
        connections: opened.
        resets, refused, forgotten, malformed: what exchanges have said.
    """

    __slots__ = (
        "acked_batches",
        "acked_messages",
        "connections",
        "failed_messages",
        "forgotten",
        "last_reason",
        "malformed",
        "refused",
        "replayed_batches",
        "resets",
        "unknown_messages",
    )

    def __init__(self) -> None:
        self.acked_messages = 0
        self.acked_batches = 0
        self.replayed_batches = 0
        self.failed_messages = 0
        self.unknown_messages = 0
        self.last_reason = ""
        self.connections = 0
        self.resets = 0
        self.refused = 0
        self.forgotten = 0
        self.malformed = 0
