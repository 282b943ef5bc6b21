"""Hello and Bye: who is let in, and what the log shows of them."""

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from memory_files import MemoryFiles
from segmented_log import SegmentedLog

from roq.exchange.events import Passed, Received, Stop, Unreachable
from roq.exchange.links import LINK_SECONDS
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import perform
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.protocol import channel, documents
from roq.protocol.batch import Kind
from roq.protocol.channel import Bye, Ready, Refused, StreamState
from roq.protocol.version import WIRE_VERSION


def bye(publisher: Publisher, epoch: int = 0) -> None:
    document = documents.encode(Bye(publisher=publisher.id, epoch=epoch))
    publisher.exchange.tell(Received(publisher.route, (channel.BYE, document)))


def code(answer: Ready | Refused) -> str:
    return answer.code if isinstance(answer, Refused) else "ready"


def test_a_hello_is_answered_with_the_limits_and_the_expected_number() -> None:
    ready = Publisher(exchange(batch_messages=77)).hello()
    assert isinstance(ready, Ready)
    assert (ready.exchange, ready.exchange_epoch, ready.expected) == (NUMBER, EPOCH, 1)
    assert ready.batch_messages == 77


def test_a_new_connection_goes_on_where_the_old_one_was() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send()
    publisher.send()
    ready = publisher.hello()
    assert isinstance(ready, Ready)
    assert ready.expected == 3
    assert publisher.send()


def test_a_new_epoch_begins_at_one() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send()
    publisher.epoch, publisher.number = 2, 0
    ready = publisher.hello()
    assert isinstance(ready, Ready)
    assert ready.expected == 1
    assert publisher.send()


def test_an_older_connection_does_not_take_the_link_back() -> None:
    publisher = Publisher(exchange())
    publisher.attempt = 5
    publisher.hello()
    publisher.attempt = 3
    assert code(publisher.hello()) == "stale_epoch"


def test_another_version_queue_or_epoch_is_refused_with_its_reason() -> None:
    publisher = Publisher(exchange())
    refused = publisher.hello(version=WIRE_VERSION + 1)
    assert isinstance(refused, Refused)
    assert refused.code == "version"
    assert f"speaks version {WIRE_VERSION + 1} " in refused.text
    assert f"version {WIRE_VERSION}:" in refused.text
    assert code(publisher.hello(queue=b"z" * 16)) == "foreign_queue"
    publisher.epoch = 3
    assert code(publisher.hello()) == "ready"
    publisher.epoch = 2
    assert code(publisher.hello()) == "stale_epoch"
    assert publisher.exchange.core.counters.refused_hellos == 3


def test_whoever_left_for_a_higher_epoch_is_told_that_it_moved() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    bye(publisher, epoch=2)
    assert code(publisher.hello()) == "moved"
    publisher.epoch, publisher.number = 2, 0
    assert code(publisher.hello()) == "ready"
    assert publisher.send()


def test_a_bye_ends_the_connection_but_not_the_memory_of_the_link() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send()
    publisher.acked()
    bye(publisher)
    assert publisher.exchange.core.present() == []
    ready = publisher.hello()
    assert isinstance(ready, Ready)
    assert ready.expected == 2


def test_what_was_sent_just_before_a_bye_is_acknowledged() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send()
    bye(publisher, epoch=2)
    assert publisher.acked() == 1


def test_whom_the_monitor_says_to_have_passed_is_refused_with_the_new_addresses() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send()
    publisher.exchange.tell(Passed(publisher.id, 2, ("tcp://b:1",)))
    assert publisher.acked() == 1, "what was taken before"
    assert not publisher.send()
    assert not publisher.send()
    told = publisher.refused()
    assert (told.code, told.link_number, told.addresses) == ("moved", 0, ["tcp://b:1"])
    refused = publisher.hello()
    assert isinstance(refused, Refused)
    assert (refused.code, refused.addresses) == ("moved", ["tcp://b:1"])
    assert len(publisher.exchange.log()) == 1


def test_a_batch_of_the_epoch_that_has_passed_needs_a_hello_as_well() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.exchange.tell(Passed(publisher.id, 2))
    publisher.exchange.settle()
    publisher.epoch, publisher.number = 2, 0
    assert not publisher.send()
    publisher.number = 0
    assert code(publisher.hello()) == "ready"
    assert publisher.send()


