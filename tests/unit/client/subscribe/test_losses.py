"""When a missing message is declared lost."""

from __future__ import annotations

from itertools import count

from roq.client.subscribe.losses import LossRules
from roq.client.subscribe.stream import Held, Stream
from roq.model import LogId, PublisherId
from roq.protocol.batch import Kind
from roq.timing import AWAY_SECONDS, LOSS_SECONDS, REPLAY_SECONDS, STRIPED_LOSS_SECONDS

A, B = (1, 7), (2, 7)
NEVER = float("-inf")


class Script:
    """A stream of which the sequences from 10 on are missing."""

    def __init__(self) -> None:
        self.rules = LossRules()
        self.stream = Stream(PublisherId(b"p" * 16), "t", expected=10)
        self.offsets = count()

    def hold(
        self,
        first: int,
        source: LogId,
        at: float,
        floor: int | None = None,
        bound: int = -1,
        kind: Kind = Kind.DATA,
    ) -> None:
        if bound < 0:
            bound = first if floor is None else floor
        held = Held(
            first, first + 1, kind, at, source, b"t", next(self.offsets), b"",
            bound=bound, floored=floor is not None,
        )  # fmt: skip
        self.stream.held.append(held)

    def lost_until(self, now: float, a: float, b: float) -> int | None:
        return self.rules.lost_until(self.stream, now, {A: a, B: b})


def test_a_hole_is_lost_when_every_exchange_was_verified_after_the_batch_above_it() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    assert script.lost_until(1.1, 0.9, 0.9) is None
    assert script.rules.wanted == 1.0
    assert script.lost_until(1.1, 1.0, 1.0) == 20


def test_an_exchange_that_brought_a_batch_above_the_hole_is_not_asked() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    assert script.lost_until(1.1, NEVER, 0.9) is None
    assert script.lost_until(1.1, NEVER, 1.0) == 20


def test_without_any_exchange_nothing_is_known() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    assert script.rules.lost_until(script.stream, 1.1, {}) is None
    assert script.rules.wanted is None


def test_a_hole_above_every_floor_may_be_on_its_way_to_any_exchange() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=10)
    assert script.lost_until(1.1 + LOSS_SECONDS, 9.0, 9.0) is None
    assert script.rules.wanted is None
    assert script.lost_until(1.0 + STRIPED_LOSS_SECONDS, 9.0, 9.0) == 20


def test_a_hole_across_a_floor_is_lost_below_it() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=10)
    script.hold(21, B, at=2.0, floor=15)
    assert script.lost_until(2.1, 1.9, 1.9) is None
    assert script.rules.wanted == 2.0
    assert script.lost_until(2.1, 2.0, 2.0) == 15


def test_only_an_exchange_that_brought_the_floor_need_not_be_asked() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=10)
    script.hold(21, B, at=2.0, floor=15)
    assert script.lost_until(2.1, NEVER, 2.0) is None
    assert script.lost_until(2.1, 2.0, NEVER) == 15


def test_a_batch_without_a_floor_proves_what_is_below_it_in_a_striped_stream_too() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=10)
    script.hold(30, A, at=2.0)
    assert script.lost_until(2.1, 2.0, 2.0) == 20


def test_a_batch_that_proves_nothing_is_waited_behind() -> None:
    script = Script()
    script.hold(20, A, at=1.0, bound=0)
    assert script.lost_until(1.1, 1.1, 1.1) is None
    assert script.lost_until(1.0 + LOSS_SECONDS, 9.0, 9.0) == 20


def test_waiting_for_an_exchange_that_does_not_answer_ends() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    assert script.lost_until(0.9 + LOSS_SECONDS, 1.0, NEVER) is None
    assert script.lost_until(1.0 + LOSS_SECONDS, 1.0, NEVER) == 20


