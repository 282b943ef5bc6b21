"""Publishers wait for the slowest subscriber that is there and reads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from exchange_driver import EPOCH, QUEUE, Exchange, Publisher, exchange
from segmented_log import SegmentedLog

from roq.exchange.backpressure import FORGET_SECONDS, HOLD_SECONDS, LEFT_SECONDS, Backpressure
from roq.exchange.events import Passed, Received, Unreachable, Unsubscribed
from roq.machine import Tick
from roq.protocol import batch, channel, documents
from roq.protocol.channel import HELD, POSITION, PRESENCE_TOPIC, Held, Position, Reading
from roq.timing import ACK_SILENCE_SECONDS, READER_GONE_SECONDS, RESET_ASK_SECONDS

RING = 64_000
TICK = 0.5


@dataclass
class Reader:
    """A subscriber that reads when the test wants."""

    exchange: Exchange
    name: bytes = b"s"
    number: int = 0
    read: int = 0

    @property
    def id(self) -> bytes:
        return self.name.ljust(channel.READER_BYTES, b".")

    def report(self, read: int | None = None, since: int = 0, until: int = 0) -> Reading:
        self.number += 1
        self.read = self.read if read is None else read
        request = Position(
            id=self.number, queue=QUEUE, generation=EPOCH, reader=self.id, name=self.name,
            read=self.read, prefixes=[b""] if until else [], since=since, until=until,
        )  # fmt: skip
        self.exchange.tell(Received(self.name, (POSITION, documents.encode(request))))
        self.exchange.serve()
        ((_, document),) = [frames for to, frames in self.exchange.sent if to == self.name]
        self.exchange.sent = [row for row in self.exchange.sent if row[0] != self.name]
        return documents.decode(document, Reading)

    def leave(self) -> None:
        request = Position(
            id=self.number + 1, queue=QUEUE, generation=EPOCH, reader=self.id, name=self.name,
            read=self.read, leaves=True,
        )  # fmt: skip
        self.exchange.tell(Received(self.name, (POSITION, documents.encode(request))))
        self.exchange.serve()

    def read_all(self) -> Reading:
        return self.report(self.exchange.core.log.end)


def crowd(*names: bytes, **limits: int) -> tuple[Exchange, Publisher, list[Reader]]:
    made = exchange(ring_bytes=RING, **limits)
    publisher = Publisher(made)
    publisher.hello()
    readers = [Reader(made, name) for name in names]
    for reader in readers:
        reader.report(0)
    return made, publisher, readers


def publish(publisher: Publisher, batches: int) -> int:
    """Send as an exchange's shell would take it; how many went into the log."""
    taken = 0
    for _ in range(batches):
        publisher.exchange.core.begin(publisher.exchange.now, 1_000)
        taken += publisher.send(b"t", 50)
        publisher.exchange.settle()
    return taken


def pass_time(made: Exchange, seconds: float, *alive: Reader) -> None:
    for _ in range(round(seconds / TICK)):
        made.now += TICK
        for reader in alive:
            reader.report()
        made.tell(Tick())
        made.settle()


def acked(publisher: Publisher) -> int:
    """The last ack, and forget what else was said."""
    numbers = [
        channel.read_number(frames[1])
        for frames in publisher.exchange.answers(publisher.route)
        if frames[0] == channel.ACK
    ]
    return max(numbers, default=0)


def held(publisher: Publisher) -> list[Held]:
    return [
        documents.decode(frames[1], Held)
        for frames in publisher.exchange.answers(publisher.route)
        if frames[0] == HELD
    ]


def test_without_subscribers_the_ring_turns_over() -> None:
    made, publisher, _ = crowd()
    assert publish(publisher, 500) == 500
    assert acked(publisher) == 500
    assert made.core.log.floor > 0


def test_near_the_end_of_the_ring_acks_wait_and_nothing_leaves_that_is_not_read() -> None:
    made, publisher, (reader,) = crowd(b"s")
    taken = publish(publisher, 500)
    assert taken < 500
    assert made.core.log.floor == 0, "the reader has read nothing"
    last = acked(publisher)
    assert 0 < last < taken, "the rest of the ring is for what is under way"
    reader.read_all()
    assert acked(publisher) == taken


