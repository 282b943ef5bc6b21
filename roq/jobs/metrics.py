"""What an instance tells those who watch machines: `/metrics` and `/healthz` over HTTP.

Each instance tells of the whole database, so any of them is enough for that, and of its own runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from roq.errors import Unavailable
from roq.jobs.database import MICROSECONDS
from roq.jobs.operate import JobOperations
from roq.jobs.room import BOUNDS, RunTimes
from roq.jobs.states import PRIORITIES, JobStatus, StaleReason
from roq.jobs.worker import JobWorker
from roq.protocol.metrics import Sample, counter, gauge
from roq.runtime.http import HttpServer, Response
from roq.runtime.metrics import CONTENT_TYPE, exposition

LOOK_SECONDS: Final = 2.0
"""The database is asked no more often, however many ask here."""

JOBS: Final = gauge(
    "roq_jobs", "Jobs in the database.", "type", "priority", "status"
)  # fmt: skip
ITEMS: Final = gauge("roq_jobs_items", "Items of these jobs.", "type", "priority", "status")
FAILURES: Final = gauge(
    "roq_jobs_failures", "Failures that these jobs have had so far.", "type", "priority", "status"
)
OLDEST: Final = gauge(
    "roq_jobs_oldest_seconds", "Age of the oldest job that may run and waits.", "type", "priority"
)
STALLED: Final = gauge(
    "roq_jobs_stalled",
    "What stands still as it is: jobs that are `off`, have `no_instance`, a `failed_parent` or a"
    " `dead_owner`, and each `schedule` that does not fire.",
    "type", "reason",
)  # fmt: skip
INSTANCES: Final = gauge("roq_jobs_instances", "Living instances.")
AWAY: Final = gauge("roq_jobs_database_away", "1 if the database did not answer this instance.")
RUNNING: Final = gauge("roq_jobs_instance_running", "Runs that this instance has.")
THREADS: Final = gauge("roq_jobs_instance_threads", "Threads of this instance.")
RUNS: Final = counter("roq_jobs_runs_total", "Runs of this instance that ended.", "type", "end")
OUTDATED: Final = counter(
    "roq_jobs_outdated_total", "Runs of this instance whose end was refused: another is valid."
)
STALE: Final = counter(
    "roq_jobs_stale_total", "Messages about jobs that were not to be claimed any more.", "reason"
)
METRICS: Final = (
    JOBS, ITEMS, FAILURES, OLDEST, STALLED, INSTANCES, AWAY, RUNNING, THREADS, RUNS, OUTDATED,
    STALE,
)  # fmt: skip
SECONDS_NAME: Final = "roq_jobs_run_seconds"
SECONDS_HELP: Final = "How long runs of this instance had a thread."
_NAMES: Final = {number: name for name, number in PRIORITIES.items()}


class JobMetrics:
    """Serves them until `close`.

    Args:
        operate: of the database.
        worker: the instance.
        bind, port: where; port 0: one that is free.

    Raises:
        ConfigError: the port is in use, or the address is not of this machine.
    """

    def __init__(self, operate: JobOperations, worker: JobWorker, bind: str, port: int) -> None:
        self._operate = operate
        self._worker = worker
        self._looked = float("-inf")
        self._known: list[Sample] = []
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._process.register(_Seconds(worker.times))
        self._server = HttpServer(bind, port, self.respond)
        self._server.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def close(self) -> None:
        """Serve no more."""
        self._server.close()

    def respond(self, path: str) -> Response:
        """The answer for a path."""
        match path:
            case "/metrics":
                told = exposition(METRICS, [*self._of_database(), *self._own()])
                return Response(200, told + generate_latest(self._process), CONTENT_TYPE)
            case "/healthz":
                well = self._worker.sure
                text = b"alive\n" if well else b"the database does not answer\n"
                return Response(200 if well else 503, text)
            case _:
                return Response(404, b"there are /metrics and /healthz\n")

    def _of_database(self) -> list[Sample]:
        if monotonic() - self._looked >= LOOK_SECONDS:
            try:
                self._known = [*_samples(self._operate), Sample(AWAY, 0)]
            except Unavailable:
                self._known = [Sample(AWAY, 1)]
            self._looked = monotonic()
        return self._known

    def _own(self) -> Iterator[Sample]:
        worker = self._worker
        yield Sample(RUNNING, worker.running)
        yield Sample(THREADS, worker.threads)
        yield Sample(OUTDATED, worker.stats.outdated)
        for reason in StaleReason:
            yield Sample(STALE, worker.stats.stale[reason], (reason.value,))
        for (kind, end), number in list(worker.times.ends.items()):
            yield Sample(RUNS, number, (kind, end.value))


def _samples(operate: JobOperations) -> Iterator[Sample]:
    now, counts = operate.now(), operate.counts()
    for cell in counts:
        priority = _NAMES.get(cell.priority, str(cell.priority))
        labels = (cell.type, priority, cell.status.value)
        yield Sample(JOBS, cell.number, labels)
        yield Sample(ITEMS, cell.items, labels)
        yield Sample(FAILURES, cell.failures, labels)
        if cell.status is JobStatus.CREATED:
            age = 0 if cell.oldest is None else max(0, now - cell.oldest)
            yield Sample(OLDEST, age / MICROSECONDS, (cell.type, priority))
    live = [each for each in operate.instance_list() if not each.dead]
    yield Sample(INSTANCES, len(live))
    for stall in operate.stalls(counts):
        yield Sample(STALLED, stall.number, (stall.type, stall.reason))


class _Seconds(Collector):
    def __init__(self, times: RunTimes) -> None:
        self._times = times

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(SECONDS_NAME, SECONDS_HELP, labels=["type"])
        for kind, numbers in list(self._times.buckets.items()):
            so_far, buckets = 0, []
            for bound, number in zip((*BOUNDS, "+Inf"), numbers, strict=True):
                so_far += number
                buckets.append((str(bound), float(so_far)))
            family.add_metric([kind], buckets, self._times.seconds[kind])
        yield family
