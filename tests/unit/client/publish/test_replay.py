"""How long acknowledged batches are kept, and when they are replayed."""

from __future__ import annotations

import pytest
from publisher_script import NoWaiter

from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Receipt
from roq.client.publish.replay import KEEP_BYTES, ReplayBuffer, ReplayBuffers
from roq.client.publish.topics import Stream
from roq.model import LogId
from roq.timing import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS, REPLAY_KEEP_SECONDS, REPLAY_LEFT_SECONDS

X1, X2 = LogId(1, 5), LogId(2, 6)
PROMISED_SECONDS = 3.0
"""See docs/guarantees.md: what an exchange had acknowledged for no longer is not lost with it."""


def acknowledged(buffer: ReplayBuffer, at: float, size: int = 10) -> PendingBatch:
    sealed = PendingBatch(
        Stream("t", b"t"), bytes(size), link_number=1, first_sequence=0, count=1,
        receipt=Receipt(NoWaiter()), sealed_at=at,
    )  # fmt: skip
    sealed.acked_at = at
    buffer.add(sealed)
    return sealed


def test_batches_are_kept_for_a_while_and_no_more_than_the_allowance() -> None:
    buffer = ReplayBuffers().of(X1)
    acknowledged(buffer, 0.0)
    young = acknowledged(buffer, 1.0)
    buffer.forget(REPLAY_KEEP_SECONDS + 0.5)
    assert list(buffer.batches) == [young]
    for _ in range(3):
        acknowledged(buffer, 1.0, KEEP_BYTES // 2)
    buffer.forget(1.0)
    assert buffer.bytes <= KEEP_BYTES


def test_the_last_seconds_of_a_host_are_still_kept_when_its_silence_is_noticed() -> None:
    """That is when the heartbeat after its last word has not been answered in time."""
    noticed = (HEARTBEAT_MS + HEARTBEAT_TIMEOUT_MS) / 1_000
    replay = ReplayBuffers()
    promised = acknowledged(replay.of(X1), -PROMISED_SECONDS)
    replay.forget(noticed)
    replay.of(X1).doubt = True
    assert replay.take_doubtful(frozenset({X2})) == [promised]


def test_an_exchange_in_doubt_keeps_its_pile_until_it_is_taken() -> None:
    replay = ReplayBuffers()
    sealed = acknowledged(replay.of(X1), 0.0)
    replay.of(X1).doubt = True
    replay.forget(1000.0)
    assert replay.take_doubtful(frozenset({X1})) == []
    assert replay.take_doubtful(frozenset({X2})) == [sealed]
    assert list(replay) == []


@pytest.mark.parametrize("durable", [False, True])
def test_what_must_not_be_in_two_logs_is_not_taken_from_a_durable_one(
    durable: bool,
) -> None:
    replay = ReplayBuffers({"t"})
    buffer = replay.of(X1)
    buffer.confirm(durable=durable, ahead=durable)
    sealed = acknowledged(buffer, 0.0)
    replay.of(X1).doubt = True
    assert replay.take_doubtful(frozenset({X2})) == [sealed][durable:]


@pytest.mark.parametrize("bound", ["t", "u"])
def test_what_must_not_be_twice_in_a_log_is_not_sent_again_under_another_epoch(bound: str) -> None:
    buffer = ReplayBuffers({bound}).of(X1)
    buffer.confirm(durable=True, ahead=True, epoch=5)
    sealed = acknowledged(buffer, 0.0)
    assert buffer.take_lost(2, 6, link=1) == []
    assert buffer.take_lost(1, 6, link=1) == [sealed][bound == "t" :]


def test_what_an_earlier_link_is_told_late_is_not_taken_for_lost_by_the_next_one() -> None:
    buffer = ReplayBuffers().of(X1)
    buffer.confirm(durable=True, ahead=True, epoch=5)
    early = acknowledged(buffer, 0.0)
    assert buffer.take_lost(1, 5, link=2) == []
    buffer.synced(1, link=2)
    assert early not in buffer.batches


def test_what_one_power_cut_has_left_the_next_one_may_take() -> None:
    buffer = ReplayBuffers().of(X1)
    buffer.confirm(durable=True, ahead=True, epoch=5)
    first, second, third = (acknowledged(buffer, 0.0) for _ in range(3))
    for number, sealed in enumerate((first, second, third), 1):
        sealed.epoch, sealed.link_number = 1, number
    assert buffer.take_lost(3, 6, link=1) == [third]
    buffer.confirm(durable=True, ahead=True, epoch=6)
    assert buffer.take_lost(2, 7, link=1) == [second]
    assert list(buffer.batches) == [first]


def test_an_exchange_that_was_left_is_remembered_longer() -> None:
    replay = ReplayBuffers()
    acknowledged(replay.of(X1), 0.0)
    replay.leave(X1)
    assert not replay.doubt_missing({X1: 0}, REPLAY_LEFT_SECONDS - 0.1)
    assert len(list(replay)) == 1
    assert not replay.doubt_missing({X1: 0}, REPLAY_LEFT_SECONDS + 0.1)
    assert list(replay) == []


def test_what_was_left_is_kept_until_somebody_can_say_whether_it_has_died() -> None:
    replay = ReplayBuffers()
    sealed = acknowledged(replay.of(X1), 0.0)
    replay.leave(X1)
    assert not replay.doubt_missing({X1: 0}, REPLAY_LEFT_SECONDS - 0.1)
    replay.forget(1000.0)  # no monitor all the time
    assert replay.doubt_missing({}, 1000.0)
    assert replay.take_doubtful(frozenset()) == [sealed]


def test_only_exchanges_that_were_left_are_missed_in_the_topology() -> None:
    replay = ReplayBuffers()
    replay.of(X1)
    sealed = acknowledged(replay.of(X2), 0.0)
    replay.leave(X2)
    assert not replay.doubt_missing({X1: 0, X2: 0}, 1.0)
    assert replay.doubt_missing({}, 1.0)
    assert replay.take_doubtful(frozenset({X1})) == [sealed]


def test_an_async_exchange_that_another_process_serves_may_have_lost_what_was_left_there() -> None:
    replay = ReplayBuffers()
    buffer = replay.of(X1)
    buffer.confirm(durable=True, ahead=True, epoch=5)
    sealed = acknowledged(buffer, 0.0)
    replay.leave(X1, {X1: 5})
    assert not replay.doubt_missing({X1: 4}, 1.0), "a topology that comes late"
    assert not replay.doubt_missing({X1: 5}, 1.0)
    assert replay.take_doubtful(frozenset()) == []
    assert replay.doubt_missing({X1: 6}, 1.0)
    assert replay.take_doubtful(frozenset()) == [sealed]


def test_who_leaves_when_another_process_serves_has_what_was_there_sent_elsewhere() -> None:
    replay = ReplayBuffers()
    buffer = replay.of(X1)
    buffer.confirm(durable=True, ahead=True, epoch=5)
    sealed = acknowledged(buffer, 0.0)
    replay.leave(X1, {X1: 6})
    assert replay.take_doubtful(frozenset()) == [sealed]


def test_what_is_too_old_is_not_replayed_either() -> None:
    replay = ReplayBuffers()
    acknowledged(replay.of(X1), 0.0)
    replay.leave(X1)
    assert not replay.doubt_missing({X1: 0}, REPLAY_LEFT_SECONDS + 1)
    assert not replay.doubt_missing({}, REPLAY_LEFT_SECONDS + 2)
    assert replay.take_doubtful(frozenset()) == []


def test_all_piles_together_are_bounded_and_the_oldest_is_cut_first() -> None:
    replay = ReplayBuffers()
    first, second = replay.of(X1), replay.of(X2)
    acknowledged(first, 1.0, KEEP_BYTES // 2)
    acknowledged(second, 1.0, KEEP_BYTES // 2)
    acknowledged(second, 1.0, 100)
    replay.forget(1.0)
    assert not first.batches
    assert len(second.batches) == 2
    replay.check()


def test_an_exchange_that_is_used_again_goes_on_with_its_pile() -> None:
    replay = ReplayBuffers()
    buffer = replay.of(X1)
    acknowledged(buffer, 0.0)
    replay.leave(X1)
    assert replay.of(X1) is buffer
    assert not buffer.left
    replay.clear()
    assert list(replay) == []


def test_what_an_exchange_that_was_emptied_had_acknowledged_is_not_needed() -> None:
    replay = ReplayBuffers()
    acknowledged(replay.of(X1), 0.0)
    acknowledged(replay.of(X2), 0.0)
    replay.leave(X1)
    replay.absolve(frozenset({X1, X2}))
    assert not replay.doubt_missing({}, 1.0)
    assert [buffer.log for buffer in replay] == [X2]
    replay.of(X2).doubt = True
    assert replay.take_doubtful(frozenset()) == []
    assert list(replay) == []


def test_what_an_exchange_keeps_on_its_disk_is_not_kept_for_others() -> None:
    replay = ReplayBuffers()
    buffer = replay.of(X1)
    acknowledged(buffer, 0.0)
    buffer.confirm(durable=True)
    acknowledged(buffer, 0.0)
    assert len(buffer.batches) == 1, "what another life of it had acknowledged in memory only"
    replay.of(X1).doubt = True
    assert len(replay.take_doubtful(frozenset({X2}))) == 1
