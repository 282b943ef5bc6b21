"""What an exchange appends itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exchange_driver import EPOCH, QUEUE, exchange
from memory_files import MemoryFiles

from roq.exchange.delayed_message import NOTHING
from roq.exchange.machine import ExchangeCore
from roq.exchange.own_batches import OwnBatches
from roq.log.disk_groups import perform
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.log.streams import StreamTable
from roq.model import Limits
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


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH, EPOCH + 1])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_process_that_gets_an_epoch_again_has_another_id_and_numbers_of_its_own(
    epoch: int, *, ahead: bool
) -> None:
    """As of a registry that was restored. A log ahead of its disk may have lost what subscribers
    have seen of this id, so that they would take what comes under the same sequences for that."""
    files = MemoryFiles()
    given = LogSettings(
        queue=QUEUE, exchange=1, epoch=3, cluster="c", host="h", ring_bytes=1 << 20,
        topics_max=100, topics_spare=12, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
        ahead=ahead,
    )  # fmt: skip
    open_log(files, given)
    log: SegmentLog[bytes] = open_log(files, replace(given, epoch=EPOCH))
    first = exchange(late=log, ahead=ahead).core
    assert first.delayed.publish(b"t", NOTHING) is not None
    group = log.gather(lambda: b"")
    assert group is not None
    perform(files, group)
    log = open_log(files, replace(given, epoch=epoch))
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, 1, epoch, Limits(), late=log, ahead=ahead)
    assert core.delayed.publisher != first.delayed.publisher
    assert core.consumers._numbers.next() > first.consumers._numbers.next()
    assert core.epoch == epoch, "by this the monitor and clients know the process"


def test_without_room_for_its_topic_nothing_is_appended() -> None:
    core = exchange(topics=1).core
    own = OwnBatches(QUEUE, 1, 5, core.log, StreamTable(2), core.counters)
    taken = [own.append(b"t%d" % each, NOTHING, b"", 0) is not None for each in range(20)]
    assert taken[0]
    assert not taken[-1]
    assert core.log.end == core.counters.own_entries == sum(taken)
