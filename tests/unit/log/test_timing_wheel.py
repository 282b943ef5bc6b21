"""What waits is given out in its time, whatever its time is."""

from __future__ import annotations

import random

import pytest

from roq.errors import RemoteProtocolError
from roq.log import timing_wheel
from roq.log.timing_wheel import ROW_BYTES, SECOND, Row, TimingWheel

NOW = 1_700_000_000 * SECOND


def row(number: int, seconds: float) -> Row:
    due_us = NOW + int(seconds * SECOND)
    return Row(due_us, number * 10, number % 7, number, number.to_bytes(8, "big"))


def drain(pending: TimingWheel, until_us: int) -> list[Row]:
    found: list[Row] = []
    while rows := pending.advance(until_us):
        found += rows
        pending.check()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_wheel, "STEP_ROWS", 7)
    chance = random.Random(seed)
    pending, model, now_us = TimingWheel(), dict[int, Row](), NOW
    for number in range(300):
        seconds = chance.choice([-5.0, 1.0, 30.0, 200.0, 8_000.0, 90_000.0]) * chance.random()
        if chance.random() < 0.7:
            model[number] = row(number, (now_us - NOW) / SECOND + seconds)
            pending.add(model[number], now_us)
        elif model and chance.random() < 0.5:
            gone = model.pop(chance.choice(list(model)))
            assert pending.find(gone.id) == gone
            pending.settle({gone.place}, [gone.due_us] if chance.random() < 0.5 else None)
            assert pending.find(gone.id) is None
        else:
            now_us += int(chance.choice([1.0, 60.0, 5_000.0]) * SECOND)
            # Rows of a second that has begun may come, those that are due have to.
            found = drain(pending, now_us)
            for each in found:
                assert model.pop(int.from_bytes(each.id, "big")) == each
                assert each.due_us < now_us + SECOND
                pending.forget(each)
            assert all(each.due_us >= now_us - now_us % SECOND for each in model.values())
        pending.check()
        assert sorted(pending) == sorted(model.values())
        soonest = sorted(model.values())[:5]
        assert [each.due_us for each in pending.soonest(5)] == [each.due_us for each in soonest]
        assert (pending.oldest is None) == (not model)
        assert (pending.count, pending.bytes) == (
            len(model), sum(each.size for each in model.values()),
        )  # fmt: skip
    again = TimingWheel()
    again.unpack(pending.pack(), now_us)
    again.check()
    assert sorted(again) == sorted(model.values())


def test_what_lies_below_an_offset_is_found() -> None:
    pending = TimingWheel()
    for number in range(1_000):
        pending.add(row(number, number * 50.0), NOW)
    assert sorted(each.offset for each in pending.below(40, 99)) == [0, 10, 20, 30]
    assert len(pending.below(5_000, 99)) == 99
    assert pending.oldest == 0
    pending.settle({each.place for each in pending if each.offset < 5_000})
    assert pending.oldest == 4_096


def test_a_row_takes_32_bytes() -> None:
    pending = TimingWheel()
    given = [row(1, 5.0), row(2, 9.0)]
    pending.add(given[0], NOW)
    assert (ROW_BYTES, len(pending.pack(given[1:]))) == (32, 64)
    with pytest.raises(RemoteProtocolError):
        pending.unpack(b"x" * 33, NOW)


def test_an_id_is_not_found_across_two_rows() -> None:
    pending = TimingWheel()
    pending.add(row(1, 5.0), NOW)
    packed = pending.pack()
    assert pending.find(packed[3:11]) is None
