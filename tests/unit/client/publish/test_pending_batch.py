"""Batches that are sealed, in order."""

from __future__ import annotations

from publisher_script import NoWaiter

from roq.client.publish.pending_batch import PendingBatch, age
from roq.client.publish.receipt import Receipt
from roq.client.publish.topics import Stream


def sealed(at: float, first: int) -> PendingBatch:
    return PendingBatch(
        Stream("t", b"t"), b"", link_number=9, first_sequence=first, count=1,
        receipt=Receipt(NoWaiter()), sealed_at=at,
    )  # fmt: skip


def test_batches_are_ordered_by_when_they_were_sealed_and_then_by_sequence() -> None:
    late, early, second = sealed(2.0, 0), sealed(1.0, 5), sealed(2.0, 1)
    assert sorted([second, late, early], key=age) == [early, late, second]


def test_what_was_just_sealed_is_owed_and_was_never_sent() -> None:
    batch = sealed(1.0, 0)
    assert batch.owed
    assert not any((batch.sent, batch.strayed, batch.spare, batch.void))
