import pytest

from roq.coordination.registry_contract import EPOCH_MAX, EPOCHS_AHEAD_MAX, LOST_EPOCHS
from roq.errors import ConfigError, RequestError
from roq.hcm.children import NUMBER_MAX, ChildEpochs, PortBook, draw_above, port_of
from roq.model import child_epoch


def test_epochs_rise_within_the_epoch_of_the_host() -> None:
    epochs = ChildEpochs()
    assert epochs.host == 0
    epochs.registered(3)
    assert [epochs.next(), epochs.next()] == [child_epoch(3, 1), child_epoch(3, 2)]


def test_after_a_higher_base_nothing_counts_under_a_lower_one() -> None:
    epochs = ChildEpochs()
    epochs.registered(3)
    epochs.rise(9)
    assert epochs.next() == child_epoch(9, 1)
    epochs.rise(5)
    assert epochs.next() == child_epoch(9, 2)
    assert epochs.host == 3


def test_a_base_counts_no_more_once_the_host_is_above_it() -> None:
    epochs = ChildEpochs()
    epochs.registered(3)
    epochs.rise(9)
    epochs.registered(10)
    assert epochs.next() == child_epoch(10, 1)


def test_a_new_host_epoch_below_a_base_does_not_make_epochs_fall() -> None:
    epochs = ChildEpochs()
    epochs.registered(3)
    epochs.rise(9)
    first = epochs.next()
    epochs.registered(7)
    assert epochs.next() > first


def test_epochs_of_an_earlier_life_are_exceeded_even_if_the_counter_was_lost() -> None:
    epochs = ChildEpochs()
    epochs.adopted(child_epoch(40, 7))
    epochs.adopted(child_epoch(39, 900))
    epochs.registered(1)
    assert epochs.next() == child_epoch(40, 8)
    epochs.registered(41)
    assert epochs.next() == child_epoch(41, 1)


def test_no_number_is_given_twice() -> None:
    epochs = ChildEpochs()
    epochs.adopted(child_epoch(1, NUMBER_MAX))
    with pytest.raises(RequestError, match="restart it"):
        epochs.next()


def test_a_number_that_no_process_had_is_given_again_if_it_was_the_last_one() -> None:
    epochs = ChildEpochs()
    epochs.registered(7)
    first, second = epochs.next(), epochs.next()
    epochs.unused(first)
    assert epochs.next() == child_epoch(7, 3), "the second one is above it"
    epochs.unused(child_epoch(7, 3))
    assert epochs.next() == child_epoch(7, 3)
    epochs.registered(9)
    epochs.unused(second)
    assert epochs.next() == child_epoch(9, 1)


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("tcp://127.0.0.1:5500", 5500),
        ("tcp://[::1]:5500", 5500),
        ("tcp://box.example:1", 1),
        ("tcp://127.0.0.1", None),
        ("tcp://h:0", None),
        ("tcp://h:65536", None),
        ("tcp://h:99999999999", None),
        ("tcp://h:\u0665", None),
        ("", None),
    ],
)
def test_the_port_of_an_address(endpoint, port) -> None:
    assert port_of(endpoint) == port


def test_ports_are_kept_away_from_while_used_and_for_ten_minutes_after() -> None:
    book = PortBook()
    assert book.took("a", [1, 2])
    assert book.took("b", [3])
    assert not book.took("b", [3])
    assert book.avoid(0.0) == [1, 2, 3]
    book.left("a", 100.0)
    assert book.avoid(699.9) == [1, 2, 3]
    assert book.avoid(700.0) == [3]


def test_a_child_that_never_told_leaves_nothing() -> None:
    book = PortBook()
    book.left("a", 0.0)
    assert book.avoid(0.0) == []


@pytest.mark.parametrize(
    ("drawn", "given", "above"),
    [
        (1, 0, 0),
        (8, 7, 0),
        (7, 7, 7 + LOST_EPOCHS),
        (3, 7, 7 + LOST_EPOCHS),
        (EPOCH_MAX - 2, EPOCH_MAX - 1, EPOCH_MAX - 1),
        (3, 2 + EPOCHS_AHEAD_MAX, 2 + EPOCHS_AHEAD_MAX + LOST_EPOCHS),
        (3, 3 + EPOCHS_AHEAD_MAX, 0),
    ],
)
def test_an_epoch_that_was_given_before_is_drawn_again(drawn: int, given: int, above: int) -> None:
    """What no registry of this cluster can have given is believed by nobody."""
    assert draw_above(drawn, given) == above


@pytest.mark.parametrize("drawn", [EPOCH_MAX, EPOCH_MAX - EPOCHS_AHEAD_MAX + 1])
def test_above_the_last_epoch_none_is_drawn(drawn: int) -> None:
    """Each attempt would use up what the cluster has left, and be another one that is too low."""
    with pytest.raises(ConfigError, match=f"host.epoch holds {EPOCH_MAX}, above which no epoch"):
        draw_above(drawn, EPOCH_MAX)
    assert draw_above(3, EPOCH_MAX) == 0, "this cluster cannot have given it"
