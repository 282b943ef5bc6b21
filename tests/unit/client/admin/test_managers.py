"""Which configuration manager is asked next."""

from __future__ import annotations

from roq.client.admin.managers import HOPS_MAX, KNOWN_MAX, Managers


def test_all_are_asked_in_turn_before_anybody_waits() -> None:
    managers = Managers(["a", "b", "c"])
    managers.begin()
    assert (managers.address, managers.advance()) == ("a", True)
    assert (managers.address, managers.advance()) == ("b", True)
    assert (managers.address, managers.advance()) == ("c", False)
    assert managers.address == "a"


def test_whoever_has_answered_is_asked_first_the_next_time() -> None:
    managers = Managers(["a", "b"])
    managers.advance()
    managers.answered()
    managers.begin()
    assert managers.address == "b"
    assert managers.advance()
    assert managers.address == "a"


def test_a_follower_is_believed_but_not_for_ever() -> None:
    managers = Managers(["a"])
    for _ in range(HOPS_MAX):
        assert managers.follow("leader")
    assert not managers.follow("leader")
    assert not Managers(["a"]).follow("")


def test_leaders_that_have_answered_are_remembered_within_a_bound() -> None:
    managers = Managers(["a"])
    for number in range(2 * KNOWN_MAX):
        managers.begin()
        managers.follow(f"leader {number}")
        managers.answered()
    assert len(managers) == 1 + KNOWN_MAX
