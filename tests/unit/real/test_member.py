"""What a member of a consumer group writes down of its leases."""

from __future__ import annotations

from random import Random

import pytest

from roq.client.consume.holding import ACKED, GIVEN, KEPT, LOST, RETURNED, Holding, Segment
from roq.client.consume.message import ConsumedBatch, Settlement
from roq.errors import LeaseLost
from roq.model import LogId, PublisherId
from roq.read.message import Batch
from roq.simulation.real import member
from roq.simulation.real.journal import Lease, Record
from roq.simulation.real.member import Member

LOG = LogId(1, 1)


class Paper:
    """A journal that is read at once."""

    def __init__(self) -> None:
        self.records: list[Lease] = []

    def write(self, record: Record) -> None:
        assert isinstance(record, Lease)
        self.records.append(record)

    def take(self) -> list[tuple[str, int, int, int]]:
        found = [(str(each.state), each.first, each.count, each.lease) for each in self.records]
        self.records.clear()
        return found


def held(count: int = 4, first: int = 2) -> Holding:
    batch = Batch([b"x"] * count, "t", PublisherId(b"p" * 16), 40, 0, 9)
    return Holding(LOG, 7, 5, first, 1, batch)


def settle(holding: Holding, index: int, count: int, verdict: Settlement) -> None:
    holding.settle(index, count, ACKED if verdict.acked else RETURNED)


def test_it_says_what_it_holds_and_does_before_it_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "BACK_SHARE", 0.0)
    paper, holding = Paper(), held()
    working = Member(paper, Random(0), {LOG}.__contains__)
    batch = ConsumedBatch(holding, 1, 2, settle)
    monkeypatch.setattr(member, "WORK_SHARE", 1.0)
    low, high = member.WORK_SECONDS
    assert low < working.begin(batch) <= high
    (record,) = paper.records
    assert (record.log, record.offset, record.sequence) == (str(LOG), 7, 41)
    assert paper.take() == [("held", 3, 2, 5)]
    working.end(batch)
    assert paper.take() == [("acked", 3, 2, 0)]
    working.look()
    assert paper.take() == [], "nothing is confirmed yet"
    holding.states[1:3] = bytes((KEPT, KEPT))
    for _ in range(2):
        working.look()
    assert paper.take() == [("kept", 3, 2, 5)], "and only once"


def test_what_is_confirmed_while_it_looks_is_written_down_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "BACK_SHARE", 0.0)
    paper, holding = Paper(), held()
    working = Member(paper, Random(0), {LOG}.__contains__)
    batch = ConsumedBatch(holding, 0, 4, settle)
    working.begin(batch)
    working.end(batch)
    paper.take()
    over = member.Taken.over.fget
    assert over is not None

    def confirmed_after(taken: member.Taken) -> bool:
        found = over(taken)
        holding.states[:] = bytes((KEPT,)) * 4
        return bool(found)

    monkeypatch.setattr(member.Taken, "over", property(confirmed_after))
    working.look()
    working.look()
    assert paper.take() == [("kept", 2, 4, 5)]


def test_what_it_gives_back_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "BACK_SHARE", 1.0)
    paper, holding = Paper(), held()
    working = Member(paper, Random(0), {LOG}.__contains__)
    batch = ConsumedBatch(holding, 0, 4, settle)
    working.begin(batch)
    working.end(batch)
    holding.states[:] = bytes((GIVEN,)) * 4
    working.look()
    assert paper.take() == [("held", 2, 4, 5), ("back", 2, 4, 0)]


def test_it_says_by_which_leases_it_goes_on_and_what_it_has_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "BACK_SHARE", 0.0)
    paper, holding = Paper(), held()

    def lost(*_: object) -> None:
        raise LeaseLost("gone")

    working = Member(paper, Random(0), {LOG}.__contains__)
    batch = ConsumedBatch(holding, 0, 4, lost)
    working.begin(batch)
    holding.segments = [Segment(8, 2, 1), Segment(9, 4, 1)]
    working.look()
    working.end(batch)
    assert paper.take() == [
        ("held", 2, 4, 5), ("resumed", 2, 1, 8), ("resumed", 4, 1, 9), ("acked", 2, 4, 0)
    ]  # fmt: skip
    holding.states[:] = bytes((KEPT, LOST, KEPT, KEPT))
    working.look()
    assert paper.take() == [
        ("kept", 2, 1, 8), ("lost", 3, 1, 0), ("kept", 4, 1, 9), ("kept", 5, 1, 0)
    ]  # fmt: skip


def test_of_an_exchange_that_has_gone_nobody_knows_what_it_has_heard() -> None:
    paper, holding = Paper(), held()
    working = Member(paper, Random(0), set[LogId]().__contains__)
    working.begin(ConsumedBatch(holding, 0, 4, settle))
    holding.states[:] = bytes((KEPT, LOST, LOST, LOST))
    working.look()
    assert paper.take() == [("held", 2, 4, 5), ("kept", 2, 1, 5), ("cut", 3, 3, 5)]
