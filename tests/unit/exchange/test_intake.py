"""Batches: each into the log once and in order, and an answer for every other one."""

import pytest
from exchange_driver import Publisher, exchange

from roq.protocol import batch, channel
from roq.protocol.batch import HEADER_BYTES, Kind
from roq.timing import RESET_REPEAT_SECONDS


def connected(**limits: int) -> Publisher:
    publisher = Publisher(exchange(**limits))
    publisher.hello()
    return publisher


def test_a_burst_is_acknowledged_once_by_its_last_number() -> None:
    publisher = connected()
    assert all(publisher.send() for _ in range(5))
    assert publisher.acked() == 5
    assert publisher.exchange.answers(publisher.route) == []


def test_what_is_published_is_topic_entry_and_the_batch_as_it_came() -> None:
    publisher = connected()
    data = publisher.batch(b"eu.be", 3)
    publisher.exchange.append(publisher.route, b"eu.be", data)
    topic, entry, body = publisher.exchange.live[-1]
    assert (topic, body) == (b"eu.be", data)
    assert publisher.exchange.log()[0][0].offset == 0
    assert publisher.exchange.core.log.record(0)[1] == entry


def test_a_duplicate_is_acknowledged_again_and_not_logged() -> None:
    publisher = connected()
    first = publisher.batch(b"t")
    publisher.exchange.append(publisher.route, b"t", first)
    publisher.send()
    assert publisher.acked() == 2
    assert not publisher.exchange.append(publisher.route, b"t", first)
    assert publisher.acked() == 2
    assert len(publisher.exchange.log()) == 2
    assert publisher.exchange.core.counters.duplicates == 1


def test_a_gap_asks_once_for_a_replay_from_the_expected_number() -> None:
    publisher = connected()
    publisher.send()
    publisher.number += 1  # batch 2 is lost
    for _ in range(5):
        assert not publisher.send()
    letters = [frames[0] for frames in publisher.exchange.answers(publisher.route)]
    assert sorted(letters) == [channel.ACK, channel.RESET]
    assert publisher.exchange.core.counters.resets == 1


def test_a_gap_that_persists_asks_again_after_a_while() -> None:
    publisher = connected()
    publisher.number += 1
    publisher.send()
    assert publisher.reset() == 1
    publisher.exchange.core.begin(RESET_REPEAT_SECONDS + 1, 1_000)
    publisher.send()
    assert publisher.reset() == 1


def test_a_second_gap_after_a_replay_is_told_at_once() -> None:
    publisher = connected()
    for _ in range(2):
        publisher.number += 1
        publisher.send()
        missing = publisher.reset()
        publisher.number = missing - 1
        assert publisher.send()
        assert publisher.send()
        assert publisher.acked() == missing + 1


def test_data_without_hello_is_told_to_say_hello_at_a_bounded_rate() -> None:
    publisher = Publisher(exchange())
    for _ in range(10):
        assert not publisher.send()
    assert publisher.reset() == 0
    assert publisher.exchange.core.counters.without_hello == 10


def test_data_of_another_epoch_than_the_hello_is_told_to_say_hello() -> None:
    publisher = connected()
    publisher.epoch = 2
    assert not publisher.send()
    assert publisher.reset() == 0


def test_data_on_a_superseded_connection_is_told_to_say_hello() -> None:
    publisher = connected()
    old = publisher.route
    publisher.hello()
    data = publisher.batch(b"t")
    assert not publisher.exchange.append(old, b"t", data)
    ((letter, _),) = publisher.exchange.answers(old)
    assert letter == channel.RESET


def test_a_batch_with_too_many_messages_is_refused_by_its_number_and_a_void_takes_its_place() -> (
    None
):
    publisher = connected(batch_messages=10)
    publisher.send()
    publisher.acked()
    data = publisher.batch(b"t", 11)
    assert not publisher.exchange.append(publisher.route, b"t", data)
    refused = publisher.refused()
    assert (refused.code, refused.link_number) == ("too_large", 2)
    # What is under way behind it asks for nothing more.
    assert not publisher.send()
    assert publisher.exchange.answers(publisher.route) == []
    publisher.sequences[b"t"] = 1
    assert publisher.exchange.append(publisher.route, b"t", publisher.void(b"t", 11, 2))
    assert publisher.acked() == 2
    _, _, header = publisher.exchange.log()[-1]
    assert (header.kind, header.next_sequence) == (Kind.VOID, 12)


