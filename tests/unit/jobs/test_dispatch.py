"""Topics and groups of jobs, and what is sent; the queue itself is real in `tests/integration`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest
from job_lab import Lab, new

from roq.client.cluster import Cluster
from roq.client.consume.consumer import CLOSE_SECONDS, Consumer
from roq.errors import QueueNotFound, Unavailable
from roq.jobs import dispatch
from roq.jobs.dispatch import QueueMessages, QueueSender, _by_topic, group_of, topic_of
from roq.jobs.rows import ReadyJob, Want
from roq.jobs.states import HIGH, LOW, PRIORITIES
from roq.model import check_name

TYPES = ("A", "A.10.", "A/ä 1", "A" * 200)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def test_no_topic_is_the_beginning_of_another_one() -> None:
    topics = [topic_of(kind, each) for kind in TYPES for each in PRIORITIES.values()]
    assert len(set(topics)) == len(topics)
    for topic in topics:
        assert [each for each in topics if each.startswith(topic)] == [topic]


def test_any_type_has_groups_that_may_be() -> None:
    for kind in TYPES:
        check_name(group_of(kind, LOW))


def test_messages_of_a_topic_go_together() -> None:
    jobs = [ReadyJob(HIGH, 1, 1, "A"), ReadyJob(LOW, 2, 1, "A"), ReadyJob(HIGH, 3, 5, "A")]
    sent = _by_topic(jobs)
    assert sent[topic_of("A", HIGH)] == [
        b"\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1",
        b"\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\5",
    ]


def unsent(lab: Lab, before: int = 1, priority: int = LOW) -> list[int]:
    with lab.database.write() as connection:
        found = lab.store.unsent(connection, "A", priority, before=before)
    return [job.id for job in found]


def test_what_nobody_has_sent_is_found_once(lab: Lab) -> None:
    with lab.database.write() as connection:
        sent, held = lab.store.submit(
            connection, [new(priority=LOW), new(priority=LOW, due=2**60)], sent=True
        )
        not_sent = lab.store.submit(connection, [new(priority=LOW)])[0]
    assert unsent(lab) == [not_sent.id]
    assert unsent(lab) == []
    lab.let_due()
    assert unsent(lab) == [held.id], "what is released must be sent"
    lab.time += 60_000_000
    # Sent long before the oldest message that is open: so it is in no queue.
    assert unsent(lab, lab.time - 1, HIGH) == []
    with lab.database.write() as connection:
        since = lab.time - 30_000_000
        assert lab.store.unsent(connection, "A", LOW, before=lab.time, since=since) == []
    assert unsent(lab, lab.time - 1) == [sent.id, held.id, not_sent.id]
    assert unsent(lab, lab.time - 1) == []


def test_a_search_for_what_is_lost_goes_on_where_the_one_before_has_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(dispatch, "monotonic", lambda: clock[0])
    monkeypatch.setattr(dispatch, "BLOCK", 1)
    monkeypatch.setattr("roq.jobs.waiting.BLOCK", 1)
    messages = QueueMessages(
        "", lab.store, cast("QueueSender", Sink()), ["A"], prefetch=1, ready=lambda: None
    )
    with lab.database.write() as connection:
        jobs = lab.store.submit(connection, [new(), new()], sent=True)

    def search(seconds: float) -> list[int]:
        lab.time += int(seconds * 1_000_000)
        clock[0] += seconds
        with lab.database.read() as connection:
            look = lab.instances.look(connection, 0)
        return [each.id for each in messages._lost(cast("Cluster", SlowCluster(clock)), look)]

    assert search(1.0) == []
    assert search(60.0) == [jobs[0].id]
    assert search(1.0) == [jobs[1].id], "not all of them were found"
    assert search(1.0) == search(1.0) == []
    lab.set("job", "dispatched = 1", jobs[0].id)
    assert search(1.0) == [], "it was searched there"
    assert search(60.0) == [jobs[0].id], "once in a while everything is searched"


def test_what_runs_or_ran_is_not_sent_before_it_waits_again(lab: Lab) -> None:
    lab.submit(priority=LOW)
    mine = lab.instance()
    (run,) = lab.claim(mine)
    assert unsent(lab) == []
    lab.kill(mine)
    assert unsent(lab) == [run.id]


def test_a_number_that_no_column_holds_ends_no_instance(lab: Lab) -> None:
    messages = QueueMessages(
        "", lab.store, cast("QueueSender", Sink()), ["A"], prefetch=1, ready=lambda: None
    )
    messages._consumers[LOW, "A"] = cast("Consumer", Foreign())
    (job,) = messages.take([Want("A", 1, 1)])
    assert max(abs(job.id), abs(job.token)) < 2**63


class Foreign:
    """Something else publishes here."""

    payload = b"\xff" * 16

    def receive(self, timeout: float) -> Foreign:
        return self


def test_a_message_of_another_types_job_claims_nothing(lab: Lab) -> None:
    job = lab.submit("B")
    assert lab.claim_named(lab.instance(), job, 1) == []


class SlowCluster:
    """Each answer takes as long as an instance waits for one."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.consumers = self.open = 0

    def create_queue(self, *_: object, **__: object) -> None:
        self.clock[0] += 0.5

    def consumer(self, *_: object, **__: object) -> SlowCluster:
        self.clock[0] += 0.9
        self.consumers += 1
        self.open += 1
        return self

    def _on_ready(self, _ready: object) -> None: ...

    def _quick(self, _most: int) -> None: ...

    away = False

    def groups(self, *_: object, **__: object) -> list[object]:
        if self.away:
            raise Unavailable("no answer")
        return []

    def receive(self, **_: object) -> None:
        raise QueueNotFound("the queue was removed")

    def close(self, timeout: float | None = None) -> None:
        """Of a consumer, if there is a timeout; else what is open takes its own time."""
        closing = self.open if timeout is None else 1
        if self.away:  # nobody confirms what was acknowledged
            self.clock[0] += closing * (CLOSE_SECONDS if timeout is None else timeout)
        self.open -= closing


class Sink:
    """Sends nothing."""

    def send(self, jobs: Iterable[ReadyJob]) -> None:
        list(jobs)


def test_a_slow_cluster_does_not_keep_an_instance_from_its_jobs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    slow = SlowCluster(clock)
    monkeypatch.setattr(dispatch, "monotonic", lambda: clock[0])
    monkeypatch.setattr("roq.client.cluster.connect", lambda *_, **__: slow)
    types = [str(each) for each in range(10)]
    messages = QueueMessages(
        "", lab.store, cast("QueueSender", Sink()), types, prefetch=1, ready=lambda: None
    )
    lab.jobs.operate.dispatch("queue", who="test")
    with lab.database.read() as connection:
        look = lab.instances.look(connection, 0)
    looks = 0
    while not messages.connected:
        before = clock[0]
        messages.look(look)
        assert clock[0] - before < 3.0
        looks += 1
    assert slow.consumers == len(types) * len(PRIORITIES)
    assert looks > 1
    slow.away = True
    clock[0] += 10.0
    messages.look(look)
    assert not messages.connected, "the database is asked"
    before = clock[0]
    messages.look(look)
    assert clock[0] - before < 3.0, "else others take this instance for dead"
    assert slow.open == 0
    slow.away = False

    def opened() -> None:
        clock[0] += 20.0
        for _ in types * len(PRIORITIES):
            messages.look(look)
        assert messages.connected

    opened()
    assert messages.take([Want("1", 1, 1)]) == []
    assert not messages.connected, "its queue is another one now, though the cluster answers"
    opened()
    messages.close()