def test_a_lower_or_equal_epoch_passes_nobody() -> None:
    publisher = Publisher(exchange(), epoch=5)
    publisher.hello()
    for epoch in (1, 4, 5):
        publisher.exchange.tell(Passed(publisher.id, epoch, ("tcp://old:1",)))
    assert publisher.send()


def test_bye_and_passed_come_in_any_order() -> None:
    first, second = Publisher(exchange()), Publisher(exchange())
    for publisher in (first, second):
        publisher.hello()
        publisher.send()
    bye(first, epoch=2)
    first.exchange.tell(Passed(first.id, 2, ("tcp://b:1",)))
    second.exchange.tell(Passed(second.id, 2, ("tcp://b:1",)))
    bye(second, epoch=2)
    for publisher in (first, second):
        assert channel.NUMBER.pack(1) in {frames[1] for _, frames in publisher.exchange.sent}
        publisher.exchange.answers(publisher.route)
        assert publisher.exchange.core.present() == []
        refused = publisher.hello()
        assert isinstance(refused, Refused)
        assert refused.addresses == ["tcp://b:1"]


def test_whoever_comes_back_under_a_higher_epoch_is_let_in() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.exchange.tell(Passed(publisher.id, 2))
    publisher.epoch, publisher.number = 3, 0
    assert code(publisher.hello()) == "ready"
    publisher.exchange.tell(Passed(publisher.id, 2))
    assert publisher.send()


def test_a_publisher_that_was_never_here_is_not_remembered() -> None:
    publisher = Publisher(exchange())
    publisher.exchange.tell(Passed(publisher.id, 2))
    assert len(publisher.exchange.core.links) == 0


def test_a_bye_for_somebody_else_is_not_obeyed() -> None:
    publisher, other = Publisher(exchange()), Publisher(exchange(), name="other")
    publisher.hello()
    document = documents.encode(Bye(publisher=other.id, epoch=9))
    publisher.exchange.tell(Received(publisher.route, (channel.BYE, document)))
    assert publisher.refused().code == "malformed"
    assert publisher.send()


def test_a_stopping_exchange_takes_no_new_connection_and_serves_the_ones_it_has() -> None:
    publisher, late = Publisher(exchange()), Publisher(exchange(), name="late")
    late.exchange = publisher.exchange
    publisher.hello()
    publisher.exchange.tell(Stop())
    assert code(late.hello()) == "stopping"
    assert publisher.send()


def test_a_full_exchange_refuses_unless_somebody_is_away() -> None:
    first = Publisher(exchange(publishers=1), name="first")
    second = Publisher(first.exchange, name="second")
    first.hello()
    assert code(second.hello()) == "full"
    first.exchange.tell(Unreachable(first.route))
    assert code(second.hello()) == "ready"
    assert first.exchange.core.links.get(first.id) is None


def test_a_publisher_that_is_away_for_long_is_forgotten_but_its_streams_are_not() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send(count=4)
    core = publisher.exchange.core
    publisher.exchange.tell(Unreachable(publisher.route))
    core._publishers.expire(LINK_SECONDS - 1)
    assert len(core.links) == 1
    core._publishers.expire(LINK_SECONDS)
    assert len(core.links) == 0
    assert core.streams.page((b"",), 0, 10)[0] == [(publisher.id, b"t", 4)]
    assert core.totals()[0] == 4


def test_under_the_epoch_that_an_exchange_has_forgotten_nobody_begins_again() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send()
    publisher.exchange.tell(Unreachable(publisher.route))
    publisher.exchange.core._publishers.expire(LINK_SECONDS)
    assert code(publisher.hello()) == "forgotten"
    publisher.epoch += 1
    assert code(publisher.hello()) == "ready"


def test_one_connection_carries_one_publisher() -> None:
    first = Publisher(exchange(), name="same")
    first.hello()
    second = Publisher(first.exchange, name="same!")
    hello = channel.Hello(
        version=WIRE_VERSION, queue=QUEUE, publisher=second.id, epoch=1, attempt=1
    )
    first.exchange.tell(Received(first.route, (channel.HELLO, documents.encode(hello))))
    assert [link.publisher for link in first.exchange.core.present()] == [second.id]


