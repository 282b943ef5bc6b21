import pytest

from roq.monitor.takeover_wait import TakeoverWait
from roq.timing import TAKEOVER_MOST_SECONDS, TAKEOVER_SECONDS


def test_it_is_not_over_before_a_manager_has_spoken() -> None:
    takeover = TakeoverWait()
    assert not takeover.over({1, 2}, 1e9)
    assert takeover.next_deadline() is None


def test_it_is_over_as_soon_as_all_that_the_manager_names_have_reported() -> None:
    takeover = TakeoverWait()
    takeover.told([1, 2], 10.0)
    assert not takeover.over({1}, 10.5)
    assert takeover.over({1, 2, 3}, 10.5)


@pytest.mark.parametrize(
    ("named", "seconds"),
    [(None, TAKEOVER_SECONDS), ([], TAKEOVER_SECONDS), ([1], TAKEOVER_MOST_SECONDS)],
)
def test_it_is_over_in_any_case_after_a_while(named, seconds) -> None:
    takeover = TakeoverWait()
    takeover.told(named, 10.0)
    takeover.told(named, 10.0 + seconds / 2)
    assert takeover.next_deadline() == 10.0 + seconds
    assert not takeover.over(set(), 9.9 + seconds)
    assert takeover.over(set(), 10.0 + seconds)


def test_what_was_named_last_is_waited_for() -> None:
    takeover = TakeoverWait()
    takeover.told([1, 2], 10.0)
    takeover.told(None, 10.0)
    assert not takeover.over({1}, 10.0)
    takeover.told([1], 11.0)
    assert takeover.over({1}, 11.0)


def test_it_says_who_is_missing() -> None:
    takeover = TakeoverWait()
    assert takeover.outcome({1}) == "1 exchanges have reported"
    takeover.told([1, 2, 3], 10.0)
    assert takeover.outcome({1}) == "1 exchanges have reported, not x2, x3"
