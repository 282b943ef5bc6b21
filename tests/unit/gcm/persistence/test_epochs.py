"""Above which epoch a manager leads, whatever it is told."""

import logging
from collections.abc import Callable

import pytest

from roq.coordination.registry_contract import EPOCH_MAX, EPOCHS_AHEAD_MAX, LOST_EPOCHS
from roq.gcm.persistence.epochs import Epochs
from roq.hcm.records import LEADER


def told(*heard: int) -> Callable[[int], int]:
    return lambda below: max((epoch for epoch in heard if epoch < below), default=0)


def above(epochs: Epochs) -> int:
    return epochs.above(remembers=True, empty=False)


def test_a_leader_counts_on_above_what_a_host_obeys() -> None:
    epochs = Epochs(told(70))
    epochs.lead(5)
    assert above(epochs) == 70
    assert epochs.obeyed(60)
    assert above(epochs) == 70 + LOST_EPOCHS


def test_no_epochs_are_left_out_if_somebody_else_leads_whom_the_host_obeys() -> None:
    epochs = Epochs(told())
    epochs.lead(5)
    assert epochs.obeyed(6)
    epochs.follow()
    assert above(epochs) == 5


def test_hosts_cannot_use_the_epochs_up(caplog: pytest.LogCaptureFixture) -> None:
    epochs = Epochs(told())
    epoch = 1
    epochs.lead(epoch)
    for _ in range(100):
        if epochs.obeyed(epoch + EPOCHS_AHEAD_MAX // 2):
            epoch = above(epochs) + 1
            epochs.lead(epoch)
    assert epoch < 2 * EPOCHS_AHEAD_MAX < EPOCH_MAX // 4
    words = [each for each in caplog.records if "cannot have given" in each.message]
    assert len(words) == 1
    assert words[0].levelno == logging.ERROR
    assert LEADER in words[0].message, "to start it again is not enough: it remembers"


def test_an_epoch_that_cannot_be_of_this_cluster_makes_nobody_lead_anew() -> None:
    epochs = Epochs(told())
    epochs.lead(5)
    assert not epochs.obeyed(5 + EPOCHS_AHEAD_MAX)
    assert not epochs.obeyed(1 << 62)
    assert above(epochs) == 5


def test_a_host_epoch_that_cannot_be_of_this_cluster_is_not_counted_on() -> None:
    epochs = Epochs(told(4, EPOCHS_AHEAD_MAX + 5))
    epochs.lead(5)
    assert epochs.heard() == 4
    epochs.lead(6)
    assert epochs.heard() == EPOCHS_AHEAD_MAX + 5