def test_the_log_shows_where_a_stream_stands_that_it_has_not_seen() -> None:
    publisher = Publisher(exchange())
    publisher.hello([StreamState(b"new", 0, 0), StreamState(b"old", 40, 9)])
    ((entry, topic, header),) = publisher.exchange.log()
    assert (topic, header.kind, header.first_sequence) == (b"old", Kind.FENCE, 40)
    assert (header.created_us, header.count, header.link_number) == (9, 0, 0)
    assert publisher.exchange.live[-1][0] == b"old"
    assert entry.offset == 0
    assert publisher.exchange.core.streams.page((b"old",), 0, 9)[0][0][2] == 40


def test_a_reconnection_shows_only_what_the_log_does_not() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send(b"t", 5)
    publisher.hello([StreamState(b"t", 5, 0)])
    assert [header.kind for _, _, header in publisher.exchange.log()] == [Kind.DATA]
    publisher.hello([StreamState(b"t", 8, 0)])
    _, _, header = publisher.exchange.log()[-1]
    assert (header.kind, header.first_sequence) == (Kind.MARKER, 8)


def test_a_new_epoch_of_a_known_publisher_is_fenced_once() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send(b"t", 5)
    bye(publisher, epoch=2)
    publisher.epoch = 2
    publisher.hello([StreamState(b"t", 5, 0)])
    publisher.hello([StreamState(b"t", 5, 0)])
    kinds = [header.kind for _, _, header in publisher.exchange.log()]
    assert kinds == [Kind.DATA, Kind.FENCE]


def test_a_replay_of_what_was_acknowledged_elsewhere_does_not_lower_the_stream() -> None:
    publisher = Publisher(exchange())
    publisher.hello()
    publisher.send(b"t", 50)
    publisher.epoch, publisher.number, publisher.sequences = 2, 0, {b"t": 30}
    publisher.hello([StreamState(b"t", 30, 0)])
    publisher.send(b"t", 5)
    assert publisher.exchange.core.streams.page((b"",), 0, 9)[0][0][2] == 50


def test_a_marker_of_a_publisher_with_few_topics_finds_room_when_another_has_many() -> None:
    there = exchange(topics=64)
    many = Publisher(there, name="many")
    many.hello([StreamState(b"%d" % number, 1, 0) for number in range(64)])
    assert len(there.log()) == 56
    Publisher(there, name="other").hello([StreamState(b"t", 1, 0)])
    assert [topic for _, topic, _ in there.log()][-1] == b"t"
    assert there.core.counters.markers_dropped == 8


def test_a_marker_beyond_the_topic_cap_is_left_out() -> None:
    publisher = Publisher(exchange(topics=1))
    publisher.hello([StreamState(b"a", 1, 0), StreamState(b"b", 1, 0)])
    assert [topic for _, topic, _ in publisher.exchange.log()] == [b"a"]
    assert publisher.exchange.core.counters.markers_dropped == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"publisher": b"short"},
        {"epoch": -1},
        {"attempt": -1},
        {"streams": [StreamState(b"t", -1, 0)]},
        {"streams": [StreamState(b"t", 0, -1)]},
        {"streams": [StreamState(b"\xffE", 0, 0)]},
        {"streams": [StreamState(b"x" * 256, 0, 0)]},
        {"streams": [["not", "a", "stream"]]},
        {"epoch": "one"},
    ],
    ids=str,
)
def test_a_hello_with_wrong_values_is_refused_with_a_sentence(fields: dict[str, object]) -> None:
    document: dict[str, object] = {
        "version": WIRE_VERSION, "queue": QUEUE, "publisher": b"p" * 16, "epoch": 1, "attempt": 1,
        "streams": [], **fields,
    }  # fmt: skip
    document["streams"] = [
        [s.topic, s.first, s.idle_us] if isinstance(s, StreamState) else s
        for s in document["streams"]  # type: ignore[attr-defined]
    ]
    there = exchange()
    there.tell(Received(b"r", (channel.HELLO, documents.encode_raw(document))))
    ((letter, answer),) = there.answers(b"r")
    assert letter == channel.REFUSED
    assert documents.decode(answer, Refused).code == "malformed"
    assert there.core.links.get(Publisher(there).id) is None


def test_a_hello_that_is_no_document_is_refused() -> None:
    there = exchange()
    for document in (b"", b"garbage", b"\x05\x00\x00\x00\x00"):
        there.tell(Received(b"r", (channel.HELLO, document)))
        ((letter, _),) = there.answers(b"r")
        assert letter == channel.REFUSED


