"""What waits for the user."""

import tracemalloc
from itertools import count

import pytest

from roq.client.handoff import Handoff
from roq.client.message import Batch, Gap
from roq.errors import Closed
from roq.model import PublisherId


def batch(size: int = 10) -> Batch:
    return Batch([b"x"], "t", PublisherId(b"p" * 16), 0, 0, size)


def test_a_user_who_falls_behind_is_noticed_and_let_go_once_everything_is_taken() -> None:
    handoff = Handoff(bytes_max=10_000)
    handoff.put([batch(6_000)])
    assert not handoff.full
    handoff.put([batch(6_000)])
    assert handoff.full
    handoff.items.clear()
    handoff.put([batch(6_000)])
    assert not handoff.full


def test_many_small_batches_are_bounded_as_well() -> None:
    handoff = Handoff(batches_max=3)
    handoff.put([batch(0)] * 3)
    assert not handoff.full
    handoff.put([batch(0)])
    assert handoff.full


def test_reports_and_the_end_keep_their_place() -> None:
    ready: list[bool] = []
    handoff = Handoff()
    handoff.on_ready = lambda: ready.append(True)
    first, gap, error = batch(), Gap(topic="t", text="gone"), Closed("over")
    handoff.put([first])
    handoff.put_gap(gap)
    handoff.end(error)
    assert list(handoff.items) == [first, gap, error]
    assert len(ready) == 3


def test_reports_nobody_reads_are_bounded() -> None:
    handoff = Handoff()
    for _ in range(3_000):
        handoff.put_gap(Gap(topic="t", text="gone"))
    assert len(handoff.items) == 1_000


def test_reading_goes_on_when_an_eighth_was_taken() -> None:
    handoff = Handoff(bytes_max=2_600)
    handoff.put([batch(1) for _ in range(8)])
    assert handoff.full
    handoff.stop()
    assert not handoff.eased
    del handoff.items[0]
    assert handoff.eased
    assert not handoff.full
    handoff.put([batch(1)])
    assert handoff.full


@pytest.mark.parametrize("size", [2, 10, 100, 1_000])
def test_what_counts_is_the_memory_that_messages_take(size: int) -> None:
    bytes_max = 2_000_000
    numbers = count(256)
    tracemalloc.start()
    try:
        handoff = Handoff(bytes_max=bytes_max)
        while not handoff.full:
            payloads = [(next(numbers) % 65_536).to_bytes(2) + bytes(size - 2) for _ in range(500)]
            wire = 80 + 500 * (size + 2)
            handoff.put([Batch(payloads, "t", PublisherId(b"p" * 16), 0, 0, wire)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.7 * bytes_max < taken < 1.5 * bytes_max
