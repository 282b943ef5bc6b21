"""A line with room for everybody: who asks for much leaves places, and waits longest."""

import pytest

from roq.gcm.change.fairness import FairLine, has_share


def filled(most: int, **wanted: int) -> FairLine[str]:
    line: FairLine[str] = FairLine(most)
    for party, times in wanted.items():
        for number in range(times):
            line.put(party, f"{party}{number}")
    return line


def test_one_party_alone_may_have_half_of_the_places() -> None:
    line = filled(8, a=20)
    assert list(line) == ["a0", "a1", "a2", "a3"]


def test_each_one_who_comes_later_may_have_half_of_what_is_left() -> None:
    line = filled(8, a=20, b=20, c=20)
    assert list(line) == ["a0", "a1", "a2", "a3", "b0", "b1", "c0"]
    assert line.put("d", "d0")
    assert not line.put("e", "e0"), "it is full"


def test_all_are_served_in_turn_and_each_in_its_own_order() -> None:
    line = filled(16, a=3, b=1, c=2)
    assert [line.take() for _ in range(len(line))] == ["a0", "b0", "c0", "a1", "c1", "a2"]
    with pytest.raises(IndexError):
        line.take()


def test_nothing_is_remembered_of_those_who_do_not_wait() -> None:
    line = filled(8, a=2, b=1)
    assert line.remove("a", "a0")
    assert not line.remove("a", "a0")
    assert not line.remove("z", "a1")
    line.take()
    line.take()
    assert (len(line), line._parties) == (0, {})


@pytest.mark.parametrize(("held", "taken", "room"), [(0, 7, True), (0, 8, False), (4, 4, False)])
def test_nobody_holds_more_places_than_are_left(held: int, taken: int, *, room: bool) -> None:
    assert has_share(held, taken, 8) is room
