import pytest

from roq.monitor.settling import SETTLE_MOST_SECONDS, SETTLE_SECONDS, Settling


def test_it_is_not_over_before_a_manager_has_spoken() -> None:
    settling = Settling()
    assert not settling.over({1, 2}, 1e9)
    assert settling.next_deadline() is None


def test_it_is_over_as_soon_as_all_that_the_manager_names_have_reported() -> None:
    settling = Settling()
    settling.told([1, 2], 10.0)
    assert not settling.over({1}, 10.5)
    assert settling.over({1, 2, 3}, 10.5)


@pytest.mark.parametrize(
    ("named", "seconds"),
    [(None, SETTLE_SECONDS), ([], SETTLE_SECONDS), ([1], SETTLE_MOST_SECONDS)],
)
def test_it_is_over_in_any_case_after_a_while(named, seconds) -> None:
    settling = Settling()
    settling.told(named, 10.0)
    settling.told(named, 10.0 + seconds / 2)
    assert settling.next_deadline() == 10.0 + seconds
    assert not settling.over(set(), 9.9 + seconds)
    assert settling.over(set(), 10.0 + seconds)


def test_what_was_named_last_is_waited_for() -> None:
    settling = Settling()
    settling.told([1, 2], 10.0)
    settling.told(None, 10.0)
    assert not settling.over({1}, 10.0)
    settling.told([1], 11.0)
    assert settling.over({1}, 11.0)


def test_it_says_who_is_missing() -> None:
    settling = Settling()
    assert settling.outcome({1}) == "1 exchanges have reported"
    settling.told([1, 2, 3], 10.0)
    assert settling.outcome({1}) == "1 exchanges have reported, not x2, x3"