def test_after_an_exchange_has_gone_nothing_is_lost_before_publishers_have_replayed() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    script.rules.replaying(2.0)
    end = 2.0 + REPLAY_SECONDS
    assert script.lost_until(end - 0.1, end - 0.1, end - 0.1) is None
    assert script.rules.wanted is None
    assert script.lost_until(end, end, end) == 20


def test_after_an_exchange_has_gone_those_that_brought_the_batch_are_asked_as_well() -> None:
    script = Script()
    script.rules.replaying(2.0)
    end = 2.0 + REPLAY_SECONDS
    script.hold(20, A, at=end + 1.0)
    assert script.lost_until(end + 2.0, end - 0.1, end + 1.0) is None
    assert script.lost_until(end + 2.0, end, end + 0.9) is None
    assert script.rules.wanted == end + 1.0
    assert script.lost_until(end + 2.0, end, end + 1.0) == 20


def test_exchanges_that_go_again_and_again_hold_nothing_up_for_ever() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    script.rules.replaying(0.9 + STRIPED_LOSS_SECONDS)
    assert script.lost_until(0.9 + STRIPED_LOSS_SECONDS, 9.0, 9.0) is None
    assert script.lost_until(1.0 + STRIPED_LOSS_SECONDS, 9.0, 9.0) == 20


def test_what_is_in_no_exchange_as_of_a_time_is_lost_then_or_after_a_while() -> None:
    rules = LossRules()
    assert not rules.over(5.0, 4.9, {A: 5.0})
    assert rules.wanted is None
    assert not rules.over(5.0, 5.1, {A: 5.0, B: 4.9})
    assert rules.wanted == 5.0
    assert rules.over(5.0, 5.1, {A: 5.0, B: 5.0})
    assert not rules.over(5.0, 5.1, {})
    assert rules.over(5.0, 5.0 + LOSS_SECONDS, {})
    rules.replaying(5.1)
    assert not rules.over(5.0, 5.2, {A: 5.2})
    assert rules.over(5.0, 5.1 + REPLAY_SECONDS, {A: 5.1 + REPLAY_SECONDS})


def test_below_a_fence_nothing_is_lost_before_the_exchanges_are_known() -> None:
    script = Script()
    script.hold(20, A, at=1.0, kind=Kind.FENCE)
    script.rules.topology_known(0.9)
    assert script.lost_until(1.1, 1.1, 1.1) is None
    script.rules.topology_known(1.2)
    assert script.lost_until(1.3, NEVER, 1.1) == 20
    assert script.lost_until(1.3, 1.1, 1.1) == 20


def test_in_a_striped_stream_nothing_is_lost_before_the_exchanges_are_known() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=15)
    script.rules.topology_known(0.9)
    assert script.lost_until(1.1, 1.1, 1.1) is None
    script.rules.topology_known(1.0)
    assert script.lost_until(1.1, 1.1, 1.1) == 15


def test_within_one_exchange_the_list_of_exchanges_does_not_matter() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    script.rules.topology_known(0.0)
    assert script.lost_until(1.1, 1.1, 1.1) == 20


def test_where_much_waits_it_is_looked_at_less_often() -> None:
    script = Script()
    for sequence in range(20, 1_020):
        script.hold(sequence, A, at=1.0)
    assert script.lost_until(1.1, 0.9, 0.9) is None
    assert script.stream.look_at > 1.11


def test_a_hole_waits_longer_while_its_like_is_still_being_filled() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    script.stream.filled_at = 4.0
    assert script.lost_until(1.0 + LOSS_SECONDS, NEVER, NEVER) is None
    assert script.lost_until(4.0 + LOSS_SECONDS, NEVER, NEVER) == 20


def test_the_time_in_which_nobody_read_does_not_count() -> None:
    script = Script()
    script.hold(20, A, at=1.0)
    script.rules.read_again(60.0)
    assert script.lost_until(60.1, NEVER, NEVER) is None
    assert not script.rules.over(1.0, 60.1, {A: NEVER})
    assert script.lost_until(60.0 + LOSS_SECONDS, NEVER, NEVER) == 20
    assert script.rules.over(1.0, 60.0 + LOSS_SECONDS, {A: NEVER})


