import pytest

from roq.errors import LocalProtocolError
from roq.model import publisher_epoch
from roq.monitor.publishers import SUPERSEDED_SECONDS, PublisherEpochs


def test_epochs_rise_and_carry_the_monitors_own() -> None:
    epochs = PublisherEpochs(7)
    assert [epochs.next() for _ in range(3)] == [publisher_epoch(7, n) for n in (1, 2, 3)]


def test_no_publisher_gets_a_lower_epoch_than_it_has() -> None:
    epochs = PublisherEpochs(7)
    higher = publisher_epoch(9, 5)
    assert epochs.next(above=higher) == higher + 1


def test_more_epochs_than_there_are_numbers_is_a_bug() -> None:
    epochs = PublisherEpochs(1)
    epochs._counter = 1 << 27
    with pytest.raises(LocalProtocolError):
        epochs.next()


def test_an_epoch_that_nobody_can_have_given_is_not_believed() -> None:
    epochs = PublisherEpochs(7)
    given = epochs.next()
    assert epochs.plausible(given)
    assert epochs.plausible(publisher_epoch(6, 99))
    assert epochs.plausible(publisher_epoch(8, 1))
    for epoch in (0, -1, given + 1, 1 << 62, 1 << 63):
        assert not epochs.plausible(epoch)


def test_a_monitor_that_meets_the_epoch_of_a_newer_one_is_superseded_for_a_while() -> None:
    epochs = PublisherEpochs(7)
    assert not epochs.told(publisher_epoch(7, 1), 10.0)
    assert not epochs.told(publisher_epoch(6, 1), 10.0)
    assert not epochs.superseded(10.0)
    assert epochs.told(publisher_epoch(8, 1), 10.0)
    assert not epochs.told(publisher_epoch(8, 1), 20.0)
    assert epochs.superseded(20.0 + SUPERSEDED_SECONDS - 1)
    assert not epochs.superseded(20.0 + SUPERSEDED_SECONDS)
