"""What is known of a queue's processes, and which words about them count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roq.errors import QueueNotFound, QueueStopped
from roq.gcm.state.queues import MONITOR, Queue, Queues, transactions_of
from roq.gcm.state.records import ExchangeRecord, QueueRecord, Snapshot
from roq.model import QueueState
from roq.protocol.reports import ChildInfo

ID = b"i" * 16
RECORD = QueueRecord(
    name="q", queue_id=ID, state=QueueState.RUNNING, host="h1", created=1.0, epoch=5,
    next_number=2, exchanges=(ExchangeRecord(number=1, host="h2", state="created", epoch=7),),
)  # fmt: skip


def child(**given: Any) -> ChildInfo:
    fields = {
        "child": "q.x1", "role": "exchange", "queue": "q", "queue_id": ID, "number": 1, "epoch": 7,
        "state": "running", "data": "tcp://h2:1", "live": "tcp://h2:2",
    }  # fmt: skip
    return ChildInfo(**{**fields, **given})


def monitor(**given: Any) -> ChildInfo:
    fields = {
        "child": "q.monitor", "role": "monitor", "number": 0, "epoch": 5, "control": "tcp://h1:1",
        "statistics": "tcp://h1:2", "data": "", "live": "",
    }  # fmt: skip
    return child(**{**fields, **given})


@pytest.fixture
def queues() -> Queues:
    made = Queues()
    made.put(RECORD)
    return made


@pytest.fixture
def queue(queues: Queues) -> Queue:
    return queues.demand("q")


def test_a_process_that_runs_brings_its_addresses(queue: Queue) -> None:
    queue.observe(monitor(), "h1")
    queue.observe(child(generation=3), "h2")
    assert (queue.monitor, queue.statistics) == ("tcp://h1:1", "tcp://h1:2")
    assert queue.unsaved
    saved = queue.with_addresses()
    assert (saved.monitor, saved.exchanges[0].data) == ("tcp://h1:1", "tcp://h2:1")
    assert saved.exchanges[0].generation == 3


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({"queue_id": b"other"}, "h2"),
        ({}, "h1"),
        ({"epoch": 6}, "h2"),
        ({"number": 2}, "h2"),
    ],
)
def test_what_is_none_of_the_queue_is_not_taken_in(
    queue: Queue, given: dict[str, Any], host: str
) -> None:
    queue.observe(child(**given), host)
    assert queue.children == {}


def test_one_that_restarts_keeps_its_addresses_until_it_runs_again(queue: Queue) -> None:
    queue.observe(child(state="starting", data=""), "h2")
    assert queue.children == {}, "one that has never run has no addresses to be kept"
    queue.observe(child(), "h2")
    queue.observe(child(state="restarting", data="", reason="it ended", restarts=1), "h2")
    known = queue.children[1]
    assert (known.state, known.reason, known.data) == ("restarting", "it ended", "tcp://h2:1")


def test_a_later_process_is_known_and_an_earlier_one_does_not_come_back(queue: Queue) -> None:
    queue.observe(child(epoch=9), "h2")
    queue.observe(child(epoch=8), "h2")
    assert (queue.epoch(1), queue.epoch(MONITOR), queue.floor(1)) == (9, 5, 7)


def test_a_monitor_that_says_itself_where_it_is_counts_if_it_is_later(queue: Queue) -> None:
    queue.observe(monitor(), "h1")
    queue.hear(5, "tcp://h1:9")
    queue.hear(6, "no address")
    assert queue.monitor == "tcp://h1:1"
    queue.hear(6, "tcp://h1:9")
    assert (queue.monitor, queue.statistics) == ("tcp://h1:9", "tcp://h1:2")


def test_a_definition_with_a_higher_epoch_takes_the_place_of_processes(queues: Queues) -> None:
    queue = queues.demand("q")
    queue.observe(child(), "h2")
    queues.put(RECORD.replacing(msgspec.structs.replace(RECORD.exchanges[0], epoch=8)))
    assert queue.children == {}
    queue.observe(monitor(), "h1")
    queues.put(msgspec.structs.replace(RECORD, state=QueueState.STOPPED))
    assert queue.children == {}


def test_another_queue_of_the_name_begins_anew(queues: Queues) -> None:
    queues.demand("q").observe(monitor(), "h1")
    made = queues.put(msgspec.structs.replace(RECORD, queue_id=b"j" * 16))
    assert made.children == {}
    with pytest.raises(QueueNotFound, match="another one by now"):
        queues.demand_same("q", ID)


def test_what_cannot_be_used_says_why_and_what_to_do(queues: Queues) -> None:
    with pytest.raises(QueueNotFound, match="roq queue list"):
        queues.demand("x")
    queues.unreadable["x"] = "it is empty"
    with pytest.raises(QueueStopped, match=r"unreadable \(it is empty\); `roq queue remove x`"):
        queues.demand("x")
    for state, hint in (
        (QueueState.STOPPED, "roq queue start q"),
        (QueueState.CREATING, "try again"),
        (QueueState.REMOVING, "being removed"),
    ):
        queues.put(msgspec.structs.replace(RECORD, state=state))
        with pytest.raises(QueueStopped, match=hint):
            queues.demand_running("q")


def test_places_are_counted_with_what_is_reserved_and_without_what_is_stopped(
    queues: Queues,
) -> None:
    queues.reserved["q", 2] = "h2"
    assert queues.placed() == ({"h2": 2}, {"h1": 1})
    queues.put(msgspec.structs.replace(RECORD, state=QueueState.STOPPED))
    assert queues.placed() == ({"h2": 1}, {})
    assert queues.hosts_in_use() == {"h1", "h2"}, "also of one that is stopped"


def test_hosts_are_told_of_the_monitors_of_their_exchanges(queues: Queues) -> None:
    assert queues.monitors_for("h2") == {}
    queues.demand("q").observe(monitor(), "h1")
    assert queues.monitors_for("h2") == {"q": "tcp://h1:1"}
    assert queues.monitors_for("h1") == {}


def test_what_the_registry_says_is_taken_over_but_for_what_is_worked_on(queues: Queues) -> None:
    other = msgspec.structs.replace(RECORD, name="r", queue_id=b"r" * 16)
    said = Snapshot((other,), transactions={"r": (("t", 1),)}, unreadable={"q": "x", "s": "y"})
    queues.load(said, keep=frozenset({"q"}))
    assert [queue.name for queue in queues] == ["q", "r"]
    assert transactions_of(queues.demand("r")) == (("t", 1),)
    assert queues.unreadable == {"s": "y"}
    queues.load(Snapshot())
    assert list(queues) == []
