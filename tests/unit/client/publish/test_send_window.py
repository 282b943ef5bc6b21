"""What a publisher keeps, sends again, gives up and forgets."""

from __future__ import annotations

from copy import copy

import pytest
from publisher_script import NoWaiter

from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.publish.replay import ReplayBuffer
from roq.client.publish.send_window import SendWindow
from roq.client.publish.stats import Tally
from roq.client.publish.topics import Stream
from roq.errors import LocalProtocolError
from roq.model import PublisherId
from roq.protocol import batch as wire

OK = SendStatus(outcome=Outcome.OK, exchange="x1", exchange_epoch=1)
NO = SendStatus(outcome=Outcome.FAILED, reason="too large")


class Box(SendWindow):
    def __init__(self, batches: int = 4, size: int = 10_000, epoch: int = 1) -> None:
        super().__init__(
            PublisherId(b"p" * 16), epoch, batches, size, Tally(), ReplayBuffer((1, 1))
        )
        self.stream = Stream("t", b"t")

    def add(self, *payloads: bytes, at: float = 0.0) -> PendingBatch:
        return self.seal(self.stream, list(payloads), Receipt(NoWaiter()), at, 5)


def numbers(batches: list[PendingBatch]) -> list[int]:
    return [wire.read_header(sealed.data).link_number for sealed in batches]


def test_batches_get_contiguous_link_numbers_and_sequences() -> None:
    box = Box()
    first, second = box.add(b"a", b"b"), box.add(b"c")
    headers = [wire.read_header(sealed.data) for sealed in (first, second)]
    assert [h.link_number for h in headers] == [1, 2]
    assert [h.first_sequence for h in headers] == [0, 2]
    assert wire.read_payloads(first.data, headers[0]) == [b"a", b"b"]
    assert box.stream.next_sequence == 3
    box.check()


def test_the_window_counts_batches_and_bytes() -> None:
    box = Box(batches=2)
    box.add(b"a")
    assert box.has_room
    box.add(b"b")
    assert not box.has_room
    small = Box(size=100)
    small.add(b"x" * 100)
    assert not small.has_room


def test_no_more_is_under_way_than_the_window_allows() -> None:
    box = Box(batches=8)
    for _ in range(4):
        box.add(b"a")
    box.window_batches = 2
    assert numbers(box.take_unsent()) == [1, 2]
    assert box.take_unsent() == []
    box.acknowledge(1, OK, 0.0)
    assert numbers(box.take_unsent()) == [3]
    box.check()


def test_one_batch_larger_than_the_window_is_sent_nevertheless() -> None:
    box = Box(size=10)
    box.add(b"x" * 1000)
    assert numbers(box.take_unsent()) == [1]


def test_an_acknowledgement_is_cumulative_and_settles_receipts() -> None:
    box = Box()
    sealed = [box.add(b"a"), box.add(b"b"), box.add(b"c")]
    box.take_unsent()
    box.acknowledge(2, OK, 1.0)
    assert [s.receipt.status for s in sealed] == [OK, OK, None]
    assert (box.low, len(box), box.under_way) == (3, 1, 1)
    assert (box.tally.acked_messages, box.tally.acked_batches) == (2, 2)
    assert box.stream.acked_at == 1.0
    box.check()


def test_a_rewind_sends_from_there_again() -> None:
    box = Box()
    for _ in range(3):
        box.add(b"a")
    box.take_unsent()
    box.rewind(2)
    assert numbers(box.take_unsent()) == [2, 3]
    assert box.tally.replayed_batches == 2
    box.check()


def test_a_rewind_to_what_is_gone_is_our_own_bug() -> None:
    box = Box()
    with pytest.raises(LocalProtocolError):
        box.rewind(5)


def test_what_another_lane_takes_over_is_numbered_under_its_epoch() -> None:
    box, other = Box(), Box(epoch=2)
    for _ in range(3):
        box.add(b"a")
    box.take_unsent()
    box.acknowledge(1, OK, 0.0)
    other.extend(box.take_all())
    assert (len(box), box.owed_batches, box.owed_bytes) == (0, 0, 0)
    headers = [wire.read_header(sealed.data) for sealed in other.take_unsent()]
    assert [(h.epoch, h.link_number, h.first_sequence) for h in headers] == [(2, 1, 1), (2, 2, 2)]
    assert other.sent_high == 2
    assert other.owed_batches == 2
    assert other.tally.replayed_batches == 2
    box.check()
    other.check()


def test_a_lane_that_has_not_begun_takes_over_in_the_order_of_sealing() -> None:
    box, other = Box(), Box(epoch=2)
    other.stream = box.stream
    box.add(b"a", at=1.0)
    box.add(b"b", at=2.0)
    other.add(b"c", at=3.0)
    other.merge(box.take_all())
    headers = [wire.read_header(sealed.data) for sealed in other.take_unsent()]
    assert [(h.epoch, h.link_number, h.first_sequence) for h in headers] == [
        (2, 1, 0), (2, 2, 1), (2, 3, 2),
    ]  # fmt: skip
    other.check()
    with pytest.raises(LocalProtocolError):
        other.merge([])


def test_replays_of_what_was_acknowledged_take_no_room_and_are_counted_once() -> None:
    box, other = Box(), Box(epoch=2)
    other.tally = box.tally
    for _ in range(3):
        box.add(b"a")
    box.take_unsent()
    box.acknowledge(2, OK, 0.0)
    other.merge([*box.buffer.batches, *box.take_all()])
    taken = other.take_unsent()
    assert [wire.read_header(s.data).first_sequence for s in taken] == [0, 1, 2]
    assert other.owed_batches == 1
    other.acknowledge(3, OK, 1.0)
    assert other.tally.acked_batches == 3
    other.check()


