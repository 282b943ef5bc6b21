from queue_model import publisher
from queue_views import at, queue

from roq.policy.loads import Loads
from roq.policy.memory import Marks
from roq.policy.snapshot import Memory, QueueView, Stripe
from roq.policy.striping import gather, spread, too_big


def spread_over(view: QueueView, number: int = 1) -> tuple[int, ...]:
    """Where the giant of an exchange is spread to; empty if it is left alone."""
    loads = Loads(view)
    giant = too_big(view, loads, number)
    assert giant is not None
    spread(view, loads, giant)
    return next((each.targets for each in loads.decisions() if isinstance(each, Stripe)), ())


def gathered(view: QueueView, seconds: float) -> tuple[int, ...]:
    """Where striped publishers are gathered after so many seconds of the same."""
    marks = Marks(Memory(), view.now - seconds)
    gather(view, Loads(view), marks)
    loads = Loads(view)
    gather(view, loads, Marks(marks.memory(), view.now))
    return next((each.targets for each in loads.decisions() if isinstance(each, Stripe)), ())


def test_as_many_exchanges_as_it_takes_the_least_busy_ones() -> None:
    assert spread_over(queue(at(1, (1, 1.5)), at(2, others=0.3), at(3))) == (1, 3)
    assert spread_over(queue(at(1, (1, 2.6)), at(2), at(3), at(4))) == (1, 2, 3)


def test_more_if_the_others_have_little_room() -> None:
    view = queue(at(1, (1, 1.5)), *[at(n, others=0.6) for n in range(2, 5)])
    assert spread_over(view) == (1, 2, 3, 4)


def test_as_many_as_there_are_if_it_needs_more() -> None:
    assert spread_over(queue(at(1, (1, 5.0)), at(2))) == (1, 2)


def test_not_if_that_makes_it_no_better() -> None:
    assert spread_over(queue(at(1, (1, 1.5)), at(2, others=1.4))) == ()
    assert spread_over(queue(at(1, (1, 1.5)))) == ()


def test_a_striped_one_gets_more_exchanges_when_it_grows() -> None:
    both = {1: (1, 2)}
    view = queue(at(1, (1, 1.3), striped=both), at(2, (1, 1.3), striped=both), at(3))
    assert spread_over(view) == (1, 2, 3)


def test_who_fits_one_exchange_is_no_giant() -> None:
    view = queue(at(1, (1, 1.05), (2, 0.5)), at(2))
    assert too_big(view, Loads(view), 1) is None


def test_one_on_its_way_or_on_an_exchange_that_is_emptied_is_left_alone() -> None:
    view = queue(at(1, (1, 2.0), moving=[1]), at(2))
    assert too_big(view, Loads(view), 1) is None
    both = {1: (1, 2)}
    view = queue(at(1, (1, 2.0), striped=both), at(2, (1, 2.0), striped=both, accepting=False))
    assert too_big(view, Loads(view), 1) is None


def test_a_striped_one_that_has_become_small_comes_back() -> None:
    both = {1: (1, 2)}
    view = queue(
        at(1, (1, 0.2), striped=both, others=0.3), at(2, (1, 0.2), striped=both, others=0.1)
    )
    assert gathered(view, 5.0) == ()
    assert gathered(view, 10.0) == (2,)


def test_not_where_it_would_not_fit() -> None:
    both = {1: (1, 2)}
    view = queue(*[at(n, (1, 0.3), striped=both, others=0.4) for n in (1, 2)])
    assert gathered(view, 20.0) == ()


def test_it_keeps_as_many_as_it_needs() -> None:
    four = {1: (1, 2, 3, 4)}
    view = queue(*[at(n, (1, 0.28), striped=four) for n in range(1, 5)])
    assert gathered(view, 20.0) == (1, 2)


def test_how_long_it_is_small_is_forgotten_with_it() -> None:
    both = {1: (1, 2)}
    small = queue(*[at(n, (1, 0.2), striped=both) for n in (1, 2)])
    marks = Marks(Memory(), 0.0)
    gather(small, Loads(small), marks)
    assert f"small {publisher(1).hex()}" in marks
    gone = queue(at(1), at(2))
    gather(gone, Loads(gone), marks)
    assert marks.memory().marks == {}