def test_it_says_when_only_the_word_of_the_monitor_is_missing() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=20)
    script.rules.topology_known(0.5)
    assert not script.rules.doubtful
    assert script.lost_until(1.1, NEVER, 1.0) is None
    assert script.rules.doubtful
    script.rules.doubtful = False
    script.rules.topology_known(1.1)
    assert script.lost_until(1.2, NEVER, 1.0) == 20
    assert not script.rules.doubtful


# --- durable queues -------------------------------------------------------------------------------


def durable(away_seconds: float = AWAY_SECONDS, floor: int | None = None) -> Script:
    script = Script()
    script.rules = LossRules(away_seconds)
    script.rules.durable = True
    script.hold(20, A, at=1.0, floor=floor)
    return script


def test_a_hole_of_a_durable_queue_waits_for_the_log_of_an_exchange_that_does_not_answer() -> None:
    script = durable()
    assert script.lost_until(0.9 + AWAY_SECONDS, 500.0, 0.9) is None
    assert script.lost_until(1.0 + AWAY_SECONDS, 500.0, 0.9) == 20


def test_how_long_is_the_users_choice() -> None:
    assert durable(30.0).lost_until(30.9, 50.0, 0.9) is None
    assert durable(30.0).lost_until(31.0, 50.0, 0.9) == 20
    assert durable(float("inf")).lost_until(1e9, 1e9, 0.9) is None
    assert durable(0.0).lost_until(1.0 + LOSS_SECONDS, 50.0, 0.9) == 20, "no less than volatile"


def test_it_waits_no_longer_than_that_of_a_volatile_queue_when_all_exchanges_answer() -> None:
    assert durable().lost_until(1.1, 1.0, 1.0) == 20
    script = durable(floor=10)
    assert script.lost_until(0.9 + STRIPED_LOSS_SECONDS, 500.0, 500.0) is None
    assert script.lost_until(1.0 + STRIPED_LOSS_SECONDS, 500.0, 500.0) == 20


def test_an_exchange_that_was_read_before_the_hole_was_proven_may_have_it() -> None:
    script = durable(30.0, floor=10)
    script.hold(21, A, at=4.0, floor=20)
    assert script.lost_until(1.1 + LOSS_SECONDS, 50.0, 1.5) is None
    assert script.lost_until(30.9, 50.0, 1.5) is None
    assert script.lost_until(31.0, 50.0, 1.5) == 20
    assert script.lost_until(4.1, 50.0, 4.0) == 20


def test_so_may_any_that_was_not_read_since_when_nothing_proves_it() -> None:
    script = durable(30.0, floor=10)
    ended = 1.0 + STRIPED_LOSS_SECONDS
    assert script.lost_until(ended + 1.0, 50.0, ended - 0.1) is None
    assert script.lost_until(ended + 1.0, 50.0, ended) == 20
    assert script.lost_until(31.0, 50.0, 1.5) == 20


def test_that_they_are_read_is_asked_for() -> None:
    """In a queue in which nothing is published any more nobody reads by himself."""
    script = durable(floor=10)
    ended = 1.0 + STRIPED_LOSS_SECONDS
    assert script.lost_until(ended - 0.1, 9.0, 9.0) is None
    assert script.rules.wanted is None, "what is read before is of no use"
    assert script.lost_until(ended + 0.1, 9.0, 9.0) is None
    assert script.rules.wanted == ended