def test_older_batches_behind_newer_ones_expire_in_time() -> None:
    box, other = Box(), Box(epoch=2)
    box.add(b"old", at=0.0)
    other.add(b"new", at=9.0)
    other.take_unsent()
    other.extend(box.take_all())
    assert other.oldest_owed() == 0.0
    assert other.expire(5.0, "late") == 1
    assert other.oldest_owed() == 9.0


def test_what_an_earlier_link_had_sent_is_taken_back_under_the_epoch_of_this_one() -> None:
    earlier, box = Box(), Box(epoch=2)
    lost = earlier.add(b"a")  # under the number that it gets here, too
    box.add(b"b")
    box.take_back([lost], 1)
    headers = [wire.read_header(sealed.data) for sealed in box.take_unsent()]
    assert [(h.epoch, h.link_number) for h in headers] == [(2, 1), (2, 2)]


def test_a_refused_batch_becomes_a_void_with_the_same_sequences_and_goes_out_again() -> None:
    box = Box()
    first, second = box.add(b"a", b"b"), box.add(b"c")
    box.take_unsent()
    assert box.refuse(1, NO)
    assert first.receipt.status == NO
    assert box.tally.failed_messages == 2
    taken = box.take_unsent()
    header = wire.read_header(taken[0].data)
    assert (header.kind, header.link_number, header.first_sequence, header.count) == (
        wire.Kind.VOID, 1, 0, 2,
    )  # fmt: skip
    assert taken[1] is second
    box.check()


def test_what_left_on_another_lane_and_is_refused_here_may_have_arrived_there() -> None:
    box, other = Box(), Box(epoch=2)
    left = box.add(b"a")
    box.take_unsent()
    stayed = box.add(b"b")
    other.extend(box.take_all())
    other.take_unsent()
    assert other.refuse(2, NO)
    assert other.refuse(1, NO)
    for sealed, outcome in ((left, Outcome.UNKNOWN), (stayed, Outcome.FAILED)):
        status = sealed.receipt.status
        assert status is not None
        assert status.outcome is outcome


def test_what_stands_behind_a_void_keeps_its_number_if_a_copy_is_refused_once_more() -> None:
    box = Box()
    box.add(b"a")
    second = box.add(b"b")
    box.take_unsent()
    box.refuse(1, NO)
    assert numbers(box.take_unsent()) == [1, 2]
    assert not box.refuse(1, NO)
    assert box.take_unsent() == []
    box.acknowledge(1, OK, 0.0)
    assert second.link_number == 2
    assert second.receipt.status is None
    box.check()


def test_refusing_what_is_not_under_way_means_nothing() -> None:
    box = Box()
    box.add(b"a")
    assert not box.refuse(1, NO)
    assert not box.refuse(9, NO)


def test_what_expires_is_unknown_if_it_had_left_and_failed_if_not() -> None:
    box = Box(batches=2)
    box.window_batches = 1
    sent, unsent = box.add(b"a", at=0.0), box.add(b"b", at=0.0)
    young = box.add(b"c", at=10.0)
    box.take_unsent()
    assert box.expire(5.0, "late") == 2
    assert sent.receipt.status == SendStatus(outcome=Outcome.UNKNOWN, reason="late")
    assert unsent.receipt.status == SendStatus(outcome=Outcome.FAILED, reason="late")
    assert young.receipt.status is None
    assert (box.tally.unknown_messages, box.tally.failed_messages) == (1, 1)
    assert box.expire(5.0, "late") == 0
    box.check()


def test_a_replay_never_expires() -> None:
    box, other = Box(), Box(epoch=2)
    box.add(b"a", at=0.0)
    box.take_unsent()
    box.acknowledge(1, OK, 0.0)
    other.merge(list(box.buffer.batches))
    assert other.expire(100.0, "late") == 0
    assert wire.read_header(other.take_unsent()[0].data).kind == wire.Kind.DATA


def test_abandoning_settles_everything() -> None:
    box = Box()
    box.window_batches = 1
    sent, unsent = box.add(b"a"), box.add(b"b")
    box.take_unsent()
    box.abandon("closed")
    assert sent.receipt.status is not None
    assert sent.receipt.status.outcome is Outcome.UNKNOWN
    assert unsent.receipt.status is not None
    assert unsent.receipt.status.outcome is Outcome.FAILED
    assert (len(box), box.owed_batches, box.owed_bytes) == (0, 0, 0)
    box.check()


def test_a_hello_begins_each_stream_with_its_lowest_unacknowledged_sequence() -> None:
    box = Box()
    box.add(b"a")
    box.add(b"b", b"c")
    box.take_unsent()
    assert firsts(box) == {box.stream: 0}
    box.acknowledge(1, OK, 0.0)
    assert firsts(box) == {box.stream: 1}
    box.acknowledge(2, OK, 0.0)
    assert firsts(box) == {}


def firsts(box: Box) -> dict[Stream, int]:
    found: dict[Stream, int] = {}
    box.lower_firsts(found)
    return found


def test_what_comes_back_takes_the_place_of_its_spare_copy_once() -> None:
    box = Box()
    box.add(b"free")
    box.seal(Stream("bound", b"bound"), [b"x"], Receipt(NoWaiter()), 0.0, 5)
    box.take_unsent()
    box.unsend()
    (free,) = box.take_unbound({"bound"})
    replayed = copy(free)
    replayed.owed = False
    box.extend([free, replayed])
    assert numbers(list(box)) == [1, 2, 3]
    assert [sealed.spare for sealed in box] == [False] * 3
    box.check()
