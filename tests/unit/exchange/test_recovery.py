"""What an exchange knows that goes on with the log of an earlier process."""

from __future__ import annotations

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from segmented_log import SegmentedLog

from roq.exchange.links import LINK_SECONDS
from roq.exchange.machine import ExchangeCore
from roq.machine import Tick
from roq.model import Limits
from roq.protocol.channel import Ready, StreamState
from roq.protocol.entry import read_entry


@pytest.fixture
def log() -> SegmentedLog[bytes]:
    return SegmentedLog(QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False)


def successor(there: Exchange, **limits: int) -> Exchange:
    """Another process at the same log, of which only what was committed is left."""
    log, allowed = there.core.log, Limits(**limits)
    assert isinstance(log, SegmentedLog)
    log.crash()
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, there.core.epoch + 1, allowed, log)
    core.begin(there.now, 2_000)
    core.recover(there.now)
    return Exchange(core, allowed, there.now)


def goes_on(publisher: Publisher, at: Exchange) -> Ready:
    """The publisher connects there."""
    publisher.exchange = at
    ready = publisher.hello()
    assert isinstance(ready, Ready)
    return ready


def test_links_expect_what_comes_after_what_was_committed(log: SegmentedLog[bytes]) -> None:
    publisher = Publisher(exchange(log))
    publisher.hello()
    publisher.send(b"t")
    log.commit()
    publisher.send(b"t")
    ready = goes_on(publisher, successor(publisher.exchange))
    assert (ready.expected, ready.exchange_epoch, ready.generation) == (2, EPOCH + 1, EPOCH)


def test_who_comes_back_is_told_where_lies_what_was_not_acknowledged(
    log: SegmentedLog[bytes],
) -> None:
    publisher, other = Publisher(exchange(log), places=1), Publisher(exchange(log), name="o")
    other.exchange = publisher.exchange
    for each in (publisher, other):
        each.hello()
    for each in (publisher, other, publisher, publisher):
        each.send(b"t")
    log.commit()
    there = successor(publisher.exchange)
    publisher.places = 2
    assert goes_on(publisher, there).places == [(2, 2, 2)]
    assert goes_on(other, there).places == []
    publisher.send(b"t")
    log.commit()
    publisher.exchange.settle()
    assert goes_on(publisher, there).places == [(2, 2, 3)]


def test_what_comes_then_is_not_known_as_committed_before_it_is(log: SegmentedLog[bytes]) -> None:
    publisher = Publisher(exchange(log))
    publisher.hello()
    publisher.send(b"t")
    log.commit()
    goes_on(publisher, successor(publisher.exchange))
    publisher.send(b"t")
    assert goes_on(publisher, publisher.exchange).expected == 2


def test_a_link_has_the_numbers_of_its_last_epoch(log: SegmentedLog[bytes]) -> None:
    publisher = Publisher(exchange(log))
    publisher.hello()
    for _ in range(3):
        publisher.send(b"t")
    publisher.epoch, publisher.number = 2, 0
    publisher.hello([StreamState(b"t", 3, 1)])
    publisher.send(b"t")
    log.commit()
    ready = goes_on(publisher, successor(publisher.exchange))
    assert ready.expected == 2


def test_readers_are_told_how_far_each_stream_had_come(log: SegmentedLog[bytes]) -> None:
    publisher = Publisher(exchange(log))
    publisher.hello()
    for topic, count in ((b"a", 2), (b"b", 5), (b"a", 1)):
        publisher.send(topic, count)
    log.commit()
    there = successor(publisher.exchange)
    found, _ = there.core.streams.page((b"",), 0, 9)
    assert found == [(publisher.id, b"a", 3), (publisher.id, b"b", 5)]


def test_offsets_go_on_and_each_batch_names_the_one_before_it(log: SegmentedLog[bytes]) -> None:
    publisher = Publisher(exchange(log))
    publisher.hello()
    publisher.send(b"t")
    log.commit()
    goes_on(publisher, successor(publisher.exchange))
    publisher.send(b"t")
    last = read_entry(log.record(log.end - 1)[1])
    assert (last.offset, last.previous) == (1, 0)


def test_publishers_that_do_not_come_back_are_forgotten_in_their_time(
    log: SegmentedLog[bytes],
) -> None:
    publisher = Publisher(exchange(log))
    publisher.exchange.now = 1_000.0
    publisher.hello()
    publisher.send(b"t")
    log.commit()
    there = successor(publisher.exchange)
    there.tell(Tick())
    assert len(there.core.links) == 1
    there.now += LINK_SECONDS + 1
    there.tell(Tick())
    assert len(there.core.links) == 0


def test_of_more_publishers_than_may_be_known_the_last_ones_are(log: SegmentedLog[bytes]) -> None:
    there = exchange(log)
    publishers = [Publisher(there, name=name) for name in ("one", "two", "three")]
    for publisher in publishers:
        publisher.hello()
        publisher.send(b"t")
    log.commit()
    after = successor(there, publishers=2)
    assert [link.publisher for link in after.core.links] == [each.id for each in publishers[1:]]
