"""What waits for the user."""

import tracemalloc
from itertools import count

import pytest

from roq.client.subscribe.receive_queue import ReceiveQueue
from roq.errors import Closed
from roq.model import PublisherId
from roq.read.message import Batch, Gap


def batch(size: int = 10) -> Batch:
    return Batch([b"x"], "t", PublisherId(b"p" * 16), 0, 0, size)


def test_a_user_who_falls_behind_is_noticed_and_let_go_once_everything_is_taken() -> None:
    receive_queue = ReceiveQueue(bytes_max=10_000)
    receive_queue.put([batch(6_000)])
    assert not receive_queue.full
    receive_queue.put([batch(6_000)])
    assert receive_queue.full
    receive_queue.items.clear()
    receive_queue.put([batch(6_000)])
    assert not receive_queue.full


def test_many_small_batches_are_bounded_as_well() -> None:
    receive_queue = ReceiveQueue(batches_max=3)
    receive_queue.put([batch(0)] * 3)
    assert not receive_queue.full
    receive_queue.put([batch(0)])
    assert receive_queue.full


def test_reports_and_the_end_keep_their_place() -> None:
    ready: list[bool] = []
    receive_queue = ReceiveQueue()
    receive_queue.on_ready = lambda: ready.append(True)
    first, gap, error = batch(), Gap(topic="t", text="gone"), Closed("over")
    receive_queue.put([first])
    receive_queue.put_gap(gap)
    receive_queue.end(error)
    assert list(receive_queue.items) == [first, gap, error]
    assert len(ready) == 3


def test_reports_nobody_reads_are_bounded() -> None:
    receive_queue = ReceiveQueue()
    for _ in range(3_000):
        receive_queue.put_gap(Gap(topic="t", text="gone"))
    assert len(receive_queue.items) == 1_000


def test_reading_goes_on_when_an_eighth_was_taken() -> None:
    receive_queue = ReceiveQueue(bytes_max=2_600)
    receive_queue.put([batch(1) for _ in range(8)])
    assert receive_queue.full
    receive_queue.stop()
    assert not receive_queue.eased
    del receive_queue.items[0]
    assert receive_queue.eased
    assert not receive_queue.full
    receive_queue.put([batch(1)])
    assert receive_queue.full


@pytest.mark.parametrize("size", [2, 10, 100, 1_000])
def test_what_counts_is_the_memory_that_messages_take(size: int) -> None:
    bytes_max = 2_000_000
    numbers = count(256)
    tracemalloc.start()
    try:
        receive_queue = ReceiveQueue(bytes_max=bytes_max)
        while not receive_queue.full:
            payloads = [(next(numbers) % 65_536).to_bytes(2) + bytes(size - 2) for _ in range(500)]
            wire = 80 + 500 * (size + 2)
            receive_queue.put([Batch(payloads, "t", PublisherId(b"p" * 16), 0, 0, wire)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.7 * bytes_max < taken < 1.5 * bytes_max
