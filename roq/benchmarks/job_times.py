"""How soon things happen to a job: it begins, slots change hands, a killed instance is replaced."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from roq.benchmarks.contenders.roq_jobs import LIMIT, RoqJobs
from roq.benchmarks.processes import BenchmarkError
from roq.benchmarks.statistics import percentile
from roq.jobs.states import JobStatus
from roq.jobs.views import JobFilter, JobRow

THREADS: Final = 8
IDLE_JOBS: Final = 300
IDLE_SECONDS: Final = 0.05
"""Between two jobs: so long that everything has gone to sleep."""
SLEEP_SECONDS: Final = 0.5
LIMITED_JOBS: Final = 8 * LIMIT
LOOK_SECONDS: Final = 0.02
WAIT_SECONDS: Final = 60.0


class JobTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    begin_ms: float
    """From before a submission until the handler begins, of idle instances: the median."""
    begin_p99_ms: float
    used_percent: float
    """Of the slots of a limited type, while jobs of half a second wait for them."""
    handed_over_seconds: float
    """From the start of a second instance's entry until it runs its share of the slots."""
    elsewhere_seconds: float
    """From kill -9 of an instance until its jobs run elsewhere."""


WANTED: Final = (
    ("begin_ms", "idle, submit → handler begins, p50, ms", 10.0),
    ("handed_over_seconds", "slots handed over, s", 2.0),
    ("elsewhere_seconds", "owner killed → runs elsewhere, s", 20.0),
)
"""Field, what it is, and the most it is to be."""
USED_PERCENT: Final = 95.0


def times(system: RoqJobs, directory: Path) -> JobTimes:
    """Measure.

    Args:
        system: whose instances are started here, and ended.
        directory: for their logs.

    Raises:
        BenchmarkError: something does not happen within a minute.
    """
    try:
        system.start(directory, 1, THREADS)
        begin = begin_ms(lambda: _run_one(system), IDLE_JOBS, IDLE_SECONDS)
        used, handed = _limited(system, directory)
        elsewhere = _killed(system)
    finally:
        system.stop()
    return JobTimes(
        begin_ms=statistics.median(begin),
        begin_p99_ms=percentile(begin, 99),
        used_percent=used,
        handed_over_seconds=handed,
        elsewhere_seconds=elsewhere,
    )


def begin_ms(run: Callable[[], int], number: int, pause: float) -> list[float]:
    """How long after its submission each of so many jobs has begun.

    A job before them is not counted: it waits for the instance's program to start.

    Args:
        run: submits a job, and gives when it has begun, in ns of the machine's clock.
        number: of jobs.
        pause: seconds before each.
    """
    run()
    found = []
    for _ in range(number):
        threading.Event().wait(pause)
        submitted = time.monotonic_ns()
        found.append((run() - submitted) / 1e6)
    return found


def _run_one(system: RoqJobs) -> int:
    done = system.jobs.types["Begins"].submit().result(WAIT_SECONDS)
    assert isinstance(done, int)  # noqa: S101 - the handler's
    return done


def _limited(system: RoqJobs, directory: Path) -> tuple[float, float]:
    """How much of the slots is used, and how soon a second instance has its share of them."""
    limited = system.jobs.types["Limited"]
    handles = limited.submit_many([SLEEP_SECONDS] * LIMITED_JOBS)
    _until(lambda: len(_running(system)) == LIMIT)
    before = {each.id for each in system.jobs.operate.instance_list()}
    system.add(directory, THREADS)

    def feed() -> None:
        """There is always enough to do."""
        waiting = sum(
            each.number
            for each in system.jobs.operate.counts()
            if each.type == "Limited" and each.status is JobStatus.CREATED
        )
        if waiting < LIMITED_JOBS // 2:
            handles.extend(limited.submit_many([SLEEP_SECONDS] * LIMITED_JOBS))

    def entered() -> bool:
        feed()
        return len(system.jobs.operate.instance_list()) > len(before)

    def shared() -> bool:
        feed()
        return sum(each.owner not in before for each in _running(system)) >= LIMIT // 2

    _until(entered)
    began = time.monotonic()
    _until(shared)
    handed = time.monotonic() - began
    for each in handles:
        each.wait(WAIT_SECONDS)
    rows = system.jobs.operate.jobs(JobFilter(types=("Limited",)), most=10 * LIMITED_JOBS)
    spans = sorted((row.started, row.ended) for row in rows if row.started and row.ended)
    # Until the last one begins: then there are no more jobs than slots.
    first, last = spans[0][0], spans[-1][0]
    busy = sum(min(ended, last) - started for started, ended in spans)
    return 100 * busy / (LIMIT * (last - first)), handed


def _killed(system: RoqJobs) -> float:
    handles = system.jobs.types["Waits"].submit_many([None] * THREADS)
    _until(lambda: len(_running(system)) == THREADS)
    names = {each.id: each.pid for each in system.jobs.operate.instance_list()}
    victim = _running(system)[0].owner
    assert victim is not None  # noqa: S101 - it runs
    began = time.monotonic()
    os.kill(names[victim], signal.SIGKILL)
    _until(
        lambda: (
            len(found := _running(system)) == THREADS
            and all(each.owner != victim for each in found)
        )
    )
    took = time.monotonic() - began
    for each in handles:
        each.wait(WAIT_SECONDS)
    return took


def _running(system: RoqJobs) -> list[JobRow]:
    return system.jobs.operate.jobs(JobFilter(statuses=(JobStatus.RUNNING,)))


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise BenchmarkError(f"it has not come to that within {WAIT_SECONDS:g} s")
        threading.Event().wait(LOOK_SECONDS)


def told(name: str, measured: JobTimes) -> list[tuple[str, str]]:
    """As people read it."""
    found = [
        (f"{name}: {text}", f"{getattr(measured, field):,.1f}, wanted ≤ {most:g}")
        for field, text, most in WANTED
    ]
    used = f"{measured.used_percent:.1f}, wanted ≥ {USED_PERCENT:g}"
    return [*found, (f"{name}: limits used, %", used)]