def test_a_subscriber_that_leaves_is_waited_for_no_longer() -> None:
    made, publisher, (leaving, staying) = crowd(b"leaving", b"staying")
    taken = publish(publisher, 500)
    staying.report(taken)
    assert acked(publisher) < taken
    leaving.leave()
    made.settle()
    assert acked(publisher) == taken
    assert [frames for to, frames in made.sent if to == leaving.name] == [], "nobody reads it"
    leaving.leave()  # it comes twice, or the exchange has never known it
    made.core.backpressure.check()


def test_what_there_was_no_room_for_is_asked_for_again_and_once() -> None:
    made, publisher, (reader,) = crowd(b"s")
    taken = publish(publisher, 500)
    made.answers(publisher.route)
    reader.read_all()
    kinds = [(frames[0], frames) for frames in made.answers(publisher.route)]
    assert [kind for kind, _ in kinds] == [channel.ACK, channel.RESET]
    assert documents.decode(kinds[1][1][1], channel.Reset).expected == taken + 1
    assert made.core.counters.held_batches == 1


def test_the_slowest_of_several_counts() -> None:
    made, publisher, (slow, quick) = crowd(b"slow", b"quick")
    taken = publish(publisher, 500)
    quick.read_all()
    assert publish(publisher, 1) == 0
    slow.report(taken // 2)
    made.settle()
    assert made.core.log.floor <= taken // 2


def test_publishers_are_told_twice_a_second_for_whom_they_wait() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    made.answers(publisher.route)
    pass_time(made, 2.0, reader)
    told = held(publisher)
    assert len(told) == 4
    assert (told[-1].reader, told[-1].most) == (b"s", 10.0)
    assert told[-1].seconds == pytest.approx(2.0, abs=TICK)


def test_one_that_stands_still_is_left_behind_once() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    made.answers(publisher.route)
    pass_time(made, 9.0, reader)
    assert made.core.backpressure.near
    pass_time(made, 1.5, reader)
    assert not made.core.backpressure.near
    assert (made.core.backpressure.left_behind, len(made.core.backpressure.behind)) == (1, 1)
    assert reader.report().behind
    publisher.number = acked(publisher)
    assert publish(publisher, 500) == 500


def test_who_has_caught_up_is_waited_for_again_but_not_for_as_long() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    pass_time(made, 10.5, reader)
    assert reader.report().behind
    assert not reader.read_all().behind
    publisher.number = acked(publisher)
    publish(publisher, 500)
    assert made.core.backpressure.near
    pass_time(made, 1.5, reader)
    assert not made.core.backpressure.near
    assert made.core.backpressure.left_behind == 2


def test_who_reads_for_as_long_as_it_was_waited_for_is_given_as_long_again() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    pass_time(made, 10.5, reader)
    reader.read_all()
    publisher.number = acked(publisher)
    for _ in range(25):
        publisher.number -= 1 - publish(publisher, 1)
        reader.read_all()
        pass_time(made, TICK)
    publish(publisher, 500)
    pass_time(made, 9.0, reader)
    assert made.core.backpressure.near


def test_a_steady_reader_is_waited_for_as_long_as_it_takes() -> None:
    made, publisher, (reader,) = crowd(b"s")
    taken = publish(publisher, 500)
    for _ in range(200):
        reader.read = min(reader.read + 2, made.core.log.end)
        pass_time(made, TICK, reader)
        publisher.number = made.core.links.routes[publisher.route].expected - 1
        taken += publish(publisher, 3)
    assert made.core.backpressure.left_behind == 0
    assert made.core.log.floor <= reader.read


def test_who_says_nothing_any_more_is_not_waited_for() -> None:
    made, publisher, _ = crowd(b"s")
    publish(publisher, 500)
    pass_time(made, READER_GONE_SECONDS)
    assert made.core.backpressure.near
    pass_time(made, 2 * TICK)
    assert not made.core.backpressure.near
    pass_time(made, FORGET_SECONDS)
    assert not made.core.backpressure.behind


def test_who_has_read_everything_need_not_say_so() -> None:
    made, publisher, (reader,) = crowd(b"s")
    pass_time(made, 60.0)
    publish(publisher, 500)
    assert made.core.backpressure.near
    assert reader.read == 0


def test_who_has_closed_its_fan_out_is_waited_for_a_moment_only() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    made.tell(Unsubscribed(PRESENCE_TOPIC + b"\0" + reader.id))
    pass_time(made, LEFT_SECONDS + 2 * TICK)
    assert not made.core.backpressure.near


def test_a_newcomer_with_much_to_read_is_waited_for_when_it_has_read_most_of_it() -> None:
    made, publisher, _ = crowd()
    publish(publisher, 500)
    late = Reader(made, b"late")
    assert not late.report(made.core.log.floor).behind
    assert publish(publisher, 10) == 10
    late.read_all()
    publish(publisher, 500)
    assert made.core.backpressure.near


def test_nobody_is_waited_for_where_the_rules_say_so() -> None:
    made, publisher, (reader,) = crowd(b"s")
    made.core.backpressure.rule(0)
    assert publish(publisher, 500) == 500
    assert not reader.report().behind


def test_a_stopped_process_does_not_take_its_readers_for_silent() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    pass_time(made, 1.0, reader)
    made.now += 100.0
    made.tell(Tick())
    assert made.core.backpressure.near


def test_who_has_everything_lets_a_batch_through_that_is_larger_than_the_ring() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 1)
    assert not made.core.backpressure.room(2 * RING)
    reader.read_all()
    assert made.core.backpressure.room(2 * RING)


