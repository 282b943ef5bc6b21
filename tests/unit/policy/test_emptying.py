from queue_model import LIMIT, publisher
from queue_views import at, queue

from roq.policy.emptying import emptying
from roq.policy.snapshot import Move, PublisherView, QueueView, Stripe


def places(view: QueueView, number: int = 1) -> dict[int, int | tuple[int, ...]]:
    return {
        int.from_bytes(each.publisher, "big"): each.target
        if isinstance(each, Move)
        else each.targets
        for each in emptying(view, number)
    }


def test_the_busiest_first_each_to_the_lowest_load() -> None:
    view = queue(at(1, (1, 0.1), (2, 0.5), (3, 0.3)), at(2, others=0.2), at(3))
    assert places(view) == {2: 3, 3: 2, 1: 2}


def test_exchanges_that_are_emptied_too_get_nobody() -> None:
    view = queue(at(1, (1, 0.1), accepting=False), at(2, accepting=False), at(3, others=0.9))
    assert places(view) == {1: 3}
    assert emptying(queue(at(1, (1, 0.1))), 1) == []
    assert emptying(view, 9) == []


def test_those_on_their_way_are_left_alone() -> None:
    assert places(queue(at(1, (1, 0.1), (2, 0.1), moving=[1]), at(2))) == {2: 2}


def test_publishers_whose_rate_is_not_known_spread_out_like_the_rest() -> None:
    view = queue(at(1, (1, 0.2), others=0.4, publishers=5), at(2), at(3, others=0.15))
    everybody = [PublisherView(publisher(1), 0.2 * LIMIT, (1,))]
    everybody += [PublisherView(publisher(n), 0.0, (1,)) for n in range(2, 6)]
    targets = [each.target for each in emptying(view, 1, everybody) if isinstance(each, Move)]
    assert targets == [2, 3, 2, 3, 2]


def test_idle_ones_spread_out_as_well() -> None:
    everybody = [PublisherView(publisher(n), 0.0, (1,)) for n in range(1, 7)]
    view = queue(at(1, publishers=6), at(2), at(3))
    targets = [each.target for each in emptying(view, 1, everybody) if isinstance(each, Move)]
    assert sorted(targets) == [2, 2, 2, 3, 3, 3]


def test_a_striped_one_keeps_its_other_exchanges() -> None:
    both = {1: (1, 2)}
    small = queue(at(1, (1, 0.2), striped=both), at(2, (1, 0.2), striped=both), at(3))
    assert places(small) == {1: (2,)}
    big = queue(at(1, (1, 0.8), striped=both), at(2, (1, 0.8), striped=both), at(3))
    assert places(big) == {1: (2, 3)}
    assert all(isinstance(each, Stripe) for each in emptying(big, 1))


def test_a_striped_one_with_too_few_exchanges_left_takes_what_there_is() -> None:
    both = {1: (1, 2)}
    assert places(queue(at(1, (1, 0.8), striped=both), at(2, (1, 0.8), striped=both))) == {1: (2,)}
