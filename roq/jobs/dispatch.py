"""Dispatch by a RoQ queue: messages say which jobs are there, the database says whether that is so.

A message is (id, token) of a job that waits. It is sent after the commit that made the job wait, by
whoever made it, and acknowledged after the commit that claimed it. A message too many is stale and
does nothing; one too few is found (`lost`) and sent again. So nothing depends on the queue but how
soon, and how cheaply, an instance hears of a job.

Each type has a topic and a group for each priority: what is LOW must not be in front of what is
HIGH.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Final

import roq.client.cluster
from roq.client.cluster import Cluster
from roq.client.consume.consumer import Consumer
from roq.client.consume.message import ConsumedMessage
from roq.client.publish.publisher import Publisher
from roq.errors import LeaseLost, QueueExists, RoQError
from roq.jobs.database import MICROSECONDS
from roq.jobs.held import BLOCK
from roq.jobs.rows import Look, ReadyJob, Want
from roq.jobs.states import PRIORITIES
from roq.jobs.store import JobStore

log = logging.getLogger(__name__)

QUEUE: Final = "roq.jobs"
UNSENT_MAX: Final = 100_000
"""Messages that wait to be sent; what is beyond is sent later, as if it had been lost."""
LOST_SECONDS: Final = 5.0
"""A message is lost if it was sent so long before the oldest one that is open in its group."""
LOOK_SECONDS: Final = 5.0
"""Between two searches for lost messages."""
WHOLE_SECONDS: Final = 60.0
"""Between two of them that search everything; others go on where the one before has ended."""
AWAY_SECONDS: Final = 10.0
"""Between two attempts to reach the cluster."""
ANSWER_SECONDS: Final = 1.0
"""For an answer of the cluster: an instance has jobs to finish, and itself to renew."""
QUICK: Final = 1_000
"""Messages of a type and priority that an instance holds if its jobs take a tenth of a second in
all: as many can be claimed by one transaction."""
_FORM: Final = struct.Struct(">qq")
"""Signed, as columns are: whatever somebody else publishes is a number that they can hold."""


def topic_of(kind: str, priority: int) -> str:
    """Where jobs of a type and priority are published; none is the beginning of another one."""
    return f"{_mark(kind)}.{priority}."


def group_of(kind: str, priority: int) -> str:
    """The group that shares them."""
    return f"jobs.{_mark(kind)}.{priority}"


def _mark(kind: str) -> str:
    """A type in few characters that names of groups may have."""
    return hashlib.sha256(kind.encode()).hexdigest()[:24]


class QueueSender:
    """Publishes what is ready to be claimed, in a thread of its own: nobody waits for a queue.

    Args:
        cluster: its addresses.
        queue: name of the queue; made if there is none.
    """

    def __init__(self, cluster: str, queue: str = QUEUE) -> None:
        self._addresses = cluster
        self._queue = queue
        self._unsent: deque[ReadyJob] = deque(maxlen=UNSENT_MAX)
        self._condition = threading.Condition()
        self._closed = False
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="roq-jobs-sender", daemon=True)
        self._thread.start()

    def send(self, jobs: Iterable[ReadyJob]) -> None:
        """Have these published; call it after the commit."""
        with self._condition:
            self._unsent.extend(jobs)
            self._condition.notify()

    def close(self) -> None:
        """Send what is left if the cluster is there, and end."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            try:
                with roq.client.cluster.connect(self._addresses, timeout=ANSWER_SECONDS) as cluster:
                    with contextlib.suppress(QueueExists):  # of whatever durability
                        cluster.create_queue(self._queue, durability="none")
                    with cluster.publisher(self._queue) as publisher:
                        self._publish(publisher)
            except RoQError as error:
                log.warning("jobs are not dispatched: %s", error, extra={"event": "jobs_queue"})
                with self._condition:
                    self._condition.wait_for(lambda: self._closed, AWAY_SECONDS)

    def _publish(self, publisher: Publisher) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._unsent or self._closed)
                taken = list(self._unsent)
                self._unsent.clear()
            if not taken:
                return
            for topic, payloads in _by_topic(taken).items():
                publisher.publish_many(payloads, topic=topic)
            self.sent += len(taken)


