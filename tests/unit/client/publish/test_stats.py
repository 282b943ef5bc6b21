"""What was given up counts once, where it belongs."""

import pytest

from roq.client.publish.receipt import Outcome, SendStatus
from roq.client.publish.stats import Tally

UNSURE = {Outcome.UNKNOWN, Outcome.FLUSH_TIMEOUT}


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.OK])
def test_what_is_given_up_was_not_delivered_unless_that_is_not_known(outcome: Outcome) -> None:
    tally = Tally()
    tally.give_up(3, SendStatus(outcome=outcome, reason="no exchange"))
    unsure = 3 if outcome in UNSURE else 0
    assert (tally.failed_messages, tally.unknown_messages) == (3 - unsure, unsure)
    assert (tally.one_way_lost, tally.last_reason) == (0, "no exchange")


def test_what_nobody_waits_for_is_lost_whatever_became_of_it() -> None:
    tally = Tally()
    tally.give_up(2, SendStatus(outcome=Outcome.UNKNOWN, reason="late"), one_way=True)
    assert (tally.one_way_lost, tally.failed_messages, tally.unknown_messages) == (2, 0, 0)
    assert tally.last_reason == ""
