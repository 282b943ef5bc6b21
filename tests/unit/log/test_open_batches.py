"""What a group has begun with, and not done."""

from __future__ import annotations

from roq.log.group_changes import Mask
from roq.log.open_batches import OpenBatches


def test_the_base_follows_what_is_done() -> None:
    batches = OpenBatches(5)
    for bits in (0b11, 0b0, 0b1):
        batches.open(2, bits)
    assert (batches.base, batches.next, batches.size(5), batches.size(6)) == (5, 8, 2, 0)
    assert batches.finish(5, 0b01)
    assert batches.done(5) == Mask(5, b"\x01")
    batches.moved = False
    assert batches.finish(5, 0b10)
    assert (batches.base, batches.moved) == (7, True), "over what was nobody's"
    assert not batches.finish(5, 0b10)
    batches.check()


def test_what_the_log_has_left_out_takes_no_place() -> None:
    batches = OpenBatches(0)
    batches.open(1, 1)
    batches.leap(1_000_000)
    batches.open(1, 1)
    assert (batches.span, batches.next) == (2, 1_000_001)
    assert list(batches.offsets()) == [0, 1_000_000]
    batches.check()
    batches.finish(0, 1)
    assert (batches.base, batches.span) == (1_000_000, 1)


def test_what_has_left_the_log_is_not_open() -> None:
    batches = OpenBatches(0)
    for _ in range(4):
        batches.open(1, 1)
    batches.leap(10)
    assert batches.drop_below(3) == 3
    assert (batches.base, list(batches.bits)) == (3, [3])
    batches.check()
    assert batches.drop_below(12) == 3, "one was open, and two were not looked at"
    assert (batches.base, batches.next, batches.span) == (12, 12, 0)
    batches.restart(4)
    assert (batches.base, batches.next) == (4, 4)