def test_a_position_is_answered_with_what_there_is_below_it() -> None:
    _, publisher, (reader,) = crowd(b"s")
    for topic in (b"a", b"b", b"a", b"c"):
        publisher.send(topic)
    assert reader.report(0, since=0, until=3).heads == [(b"b", 1), (b"a", 2)]
    assert reader.report(0, since=2, until=9).heads == [(b"a", 2), (b"c", 3)]
    assert reader.report(0, since=2, until=9).until == 4
    assert reader.report().heads == []


def test_a_publisher_that_moves_away_meanwhile_gets_its_last_ack() -> None:
    made, publisher, _ = crowd(b"s")
    taken = publish(publisher, 500)
    made.answers(publisher.route)
    bye = documents.encode(channel.Bye(publisher=publisher.id, epoch=2))
    made.tell(Received(publisher.route, (channel.BYE, bye)))
    ((letter, number),) = made.answers(publisher.route)
    assert (letter, channel.read_number(number)) == (channel.ACK, taken)


def test_silent_links_are_not_acknowledged_while_they_are_held() -> None:
    made, publisher, (reader,) = crowd(b"s")
    publish(publisher, 500)
    made.answers(publisher.route)
    pass_time(made, 4 * ACK_SILENCE_SECONDS, reader)
    assert acked(publisher) == 0


LARGE = 24_000


def send_large(publisher: Publisher, *, again: bool = False) -> bool:
    """Send a batch for which there is no room long before the mark, for the first time or again."""
    publisher.number -= again
    body = batch.pack(
        [bytes(LARGE)], publisher=publisher.id, epoch=publisher.epoch,
        link_number=publisher.number + 1, first_sequence=0, created_us=7,
    )  # fmt: skip
    publisher.number += 1
    publisher.exchange.core.begin(publisher.exchange.now, 1_000)
    taken = publisher.exchange.append(publisher.route, b"large", body)
    publisher.exchange.settle()
    return taken


def fill(made: Exchange, publisher: Publisher, share: float) -> None:
    while made.core.log.kept < share * RING:
        assert publish(publisher, 1)


def resets(made: Exchange, publisher: Publisher) -> list[int]:
    return [
        documents.decode(frames[1], channel.Reset).expected
        for frames in made.answers(publisher.route)
        if frames[0] == channel.RESET
    ]


def test_who_stands_still_does_not_hold_a_large_batch_for_ever() -> None:
    made, publisher, (reader,) = crowd(b"s")
    fill(made, publisher, 0.75)
    assert not send_large(publisher)
    pass_time(made, 9.0, reader)
    assert made.core.backpressure.near
    assert resets(made, publisher) == [], "it is asked for when there is room"
    pass_time(made, 2.0, reader)
    assert made.core.backpressure.left_behind == 1
    assert resets(made, publisher) == [publisher.number]
    assert send_large(publisher, again=True)


