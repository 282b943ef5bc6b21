"""What an exchange appends itself."""

from __future__ import annotations

from exchange_driver import QUEUE, exchange

from roq.exchange.delayed_message import NOTHING
from roq.exchange.own_batches import OwnBatches
from roq.log.streams import StreamTable
from roq.protocol import batch


def test_sequences_go_on_by_topic_under_an_id_of_the_process() -> None:
    core = exchange().core
    streams = StreamTable(4)
    own = OwnBatches(QUEUE, 1, 5, core.log, streams, core.counters)
    made = [own.append(topic, NOTHING, b"", -5) for topic in (b"t", b"t", b"u")]
    headers = [batch.read_header(each[2]) for each in made if each is not None]
    assert [(each.first_sequence, each.link_number, each.created_us) for each in headers] == [
        (0, 0, 0), (1, 0, 0), (0, 0, 0),
    ]  # fmt: skip
    assert {each.publisher for each in headers} == {own.publisher}
    assert core.counters.own_entries == 3
    other = OwnBatches(QUEUE, 1, 6, core.log, streams, core.counters)
    assert other.publisher != own.publisher


def test_without_room_for_its_topic_nothing_is_appended() -> None:
    core = exchange(topics=1).core
    own = OwnBatches(QUEUE, 1, 5, core.log, StreamTable(2), core.counters)
    taken = [own.append(b"t%d" % each, NOTHING, b"", 0) is not None for each in range(20)]
    assert taken[0]
    assert not taken[-1]
    assert core.log.end == core.counters.own_entries == sum(taken)