def test_a_batch_above_the_size_limit_is_refused_by_its_number() -> None:
    publisher = connected(message_bytes=100, batch_bytes=100)
    data = batch.pack(
        [b"x" * 70_000], publisher=publisher.id, epoch=1, link_number=1, first_sequence=0,
        created_us=0,
    )  # fmt: skip
    assert not publisher.exchange.append(publisher.route, b"t", data)
    assert (publisher.refused().code, publisher.exchange.core.log.end) == ("too_large", 0)


def test_a_batch_on_a_topic_beyond_the_cap_is_refused_and_its_void_is_not_logged() -> None:
    publisher = connected(topics=1)
    publisher.send(b"a")
    publisher.acked()
    assert not publisher.send(b"b")
    refused = publisher.refused()
    assert (refused.code, refused.link_number) == ("topics", 2)
    assert not publisher.exchange.append(publisher.route, b"b", publisher.void(b"b", 1, 2))
    assert publisher.acked() == 2
    assert len(publisher.exchange.log()) == 1
    assert publisher.exchange.core.counters.voids_dropped == 1


def test_a_void_is_never_refused() -> None:
    publisher = connected()
    for number, topic in enumerate([b"\xff\xff", b"x" * 300], 1):
        assert not publisher.exchange.append(publisher.route, topic, publisher.batch(topic))
        assert publisher.refused().link_number == number
        void = publisher.void(topic, 1, number)
        assert not publisher.exchange.append(publisher.route, topic, void)
        assert publisher.acked() == number
    assert publisher.send()
    assert publisher.acked() == 3


def test_a_publisher_with_ever_new_topics_leaves_others_theirs() -> None:
    there = exchange(topics=640)
    many, other = Publisher(there, name="many"), Publisher(there, name="other")
    many.hello()
    other.hello()
    assert all(many.send(b"u%d" % number) for number in range(560))
    assert many.acked() == 560
    assert not many.send(b"one more")
    refused = many.refused()
    assert refused.code == "topics"
    assert "this one has 560: use fewer topics" in refused.text
    assert other.send(b"orders")
    many.number = 560
    assert many.send(b"u3"), "what it has goes on"


def test_topics_that_the_log_has_forgotten_do_not_come_back_into_what_is_kept() -> None:
    there = exchange(topics=64, ring_bytes=30_000)
    many, other = Publisher(there, name="many"), Publisher(there, name="other")
    many.hello()
    other.hello()
    assert all(many.send(b"u%d" % number, 400) for number in range(64))
    assert there.core.log.topics <= 56 < len(there.core.streams)
    assert not all(many.send(b"u%d" % number) for number in range(64))
    assert there.core.log.topics == 56
    assert other.send(b"orders")


@pytest.mark.parametrize("topic", [b"\xc3\x28", b"x" * 256], ids=["not UTF-8", "too long"])
def test_a_batch_on_what_is_no_topic_is_refused_by_its_number(topic: bytes) -> None:
    publisher = connected()
    assert not publisher.send(topic)
    refused = publisher.refused()
    assert (refused.code, refused.link_number) == ("malformed", 1)


def test_markers_and_fences_are_not_taken_from_publishers() -> None:
    publisher = connected()
    for kind in (Kind.MARKER, Kind.FENCE):
        data = publisher.void(b"t", 0, 1, kind)
        assert not publisher.exchange.append(publisher.route, b"t", data)
        assert publisher.refused().code == "malformed"


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"RQ\x02", b"x" * HEADER_BYTES, b"RQ\x02\x09" + b"\0" * 60, b"x" * 1000],
    ids=["empty", "one byte", "short", "zeros", "kind", "long"],
)
def test_what_is_no_batch_is_answered_and_counted(data: bytes) -> None:
    publisher = connected()
    assert not publisher.exchange.append(publisher.route, b"t", data)
    refused = publisher.refused()
    assert (refused.code, refused.link_number) == ("malformed", 0)
    assert publisher.exchange.core.counters.malformed == 1
    assert publisher.send()


def test_a_readable_number_on_an_unreadable_batch_is_refused_by_this_number() -> None:
    publisher = connected()
    data = bytearray(publisher.batch(b"t"))
    data[8:12] = (1 << 30).to_bytes(4, "little")  # the count
    assert not publisher.exchange.append(publisher.route, b"t", bytes(data))
    assert publisher.refused().link_number == 1