def test_a_large_batch_waits_until_the_reader_has_read_on_so_far() -> None:
    made, publisher, (reader,) = crowd(b"s")
    fill(made, publisher, 0.75)
    assert not send_large(publisher)
    reader.report(1)
    assert made.core.backpressure.near
    reader.report(made.core.log.end // 2)
    assert resets(made, publisher) == [publisher.number]
    assert send_large(publisher, again=True)
    assert made.core.log.floor <= reader.read


@pytest.mark.parametrize("moved", [False, True])
def test_a_large_batch_whose_publisher_has_gone_holds_nobody(*, moved: bool) -> None:
    made, publisher, (reader,) = crowd(b"s")
    fill(made, publisher, 0.75)
    other = Publisher(made, "other")
    other.hello()
    assert not send_large(other)
    made.tell(Passed(other.id, 2, ()) if moved else Unreachable(other.route))
    pass_time(made, 2 * TICK, reader)
    assert not made.core.backpressure.near


def test_what_has_no_room_twice_is_not_asked_for_before_its_publisher_takes_notice() -> None:
    made, publisher, (reader,) = crowd(b"s")
    other = Publisher(made, "other")
    other.hello()
    fill(made, publisher, 0.75)
    assert not send_large(other)
    reader.read_all()
    assert resets(made, other) == [1]
    publish(publisher, 500)
    assert not send_large(other, again=True)
    reader.read_all()
    assert resets(made, other) == [], "a publisher is deaf to it for a second"
    made.now += RESET_ASK_SECONDS
    made.tell(Tick())
    made.settle()
    assert resets(made, other) == [1]
    assert send_large(other, again=True)


def test_who_has_to_fetch_old_batches_again_is_the_slowest_at_once() -> None:
    made, publisher, (one, other) = crowd(b"one", b"other")
    taken = publish(publisher, 100)
    one.read_all()
    other.report(taken // 2)
    one.report(taken // 4)
    slowest = made.core.backpressure.slowest
    assert slowest is not None
    assert slowest.name == b"one"


def test_readers_hear_at_once_that_publishers_wait() -> None:
    made, publisher, (reader,) = crowd(b"s")
    assert not reader.report(0).near
    made.settle()
    before = 0
    while not made.core.backpressure.near:
        made.settle()
        before = sum(frames[0] == channel.END_TOPIC for frames in made.live)
        publisher.send(b"t", 20)
        made.core.begin(made.now, 1_000)
    made.settle()
    assert sum(frames[0] == channel.END_TOPIC for frames in made.live) > before
    assert reader.report(1).near
    assert not reader.read_all().near


def test_nobody_is_blamed_for_what_the_log_has_not_committed_yet() -> None:
    """A log on disk commits late: a reader that has read what it may read holds nobody."""
    log = SegmentedLog[bytes](QUEUE, 1, EPOCH, capacity_bytes=RING, topics_max=10, commits=False)
    held = Backpressure[bytes](log)
    reader = b"r" * channel.READER_BYTES
    held.report(reader, b"s", 0)
    while held.room(1_000):
        assert log.append(b"t", b"batch", 1_000) is not None
        held.look()
    assert log.end > 40
    now = 0.0
    while now < 3 * HOLD_SECONDS:
        now += TICK
        held.tick(now)
        held.report(reader, b"s", 0)
        assert not held.near
    assert (held.behind, held.left_behind, held.held_seconds) == ([], 0, 0.0)
    assert not held.room(1_000)  # it has to read what is not committed before that may be dropped

    log.commit()
    held.look()
    assert held.near
    held.report(reader, b"s", log.end)
    assert not held.near
    assert held.room(1_000)


def test_who_does_not_read_what_is_committed_is_left_behind_also_if_more_is_not() -> None:
    log = SegmentedLog[bytes](QUEUE, 1, EPOCH, capacity_bytes=RING, topics_max=10, commits=False)
    held = Backpressure[bytes](log)
    reader = b"r" * channel.READER_BYTES
    held.report(reader, b"s", 0)
    while held.room(1_000):
        assert log.append(b"t", b"batch", 1_000) is not None
        if log.end == 10:
            log.commit()
        held.look()
    now = 0.0
    while not held.behind and now < 3 * HOLD_SECONDS:
        now += TICK
        held.tick(now)
        held.report(reader, b"s", 0)
    assert now == pytest.approx(HOLD_SECONDS, abs=2 * TICK)
    assert held.left_behind == 1
