from queue_model import LIMIT, publisher
from queue_views import at, queue

from roq.policy.loads import Loads, shares_of
from roq.policy.snapshot import Move, Stripe

VIEW = queue(at(1, (1, 0.6), (2, 0.2), moving=[2]), at(2, (3, 0.1)), at(3, accepting=False))


def test_only_exchanges_that_take_publishers_count() -> None:
    loads = Loads(VIEW)
    assert list(loads.load) == [1, 2]
    assert loads.busiest == 1
    assert round(loads.imbalance, 6) == round(0.8 / 0.45, 6)


def test_publishers_on_their_way_or_striped_stay_where_they_are() -> None:
    view = queue(
        at(1, (1, 0.6), (2, 0.2), striped={1: (1, 2)}), at(2, (1, 0.6), striped={1: (1, 2)})
    )
    assert list(Loads(view).movable(1)) == [publisher(2)]
    assert list(Loads(VIEW).movable(1)) == [publisher(1)]


def test_those_that_rest_are_moved_only_in_haste() -> None:
    loads = Loads(VIEW, resting=[publisher(1)])
    assert list(loads.movable(1)) == []
    assert list(loads.movable(1, hasty=True)) == [publisher(1)]


def test_exchanges_to_avoid_are_used_only_if_there_is_no_other() -> None:
    assert Loads(VIEW, avoid=[1]).targets == (2,)
    assert Loads(VIEW, avoid=[1, 2]).targets == (1, 2)


def test_a_move_counts_at_once() -> None:
    loads = Loads(VIEW)
    loads.move(publisher(1), 1, 2, "why")
    assert [round(load / LIMIT, 6) for load in loads.load.values()] == [0.2, 0.7]
    assert loads.decisions() == [Move(publisher(1), 1, 2, "why")]
    assert loads.touched == {1, 2}


def test_who_goes_back_and_forth_is_not_moved() -> None:
    loads = Loads(VIEW)
    loads.move(publisher(1), 1, 2, "there")
    loads.move(publisher(1), 2, 1, "and back")
    assert loads.decisions() == []
    assert loads.touched == set()


def test_a_trial_changes_nothing_until_it_is_adopted() -> None:
    loads = Loads(VIEW)
    trial = loads.trial()
    trial.move(publisher(1), 1, 2, "why")
    assert loads.decisions() == []
    loads.adopt(trial)
    assert loads.decisions() == trial.decisions() != []


def test_a_stripe_takes_its_share_everywhere() -> None:
    loads = Loads(VIEW)
    [giant, *_] = VIEW.exchanges[0].top
    loads.stripe(giant, shares_of(VIEW, giant.id), [1, 2], "big")
    assert [round(load / LIMIT, 6) for load in loads.load.values()] == [0.5, 0.4]
    assert loads.decisions() == [Stripe(giant.id, (1, 2), "big")]
    assert loads.touched == {1, 2}