def test_a_batch_of_another_format_is_refused_by_version() -> None:
    publisher = connected()
    data = bytearray(publisher.batch(b"t"))
    data[2] = 9
    assert not publisher.exchange.append(publisher.route, b"t", bytes(data))
    assert publisher.refused().code == "version"


def test_a_quiet_link_gets_its_ack_again_so_that_a_lost_connection_shows() -> None:
    publisher = connected()
    publisher.send()
    publisher.acked()
    publisher.exchange.core.begin(60.0, 1_000)
    for _ in range(4):
        publisher.exchange.core.intake.probe()
    assert publisher.acked() == 1


def test_an_ack_that_could_not_be_sent_is_owed_again() -> None:
    publisher = connected()
    publisher.send()
    (link,) = publisher.exchange.core.take_acks()
    publisher.exchange.core.intake.ack_later(link)
    for _ in range(4):
        publisher.exchange.core.intake.probe()
    assert publisher.acked() == 1
    assert publisher.exchange.core.counters.acks_skipped == 1


def test_messages_and_bytes_are_counted_per_publisher_and_per_copy() -> None:
    publisher = connected()
    for prefix in (b"", b"eu.", b"us."):
        publisher.exchange.core.subscriptions.add(prefix)
    publisher.send(b"eu.be", 10)
    core = publisher.exchange.core
    assert core.totals()[0] == 10
    assert core.totals()[2] == 1
    assert core.counters.messages_out == 20


def test_a_sequence_far_above_the_last_is_refused_and_its_void_leaves_no_trace() -> None:
    publisher = connected()
    publisher.send()
    publisher.acked()
    publisher.sequences[b"t"] = (1 << 63) - 3
    assert not publisher.send()
    refused = publisher.refused()
    assert (refused.code, refused.link_number) == ("malformed", 2)
    assert "too far above 1" in refused.text
    void = publisher.void(b"t", 1, 2)
    assert not publisher.exchange.append(publisher.route, b"t", void)
    assert publisher.acked() == 2
    core = publisher.exchange.core
    assert core.streams.of(publisher.id)[b"t"].next == 1
    assert core.counters.malformed == 2


def test_a_time_that_no_calendar_has_is_refused() -> None:
    publisher = connected()
    data = publisher.batch(b"t")
    late = data[:56] + (2**64 - 1).to_bytes(8, "little") + data[64:]
    assert not publisher.exchange.append(publisher.route, b"t", late)
    refused = publisher.refused()
    assert (refused.code, refused.link_number) == ("malformed", 1)


def test_who_asks_is_told_where_its_batches_lie_among_those_of_others() -> None:
    asks = connected()
    other = Publisher(asks.exchange, "q")
    other.hello()
    asks.places = 1
    asks.hello()
    for publisher in (asks, asks, other, asks):
        assert publisher.send()
    ((_, body),) = asks.exchange.answers(asks.route)
    assert (channel.read_number(body), channel.read_runs(body)) == (3, [(1, 0, 2), (3, 3, 1)])
    ((_, body),) = asks.exchange.answers(other.route)
    assert body == channel.NUMBER.pack(1)
    assert asks.send()
    ((_, body),) = asks.exchange.answers(asks.route)
    assert (channel.read_number(body), channel.read_runs(body)) == (4, [(4, 4, 1)])


def test_who_connects_again_is_told_the_places_that_it_lacks() -> None:
    publisher = connected()
    publisher.places = 1
    publisher.hello()
    for _ in range(3):
        publisher.send()
    publisher.places = 2
    ready = publisher.hello()
    assert isinstance(ready, channel.Ready)
    assert (ready.expected, ready.places) == (4, [(2, 1, 2)])
    publisher.places = 0
    ready = publisher.hello()
    assert isinstance(ready, channel.Ready)
    assert ready.places == []


def test_a_retired_exchange_takes_nothing_and_asks_for_it_when_that_is_taken_back() -> None:
    publisher = connected()
    there = publisher.exchange
    assert publisher.send()
    assert publisher.acked() == 1
    there.core.disk.retire(retired=True)
    assert there.core.retired
    there.core.begin(1.0, 1_000)
    assert not publisher.send()
    assert not publisher.send()
    assert there.answers(publisher.route) == []
    assert there.core.disk_full == ""
    there.core.disk.retire(retired=False)
    assert not there.core.retired
    there.core.begin(2.0, 1_000)
    assert publisher.reset() == 2
    publisher.number = 1
    assert publisher.send()
    assert publisher.acked() == 2
