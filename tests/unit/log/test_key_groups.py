"""Which member gets which keys, and when that changes."""

from __future__ import annotations

from roq.log.key_groups import YES, KeyGroups

NAMES = [bytes((number,)) * 16 for number in range(1, 9)]


def lanes(table: bytes) -> set[int]:
    return {lane for lane, allowed in enumerate(table) if allowed == YES[0]}


def made(count: int) -> KeyGroups:
    groups = KeyGroups()
    for name in NAMES[:count]:
        groups.join(name)
    return groups


def test_each_key_group_is_one_members_and_they_share_them_about_evenly() -> None:
    groups = made(8)
    shares = [lanes(groups.allowed(name)) for name in NAMES]
    assert set().union(*shares) == set(range(256))
    assert sum(map(len, shares)) == 256
    assert all(16 <= len(share) <= 52 for share in shares)


def test_who_comes_or_goes_changes_nothing_between_the_others() -> None:
    groups = made(7)
    before = {name: lanes(groups.allowed(name)) for name in NAMES[:7]}
    groups.join(NAMES[7])
    for name in NAMES[:7]:
        assert lanes(groups.allowed(name)) <= before[name]
    groups.leave(NAMES[7])
    assert {name: lanes(groups.allowed(name)) for name in NAMES[:7]} == before
    groups.leave(NAMES[0])
    for name in NAMES[1:7]:
        assert lanes(groups.allowed(name)) >= before[name]


def test_exchanges_that_saw_members_in_another_order_agree() -> None:
    one, two = KeyGroups(), KeyGroups()
    for name in NAMES[:4]:
        one.join(name)
    for name in reversed(NAMES[:4]):
        two.join(name)
    assert [one.allowed(name) for name in NAMES[:4]] == [two.allowed(name) for name in NAMES[:4]]


def test_a_key_group_moves_when_nothing_of_it_is_out() -> None:
    groups = made(1)
    groups.taken(NAMES[0], {1, 2})
    groups.taken(NAMES[0], {1})
    before = lanes(groups.allowed(NAMES[0]))
    for name in NAMES[1:]:
        groups.join(name)
    moving = before - lanes(groups.allowed(NAMES[0]))
    lane = next(lane for lane in (1, 2) if lane in moving)
    others = [lanes(groups.allowed(name)) for name in NAMES[1:]]
    assert not any(lane in each for each in others), "nobody gets more of it"
    assert lane in lanes(groups.holdable(NAMES[0], [lane]))
    assert lane not in lanes(groups.holdable(NAMES[1], [lane]))
    if lane == 1:
        assert not groups.over({1})
    assert groups.over({lane})
    assert sum(lane in lanes(groups.allowed(name)) for name in NAMES[1:]) == 1


def test_who_goes_on_with_what_is_to_be_another_members_keeps_it_until_it_is_done() -> None:
    groups = made(2)
    lane = min(lanes(groups.allowed(NAMES[0])))
    groups.taken(NAMES[1], {lane})
    assert lane not in lanes(groups.allowed(NAMES[0])) | lanes(groups.allowed(NAMES[1]))
    groups.check([(NAMES[1], {lane})])
    assert groups.over({lane})
    assert lane in lanes(groups.allowed(NAMES[0]))
    groups.clear()
    assert lanes(groups.allowed(NAMES[0])) == set()
