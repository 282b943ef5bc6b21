"""What the console knows of its cluster: one connection, one thread that follows all queues."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

import roq
from roq.client.admin.board import QueueView
from roq.client.admin.statistics import StreamState
from roq.client.admin.views import Listing
from roq.client.consume.groups import GroupListing
from roq.client.operate import survey
from roq.client.operate.dead_letters import GROUP
from roq.client.operate.followers import Followers, QueueReport
from roq.client.request.views import ServiceView
from roq.console.looks import FIRST_SECONDS, Look, Looks
from roq.errors import RoQError, Unavailable
from roq.protocol.public_answers import HostSummary, QueueDescription, QueueSummary
from roq.runtime.backoff import Backoff

ROUND_SECONDS: Final = 1.0
"""Monitors speak every second."""
ANSWER_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 2.0
HEALTH_SECONDS: Final = 5.0
HEALTH_WAIT_SECONDS: Final = 1.0
"""A daemon that is away is waited for longer, but not by a page."""
ASKERS: Final = 8
HISTORY_MAX: Final = 120
"""Rounds of which the throughput of a queue is kept."""
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Connection:
    """Whether the cluster is there.

    Attributes:
        reason: why it is not; empty: it is.
        since: seconds since 1970.
    """

    reason: str
    since: float


class Source:
    """The cluster, as all pages see it. From any thread. `start()`, `close()`.

    Args:
        addresses: of the cluster.
    """

    def __init__(self, addresses: str) -> None:
        self.addresses = addresses
        self._executor = ThreadPoolExecutor(ASKERS, "roq-console-ask")
        self.looks = Looks(self._executor, time.monotonic)
        self._cluster: roq.Cluster | None = None
        self._connection = Connection("it is being connected to", time.time())
        self._reports: dict[str, QueueReport] = {}
        self._history: dict[str, deque[float]] = {}
        self._hidden = 0
        self._end = threading.Event()
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roq-console", daemon=True)

    def start(self) -> None:
        """Connect, and follow from now on."""
        self._thread.start()

    def close(self) -> None:
        """End; idempotent."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        self._executor.shutdown(wait=True, cancel_futures=True)

    # --- what is known ----------------------------------------------------------------------------

    def connection(self) -> Connection:
        """Whether the cluster is there."""
        hosts = self.hosts()
        known = self._connection
        if not known.reason and isinstance(hosts.error, Unavailable):
            age = time.monotonic() - hosts.at if hosts.at else 0.0
            return Connection(str(hosts.error), time.time() - age)
        return known

    def cluster(self) -> roq.Cluster:
        """The connection.

        Raises:
            Unavailable: there is none.
        """
        self._tried.wait(ANSWER_SECONDS)
        cluster = self._cluster
        if cluster is None:
            reason = self._connection.reason
            raise Unavailable(f"the cluster at {self.addresses} is away: {reason}")
        return cluster

    def reports(self) -> dict[str, QueueReport]:
        """What the monitors of queues tell, by name."""
        return self._reports

    def view(self, queue: str) -> QueueView | None:
        """What the monitor of this queue tells; None: nothing at the moment."""
        report = self._reports.get(queue)
        if report is None or report.state != StreamState.LIVE:
            return None
        return report.view

    def history(self, queue: str) -> list[float]:
        """Bytes per second that came in, one number a second, the newest last."""
        return list(self._history.get(queue, ()))

    @property
    def hidden(self) -> int:
        """Queues that are too many to be followed."""
        return self._hidden

    def queues(self) -> Look[Listing[QueueSummary]]:
        """All queues."""
        return self._look("queues", lambda: self.cluster().queues())

    def hosts(self) -> Look[Listing[HostSummary]]:
        """All hosts."""
        return self._look("hosts", lambda: self.cluster().hosts())

    def describe(self, queue: str) -> Look[QueueDescription]:
        """Everything about a queue."""
        return self._look(("queue", queue), lambda: self.cluster().describe(queue))

    def groups(
        self, queue: str, period: float = LOOK_SECONDS, wait: float = FIRST_SECONDS
    ) -> Look[GroupListing]:
        """The consumer groups of a queue; arguments as of `Looks.look`."""
        return self.looks.look(
            ("groups", queue),
            lambda: _calm(self.cluster().groups(queue, timeout=ANSWER_SECONDS)),
            period,
            wait,
        )

    def group(self, queue: str, group: str) -> Look[GroupListing]:
        """A group with its members."""
        return self._look(
            ("group", queue, group),
            lambda: _calm(self.cluster().groups(queue, group, timeout=ANSWER_SECONDS)),
        )

    def service(
        self, queue: str, service: str, period: float = LOOK_SECONDS, wait: float = FIRST_SECONDS
    ) -> Look[ServiceView]:
        """A service with its instances and requests; arguments as of `Looks.look`."""
        return self.looks.look(
            ("service", queue, service),
            lambda: self.cluster().describe_service(queue, service, timeout=ANSWER_SECONDS),
            period,
            wait,
        )

    def health(self) -> Look[survey.Survey]:
        """What `roq health` knows."""
        return self.looks.look(
            "health",
            lambda: survey.everybody(self.addresses, ANSWER_SECONDS),
            HEALTH_SECONDS,
            HEALTH_WAIT_SECONDS,
        )

    def _look(self, key: object, ask: Callable[[], T]) -> Look[T]:
        return self.looks.look(key, ask, LOOK_SECONDS)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff(lambda: 1.0)
        while not self._end.is_set():
            try:
                self._follow(backoff)
            except RoQError as error:
                self._away(str(error))
                self._end.wait(backoff.wait())

    def _follow(self, backoff: Backoff) -> None:
        with (
            roq.connect(self.addresses, timeout=ANSWER_SECONDS) as cluster,
            Followers(cluster, None) as followers,
        ):
            backoff.reset()
            self._cluster, self._connection = cluster, Connection("", time.time())
            self._tried.set()
            try:
                while not self._end.wait(ROUND_SECONDS):
                    self._round(followers)
            finally:
                self._cluster = None

    def _round(self, followers: Followers) -> None:
        followers.update()
        reports = {report.view.queue: report for report in followers.reports()}
        for name, report in reports.items():
            history = self._history.setdefault(name, deque(maxlen=HISTORY_MAX))
            history.append(report.view.bytes_in)
        for name in self._history.keys() - reports.keys():
            del self._history[name]
        self._reports, self._hidden = reports, followers.hidden

    def _away(self, reason: str) -> None:
        if not self._connection.reason or self._connection.reason == "it is being connected to":
            log.warning("the cluster at %s is away: %s", self.addresses, reason)
            self._connection = Connection(reason, time.time())
        self._connection = Connection(reason, self._connection.since)
        self._tried.set()


def _calm(groups: GroupListing) -> GroupListing:
    """Whoever looks at dead letters is a group for a moment: nobody misses its members later."""
    rows = [
        msgspec.structs.replace(each, stalled=[]) if each.name == GROUP else each for each in groups
    ]
    return GroupListing(rows, groups.missing)