def test_what_nothing_proves_has_its_time_when_an_exchange_that_was_away_is_back() -> None:
    """A publisher that could not reach it either sends it now."""
    script = durable(100.0, floor=10)
    script.rules.away(50.0)
    assert script.lost_until(49.9 + STRIPED_LOSS_SECONDS, 50.0, 50.0) is None
    assert script.lost_until(50.0 + STRIPED_LOSS_SECONDS, 50.0, 50.0) == 20
    script.rules.away(100.0)
    assert script.lost_until(100.9, 50.0, 50.0) is None
    assert script.lost_until(101.0, 50.0, 50.0) == 20, "no longer than for one that stays away"
    assert script.lost_until(101.0, 50.0, 1.5) == 20
    script.hold(21, A, at=2.0, floor=20)
    assert script.lost_until(100.0, 50.0, 50.0) == 20, "it was in a log, and is in none"


def test_so_may_one_that_nobody_has_told_of() -> None:
    """A striped publisher has been given another exchange, and the monitor does not answer."""
    script = durable(30.0, floor=10)
    script.hold(21, B, at=2.0, floor=20)
    script.rules.topology_known(1.9)
    assert script.lost_until(30.9, 50.0, 50.0) is None
    assert script.rules.doubtful, "the monitor is asked, if much waits"
    assert script.lost_until(31.0, 50.0, 50.0) == 20, "no longer than for an exchange"
    script.rules.topology_known(2.0)
    assert script.lost_until(2.1, 50.0, 50.0) == 20


def test_what_nothing_proves_may_be_at_one_that_nobody_has_told_of_for_longer() -> None:
    script = durable(30.0, floor=10)
    ended = 1.0 + STRIPED_LOSS_SECONDS
    script.rules.topology_known(ended - 0.1)
    assert script.lost_until(ended - 0.1, 50.0, 50.0) is None
    assert not script.rules.doubtful, "what the monitor says before is of no use"
    assert script.lost_until(ended + 0.1, 50.0, 50.0) is None
    assert script.rules.doubtful
    script.rules.topology_known(ended)
    assert script.lost_until(ended + 0.1, 50.0, 50.0) == 20


def test_of_a_volatile_queue_nothing_waits_longer_for_a_monitor_that_does_not_answer() -> None:
    script = Script()
    script.hold(20, A, at=1.0, floor=10)
    script.hold(21, B, at=2.0, floor=20)
    script.rules.topology_known(1.9)
    assert script.lost_until(2.0 + STRIPED_LOSS_SECONDS, 50.0, 50.0) == 20


def test_so_may_one_that_was_not_read_since_publishers_have_sent_again() -> None:
    script = durable(30.0)
    script.rules.replaying(2.0)
    again = 2.0 + REPLAY_SECONDS
    assert script.lost_until(20.0, 50.0, again - 0.1) is None
    assert script.lost_until(20.0, 50.0, again) == 20
    assert not script.rules.over(1.0, 20.0, {A: 50.0, B: again - 0.1})
    assert script.rules.over(1.0, 20.0, {A: 50.0, B: again})


def test_what_is_not_to_be_patient_waits_for_no_monitor() -> None:
    script = durable(30.0, floor=10)
    script.hold(21, B, at=2.0, floor=20)
    script.rules.topology_known(1.9)
    now, verified = 2.0 + LOSS_SECONDS, {A: 50.0, B: 50.0}
    assert script.rules.lost_until(script.stream, now, verified) is None
    assert script.rules.lost_until(script.stream, now, verified, patient=False) == 20


def test_what_was_put_aside_at_an_exchange_that_is_gone_waits_likewise() -> None:
    script = durable(30.0)
    script.rules.topology_known(0.9)
    assert not script.rules.over(1.0, 30.9, {A: 50.0, B: 50.0}), "it may be at another one"
    assert script.rules.doubtful
    assert script.rules.over(1.0, 31.0, {A: 50.0, B: 50.0})
    script.rules.topology_known(1.0)
    assert not script.rules.over(1.0, 30.9, {A: 50.0, B: 0.9})
    assert script.rules.over(1.0, 31.0, {A: 50.0, B: 0.9})
    assert script.rules.over(1.0, 1.0 + LOSS_SECONDS, {A: 50.0, B: 50.0})
