"""A batch that is sealed: in a send window, or acknowledged and kept for a while. Pure."""

from __future__ import annotations

from roq.client.publish.receipt import Receipt
from roq.client.publish.topics import Stream


class PendingBatch:
    """A batch as it travels, and what the publisher owes for it."""

    __slots__ = (
        "acked_at",
        "count",
        "data",
        "epoch",
        "first_sequence",
        "link_number",
        "owed",
        "receipt",
        "sealed_at",
        "sent",
        "spare",
        "strayed",
        "stream",
        "void",
    )

    def __init__(
        self,
        stream: Stream,
        data: bytes,
        *,
        link_number: int,
        first_sequence: int,
        count: int,
        receipt: Receipt,
        sealed_at: float,
    ) -> None:
        self.stream = stream
        self.data = data
        self.link_number = link_number
        self.first_sequence = first_sequence
        self.count = count
        self.receipt = receipt
        self.sealed_at = sealed_at
        self.acked_at = 0.0
        self.epoch = 0
        """Of the link that it was acknowledged on."""
        self.sent = False
        self.strayed = False
        """It left on another link before: a copy may still arrive there."""
        self.spare = False
        """Stands for one that others send; only for its number, which the exchange may have."""
        self.void = False
        self.owed = True
        """Counts in the window; False for what was acknowledged before and is only replayed."""


def age(sealed: PendingBatch) -> tuple[float, int]:
    """Orders batches as they were sealed."""
    return sealed.sealed_at, sealed.first_sequence