def _by_topic(jobs: Sequence[ReadyJob]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for job in jobs:
        payload = _FORM.pack(job.id, job.token)
        found.setdefault(topic_of(job.type, job.priority), []).append(payload)
    return found


class QueueMessages:
    """What an instance hears by the queue. Belongs to the instance's thread.

    Args:
        cluster: addresses of the cluster.
        store: the SQL.
        sender: publishes what nobody has published.
        types: that the instance runs.
        prefetch: messages of each type and priority that it holds at most.
        ready: called, in another thread, when there may be messages.
        queue: name of the queue.
    """

    def __init__(
        self,
        cluster: str,
        store: JobStore,
        sender: QueueSender,
        types: Iterable[str],
        *,
        prefetch: int,
        ready: Callable[[], None],
        queue: str = QUEUE,
    ) -> None:
        self._addresses = cluster
        self._store = store
        self._sender = sender
        self._types = list(types)
        self._prefetch = prefetch
        self._ready = ready
        self._queue = queue
        self._cluster: Cluster | None = None
        self._consumers: dict[tuple[int, str], Consumer] = {}
        self._held: dict[ReadyJob, list[ConsumedMessage]] = {}
        self._tried = self._searched = self._searched_all = float("-inf")
        self._failed = False
        self._sent_before: dict[tuple[str, int], int] = {}
        """By type and priority: of those whose message is older nothing is lost."""

    @property
    def connected(self) -> bool:
        """Whether jobs are heard of by the queue now; else the database is asked."""
        wanted = len(self._types) * len(PRIORITIES)
        return not self._failed and len(self._consumers) == wanted

    def take(self, wants: Iterable[Want]) -> list[ReadyJob]:
        """Jobs of each type that might be claimed, by priority; never waits."""
        allowed = {want.type: want.most for want in wants}
        for (priority, kind), consumer in self._consumers.items():
            self._receive(consumer, priority, kind, allowed.get(kind, 0))
        found: list[ReadyJob] = []
        for job in sorted(self._held):
            if allowed.get(job.type, 0) > 0:
                allowed[job.type] -= 1
                found.append(job)
        return found

    def _receive(self, consumer: Consumer, priority: int, kind: str, most: int) -> None:
        held = sum(job.type == kind and job.priority == priority for job in self._held)
        try:
            while held < most:
                message = consumer.receive(timeout=0)
                if message is None:
                    return
                if len(message.payload) == _FORM.size:
                    id_, token = _FORM.unpack(message.payload)
                    job = ReadyJob(priority, id_, token, kind)
                    self._held.setdefault(job, []).append(message)
                    held += 1
                else:
                    message.ack()  # of something else that publishes here
        except RoQError as error:  # its queue was removed, perhaps there is a new one of this name
            self._fail(error)

    def _fail(self, error: RoQError) -> None:
        """The database is asked until all is opened anew."""
        log.warning("jobs come by the database alone: %s", error, extra={"event": "jobs_queue"})
        self._failed = True

    def settle(self, jobs: Iterable[ReadyJob]) -> None:
        """These were claimed, or are not to be claimed, and that is committed: acknowledge them."""
        for job in jobs:
            for message in self._held.pop(job, []):
                with contextlib.suppress(LeaseLost, RoQError):  # another one will find it stale
                    message.ack()

    def look(self, look: Look) -> None:
        """Twice a second: connect, send what nobody has sent, and search for what is lost."""
        if self._failed or look.dispatch != "queue":
            self.close()
        if look.dispatch != "queue":
            return
        if self._cluster is not None or monotonic() - self._tried > AWAY_SECONDS:
            self._open()
        with self._store.database.write() as connection:
            have = self._store.have_unsent(connection, self._types)
            ready = [self._store.unsent(connection, *each) for each in have]
        for each in ready:
            self._sender.send(each)
        searches = self.connected and monotonic() - self._searched > LOOK_SECONDS
        if self._cluster is not None and searches:
            self._searched = monotonic()
            self._sender.send(self._lost(self._cluster, look))

    def _open(self) -> None:
        """Connect, and consume what is not consumed; what takes long goes on at the next look."""
        self._tried = began = monotonic()
        pairs = [(each, kind) for kind in self._types for each in sorted(PRIORITIES.values())]
        try:
            if self._cluster is None:
                self._cluster = roq.client.cluster.connect(self._addresses, timeout=ANSWER_SECONDS)
                with contextlib.suppress(QueueExists):
                    self._cluster.create_queue(self._queue, durability="none")
            for priority, kind in pairs:
                if (priority, kind) in self._consumers:
                    continue
                if monotonic() - began > ANSWER_SECONDS:
                    return
                consumer = self._cluster.consumer(
                    self._queue, group_of(kind, priority), topic=topic_of(kind, priority),
                    prefetch=self._prefetch, attempts=0, timeout=ANSWER_SECONDS,
                )  # fmt: skip
                consumer._on_ready(self._ready)  # noqa: SLF001 - as roq.aio does
                consumer._quick(QUICK)  # noqa: SLF001 - for short jobs alone
                self._consumers[priority, kind] = consumer
        except RoQError as error:
            self._fail(error)
            self.close()

    def _lost(self, cluster: Cluster, look: Look) -> list[ReadyJob]:
        """Jobs whose message is in no queue any more."""
        try:
            groups = {
                each.name: each for each in cluster.groups(self._queue, timeout=ANSWER_SECONDS)
            }
        except RoQError as error:
            self._fail(error)
            return []
        if monotonic() - self._searched_all > WHOLE_SECONDS:
            self._searched_all = monotonic()
            self._sent_before.clear()
        found = []
        for kind, priority in itertools.product(self._types, PRIORITIES.values()):
            group = groups.get(group_of(kind, priority))
            open_seconds = (group.oldest_seconds or 0.0) if group is not None else 0.0
            before = look.now - int((open_seconds + LOST_SECONDS) * MICROSECONDS)
            with self._store.database.write() as connection:
                lost = self._store.unsent(
                    connection, kind, priority, before=before,
                    since=self._sent_before.get((kind, priority), 0),
                )  # fmt: skip
            found += lost
            if len(lost) < BLOCK:
                # Some may have been sent by a transaction that was long under way.
                self._sent_before[kind, priority] = before - int(WHOLE_SECONDS * MICROSECONDS)
        return found

    def close(self) -> None:
        """Give back what was not looked at."""
        self._failed = False
        self._held.clear()
        until = monotonic() + ANSWER_SECONDS  # for all together: the instance has more to do
        for consumer in self._consumers.values():
            consumer.close(max(0.0, until - monotonic()))
        self._consumers.clear()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
