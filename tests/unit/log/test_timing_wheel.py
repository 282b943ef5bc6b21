"""What waits is given out in its time, whatever its time is."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from roq.errors import RemoteProtocolError
from roq.log import timing_wheel
from roq.log.timing_wheel import ROW_BYTES, SECOND, Row, TimingWheel
from roq.protocol.requesting import DELAYED_FROM

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
            if chance.random() < 0.5:
                pending.remove(gone)
            else:
                pending.settle({gone.place})
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


def test_what_lies_below_an_offset_is_given_out() -> None:
    pending = TimingWheel()
    for number in range(1_000):
        pending.add(row(number, number * 50.0), NOW)
    found = pending.below(40, 99, 1 << 30)
    assert found is not None
    assert sorted(each.offset for each in found) == [0, 10, 20, 30]
    assert (pending.below(40, 99, 1 << 30), pending.count, len(list(pending))) == (None, 1_000, 996)
    pending.put_back(found[0], NOW)
    assert pending.below(40, 99, 1 << 30) == found[:1]
    for each in found:
        pending.put_back(each, NOW)
    assert len(pending.below(5_000, 99, 1 << 30) or ()) == 99
    assert len(pending.below(5_000, 99, 1) or ()) == 1
    pending.settle({each.place for each in pending if each.offset < 5_000})
    pending.check()


@pytest.mark.parametrize("seed", range(20))
def test_a_sweep_misses_nothing_whatever_happens_meanwhile(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_wheel, "STEP_ROWS", 7)
    monkeypatch.setattr(timing_wheel, "SWEEP_ROWS", 7)
    chance = random.Random(seed)
    pending, now_us, rows = TimingWheel(), NOW, dict[int, Row]()
    for number in range(400):
        rows[number] = row(number, chance.choice([40.0, 5_000.0, 20_000.0]) * chance.random())
        pending.add(rows[number], now_us)
    steps = 0
    while (found := pending.below(2_000, 3, 1 << 30)) is not None:
        steps += 1
        assert steps < 5_000
        assert len(found) <= 3
        for each in found:
            if chance.random() < 0.1:
                pending.put_back(each, now_us)
            else:
                pending.forget(rows.pop(int.from_bytes(each.id, "big")))
        if chance.random() < 0.2:
            now_us += 400 * SECOND
            for each in pending.advance(now_us):
                pending.forget(rows.pop(int.from_bytes(each.id, "big")))
        if chance.random() < 0.2 and (rest := list(pending)):
            gone = chance.choice(rest)
            pending.remove(gone)
            del rows[int.from_bytes(gone.id, "big")]
        pending.check()
    assert sorted(pending) == sorted(rows.values())
    assert all(each.offset >= 2_000 for each in pending)


def test_one_of_many_is_listed_and_removed_without_unpacking_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pending, unpacked = TimingWheel(), list[int]()
    rows = [row(number, 36_000 + number % 3_000 / 10) for number in range(20_000)]
    for each in rows:
        pending.add(each, NOW)
    read = timing_wheel._read

    def counted(data: bytes | bytearray) -> Iterator[Row]:
        unpacked.append(len(data) // ROW_BYTES)
        return read(data)

    monkeypatch.setattr(timing_wheel, "_read", counted)
    assert pending.find(rows[7].id) == rows[7]
    pending.remove(rows[7])
    pending.remove(rows[7])
    soonest = pending.soonest(10)
    assert sum(unpacked) < 100
    monkeypatch.undo()
    assert pending.count == 19_999
    assert [each.due_us for each in soonest] == sorted(each.due_us for each in pending)[:10]
    assert rows[7] not in set(pending)
    pending.check()


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


def test_an_id_that_lies_across_every_row_costs_no_look_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pending, looked_at = TimingWheel(), list[int]()
    for number in range(1, 2_000):
        pending.add(row(number, 36_000.0), NOW)
    nothing = row(0, 36_000.0)._replace(id=bytes(8))

    class Counted:
        def unpack_from(self, rows: bytearray, at: int) -> tuple[object, ...]:
            looked_at.append(at)
            return packing.unpack_from(rows, at)

    packing = timing_wheel._ROW
    with monkeypatch.context() as patch:
        patch.setattr(timing_wheel, "_ROW", Counted())
        assert pending.find(nothing.id) is None
    pending.add(nothing, NOW)
    assert pending.find(nothing.id) == nothing
    assert len(looked_at) < 10


def test_a_request_is_found_by_its_id_wherever_it_waits_and_is_appended_again() -> None:
    pending = TimingWheel()
    name = (DELAYED_FROM + 5).to_bytes(8, "big")
    first = Row(NOW + SECOND, 10, 0, 1, name)
    moved = first._replace(offset=90)
    pending.add(first, NOW)
    assert pending.request(name) == 10
    assert drain(pending, NOW + 2 * SECOND) == [first]
    assert pending.request(name) == 10, "also what is given out"
    pending.add(moved, NOW)
    pending.forget(first)
    assert pending.request(name) == 90, "the one that was appended again counts"
    pending.settle({moved.place})
    assert pending.request(name) is None
    pending.add(row(3, 1.0), NOW)
    assert pending.request(row(3, 1.0).id) is None, "it is no request's"