def claim(
    publisher: Publisher,
    incarnation: int,
    route: bytes = b"claims",
    earlier: tuple[bytes, ...] = (),
) -> channel.Claimed:
    there = publisher.exchange
    question = channel.Claim(
        queue=QUEUE, publisher=publisher.id, incarnation=incarnation, earlier=list(earlier)
    )
    there.tell(Received(route, (channel.CLAIM, documents.encode(question))))
    ((letter, document),) = there.answers(route)
    assert letter == channel.CLAIM
    return documents.decode(document, channel.Claimed)


def test_a_named_publisher_hears_how_far_an_earlier_one_came_which_is_told_to_end() -> None:
    first = Publisher(exchange(), incarnation=10)
    first.hello()
    first.send(b"a", 3)
    first.send(b"b")
    first.exchange.answers(first.route)
    told = claim(first, 20)
    assert (told.incarnation, sorted(told.streams), told.committed) == (
        20, [(b"a", 3), (b"b", 1)], True,
    )  # fmt: skip
    assert first.refused().code == "fenced"
    assert not first.send(b"a"), "nothing of it is taken any more"
    first.exchange.answers(first.route)
    answer = first.hello()
    assert isinstance(answer, channel.Refused)
    assert answer.code == "fenced"
    second = Publisher(first.exchange, epoch=2, incarnation=20, sequences={b"a": 3, b"b": 1})
    assert isinstance(second.hello([channel.StreamState(b"a", 3, 0)]), channel.Ready)
    assert second.send(b"a")
    assert claim(second, 20).streams[0] == (b"a", 4), "asked again it is told the same"
    assert second.send(b"a"), "and goes on"


def test_a_claim_waits_for_what_came_before_it_and_for_nothing_else() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    there = exchange(late=log)
    named, busy = Publisher(there, name="named"), Publisher(there, name="busy")
    busy.hello()
    busy.send(b"t")
    assert not claim(named, 20).committed
    behind = log.end
    busy.send(b"t")
    assert not claim(named, 20).committed
    log.commit(behind)
    assert claim(named, 20).committed, "though others go on publishing"
    assert claim(named, 20).committed
    assert not claim(named, 21).committed, "a later one is not written down yet"


def test_a_claim_at_an_idle_exchange_is_written_down_before_it_counts() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(EPOCH))
    there = exchange(late=log)
    named = Publisher(there, incarnation=10)
    named.hello()
    named.send(b"t")
    write(files, log, there.core)
    there.answers(named.route)
    assert not claim(named, 20).committed
    write(files, log, there.core)
    assert claim(named, 20).committed
    assert log.gather(there.core.snapshot) is None, "once is enough"
    found = open_log(files, settings(EPOCH + 1))
    later: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, there.limits, late=found)
    later.begin(0.0, 1_000)
    later.recover(0.0, found.recovered.snapshot, found.recovered.since)
    named.exchange = Exchange(later, there.limits, 0.0)
    answer = named.hello()
    assert isinstance(answer, channel.Refused)
    assert answer.code == "fenced"


def settings(epoch: int) -> LogSettings:
    return LogSettings(
        epoch=epoch, queue=QUEUE, exchange=NUMBER, cluster="c", host="h", ring_bytes=1 << 20,
        topics_max=100, topics_spare=0, capacity_bytes=1 << 30, keep_us=1 << 50, now_us=1_000,
    )  # fmt: skip


def write(files: MemoryFiles, log: SegmentLog[bytes], core: ExchangeCore[bytes]) -> None:
    group = log.gather(core.snapshot)
    assert group is not None
    perform(files, group)
    log.commit(group.end)


def test_a_claim_of_a_later_life_ends_the_name_in_its_former_lives() -> None:
    first = Publisher(exchange(), name="first", incarnation=10)
    first.hello()
    first.send(b"a", 3)
    first.exchange.answers(first.route)
    second = Publisher(first.exchange, name="second")
    told = claim(second, 20, earlier=(first.id, b"never heard of..."[:16]))
    assert (told.streams, told.earlier) == ([], [(b"a", 3)])
    assert first.refused().code == "fenced"
    late = Publisher(first.exchange, name="late", incarnation=10)
    assert isinstance(late.hello(), channel.Ready)
    claim(second, 30, earlier=(first.id, late.id))
    assert late.refused().code == "fenced"


