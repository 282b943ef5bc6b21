"""Requests of a service by priority: which goes out first, and in how many leases."""

from __future__ import annotations

import pytest
from paper_service import Desk

from roq.log.free_messages import FreeMessages
from roq.log.leases import Lease, runs_of
from roq.log.service_group import ServiceGroup
from roq.protocol.requesting import (
    Answer,
    Begun,
    Position,
    RequestState,
)


def places(leases: list[Lease]) -> list[tuple[int, int]]:
    """Offset and messages of each, a bit for each message."""
    return [(lease.offset, lease.open << lease.first) for lease in leases]


def test_of_what_waits_for_an_instance_higher_priorities_go_first() -> None:
    desk = Desk()
    for ranks in (b"", b"\0", b"\0\5\0", b"\x09", b""):
        desk.request(max(1, len(ranks)), ranks=ranks)
    desk.pass_time(0.5)
    desk.join()
    assert places(desk.leases()) == [
        (3, 1), (2, 0b010), (0, 1), (1, 1), (2, 0b101), (4, 1)
    ]  # fmt: skip


def test_a_priority_that_comes_later_overtakes_what_waits_already() -> None:
    desk = Desk()
    desk.request()
    desk.request()
    desk.request()
    member = desk.join(credit=1)
    assert places(desk.leases()) == [(0, 1)]
    desk.request(ranks=b"\1")
    desk.pass_time(0.5, member)
    member.granted += 1
    assert places(desk.leases()) == [(3, 1)]
    member.granted += 5
    assert places(desk.leases()) == [(1, 1), (2, 1)]
    desk.request()
    desk.request(ranks=b"\2")
    assert places(desk.leases()) == [(5, 1), (4, 1)], "from now on at once"


def test_lower_priorities_get_their_turn() -> None:
    desk = Desk()
    desk.request()
    desk.request()
    for _ in range(30):
        desk.request(ranks=b"\2")
    desk.pass_time(0.5)
    member = desk.join(credit=0)
    got = []
    for _ in range(32):
        member.granted += 1
        got += places(desk.leases())
    low = [at for at, (offset, _) in enumerate(got) if offset < 2]
    assert low == [9, 19], "one of ten"


@pytest.mark.parametrize("ranks", [b"\0\1", bytes(range(10))])
def test_priorities_that_alternate_in_a_batch_send_it_hardly_more_often(ranks: bytes) -> None:
    """Each part that goes out carries the whole batch."""
    desk = Desk()
    desk.request(100, ranks=ranks * (100 // len(ranks)))
    desk.pass_time(0.5)
    member = desk.join(credit=20)
    parts: list[Lease] = []
    while some := desk.leases():
        parts += some
        for lease in some:
            member.granted += lease.open.bit_count()
            for first, count in runs_of(lease.open << lease.first):
                desk.group.begin(member, Begun(lease.number, first, count))
                desk.group.answer(member, Answer(lease.number, first, more=[b""] * (count - 1)))
        desk.group.check()
    assert desk.group.open_count == 0
    assert len(parts) <= 100 // 20 + len(set(ranks))


def test_of_a_batch_with_all_priorities_one_of_ten_is_a_lower_one() -> None:
    desk = Desk()
    desk.request(400, ranks=b"\0\1" * 200)
    desk.pass_time(0.5)
    member = desk.join(credit=0)
    got = []
    for _ in range(200):
        member.granted += 1
        got += [lease.first % 2 for lease in desk.leases()]
    low = [at for at, high in enumerate(got) if not high]
    assert low == list(range(9, 200, 10))


def test_an_instance_gets_all_that_it_takes_though_higher_ones_may_come() -> None:
    desk = Desk()
    desk.request(ranks=b"\1")
    for _ in range(5):
        desk.request()
    member = desk.join(credit=4)
    member.window = 4
    assert len(desk.leases()) == 4


def test_what_comes_back_keeps_its_priority() -> None:
    desk = Desk(confirm_within=1.0, send_attempts=3)
    desk.request(ranks=b"\3")
    desk.request()
    silent = desk.join(credit=2)
    assert places(desk.leases()) == [(0, 1), (1, 1)]
    desk.pass_time(3.0, silent)
    assert desk.group.state_of(Position(0, 0)) is RequestState.ACCEPTED
    other = desk.join("other", credit=1)
    assert places(desk.leases()) == [(0, 1)]
    assert desk.group.begin(other, Begun(next(iter(other.leases)), 0, 1))
    assert desk.group.cancel(Position(1, 0), late=False)
    assert desk.group.state_of(Position(1, 0)) is RequestState.CANCELLED


def test_another_process_hands_out_by_priority_as_well() -> None:
    desk = Desk()
    desk.request()
    desk.request(2, ranks=b"\0\4")
    desk.join()
    desk.leases()
    after: ServiceGroup[bytes] = ServiceGroup("s", desk.log, desk.group.settings, 1, 0, 0.0)
    after.apply(desk.group.snapshot())
    desk.group = after
    desk.pass_time(0.5)
    desk.join("new")
    assert places(desk.leases()) == [(1, 0b10), (0, 1), (1, 0b01)]


def test_a_request_that_its_batch_does_not_have_is_never_known_whatever_the_priorities() -> None:
    desk = Desk()
    desk.request(3, ranks=b"\0\5\0")
    desk.pass_time(0.5)
    assert desk.group.view(Position(0, 3)).state is RequestState.NEVER
    assert desk.group.view(Position(0, 2)).state is RequestState.ACCEPTED


def test_requests_without_priorities_are_not_ranked() -> None:
    desk = Desk()
    desk.request(3, ranks=b"\0\0\0")
    desk.join(credit=0)
    assert desk.leases() == []
    desk.pass_time(0.5)
    assert isinstance(desk.group._free, FreeMessages)
