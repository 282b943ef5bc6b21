"""What a publisher counts, and what it tells of itself."""

from __future__ import annotations

import msgspec

from roq.client.publish.receipt import Outcome, SendStatus


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
    one_way_lost: int
    """Published with `wait=False` and given up, whatever became of them."""
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


class Tally:
    """What one publisher counts, over all of its links.

    Attributes:
        acked_messages, acked_batches: accepted by an exchange, once each.
        replayed_batches: sent again.
        failed_messages: given up, certainly not delivered.
        unknown_messages: given up after they had left.
        one_way_lost: given up, and nobody waited for them.
        last_reason: why messages were given up last.
        fenced: what an exchange has said of a later publisher of the same name; empty: nothing.
        connections: opened.
        resets, refused, forgotten, malformed: what exchanges have said.
    """

    __slots__ = (
        "acked_batches",
        "acked_messages",
        "connections",
        "failed_messages",
        "fenced",
        "forgotten",
        "last_reason",
        "malformed",
        "one_way_lost",
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
        self.one_way_lost = 0
        self.last_reason = ""
        self.fenced = ""
        self.connections = 0
        self.resets = 0
        self.refused = 0
        self.forgotten = 0
        self.malformed = 0

    def give_up(self, messages: int, status: SendStatus, *, one_way: bool = False) -> None:
        """So many messages were not delivered, or it is not known; nobody waits for `one_way`."""
        if one_way:
            self.one_way_lost += messages
            return
        if status.outcome in {Outcome.UNKNOWN, Outcome.FLUSH_TIMEOUT}:
            self.unknown_messages += messages
        else:
            self.failed_messages += messages
        self.last_reason = status.reason