def test_a_hello_of_a_later_publisher_is_written_down_with_what_it_sends() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(EPOCH))
    there = exchange(late=log)
    later = Publisher(there, incarnation=20)
    later.hello()
    write(files, log, there.core)
    found = open_log(files, settings(EPOCH + 1))
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, there.limits, late=found)
    core.begin(0.0, 1_000)
    core.recover(0.0, found.recovered.snapshot, found.recovered.since)
    earlier = Publisher(Exchange(core, there.limits, 0.0), incarnation=10)
    answer = earlier.hello()
    assert isinstance(answer, channel.Refused)
    assert answer.code == "fenced"


def test_an_older_claim_is_told_of_the_newer_one_and_changes_nothing() -> None:
    publisher = Publisher(exchange(), incarnation=20)
    assert claim(publisher, 20).incarnation == 20
    publisher.hello()
    assert claim(publisher, 15).incarnation == 20
    assert publisher.send()


def test_who_is_not_known_has_no_streams() -> None:
    assert claim(Publisher(exchange()), 5).streams == []


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (channel.Claim(queue=b"r" * 16, publisher=b"p" * 16, incarnation=1), "foreign_queue"),
        (channel.Claim(queue=QUEUE, publisher=b"p", incarnation=1), "malformed"),
        (
            channel.Claim(queue=QUEUE, publisher=b"p" * 16, incarnation=1, earlier=[b"p" * 16] * 8),
            "malformed",
        ),
    ],
)
def test_a_claim_that_cannot_be_is_refused(question: channel.Claim, code: str) -> None:
    there = exchange()
    there.tell(Received(b"r", (channel.CLAIM, documents.encode(question))))
    ((letter, document),) = there.answers(b"r")
    assert letter == channel.REFUSED
    assert documents.decode(document, channel.Refused).code == code


def test_a_later_process_knows_who_was_claimed() -> None:
    publisher = Publisher(exchange(), incarnation=20)
    claim(publisher, 20)
    publisher.hello()
    publisher.send()
    core = publisher.exchange.core
    later: ExchangeCore[bytes] = ExchangeCore(
        QUEUE, NUMBER, EPOCH + 1, publisher.exchange.limits, core.log
    )
    later.recover(0.0, core.snapshot(), core.log.end)
    link = later.links.get(publisher.id)
    assert link is not None
    assert link.incarnation == 20


def test_a_named_publisher_that_is_away_is_not_forgotten_while_there_is_room() -> None:
    publisher = Publisher(exchange(), incarnation=20)
    publisher.hello()
    there = publisher.exchange
    there.tell(Unreachable(publisher.route))
    there.now = 10 * LINK_SECONDS
    there.tell(Tick())
    assert there.core.links.get(publisher.id) is not None


def test_a_claim_makes_no_room_by_what_it_claims() -> None:
    there = exchange(publishers=3)
    names = [Publisher(there, name=name) for name in ("older", "other", "third")]
    for number, each in enumerate(names):
        there.now = float(number)
        each.hello()
        there.tell(Unreachable(each.route))
    older, other, third = names
    new = Publisher(there, name="new")
    assert claim(new, 20, earlier=(older.id, third.id)).incarnation == 20
    links = there.core.links
    assert links.get(other.id) is None, "it was seen later than the oldest, and is not claimed"
    for each in (new, older, third):
        link = links.get(each.id)
        assert link is not None
        assert (link.incarnation, link.seen) == (20, there.now)
    there.core.check()


def test_a_claim_for_which_there_is_no_room_is_refused_and_fences_nobody() -> None:
    there = exchange(publishers=2)
    older, busy = Publisher(there, name="older"), Publisher(there, name="busy")
    older.hello()
    busy.hello()
    there.tell(Unreachable(older.route))
    question = channel.Claim(
        queue=QUEUE, publisher=b"n" * 16, incarnation=20, earlier=[bytes(older.id)]
    )
    there.tell(Received(b"r", (channel.CLAIM, documents.encode(question))))
    ((letter, document),) = there.answers(b"r")
    assert letter == channel.REFUSED
    assert documents.decode(document, channel.Refused).code == "full"
    link = there.core.links.get(older.id)
    assert link is not None
    assert link.incarnation == 0
