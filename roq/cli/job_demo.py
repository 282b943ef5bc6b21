"""`roq jobs demo`: jobs of all kinds, before your eyes."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final

import click

from roq.cli.failures import INTERRUPTED, Failed
from roq.cli.options import Number
from roq.cli.output import note
from roq.errors import Unavailable
from roq.jobs.states import JobStatus
from roq.local.part import guarded
from roq.runtime.process import Child, spawn
from roq.runtime.signals import SignalEvent

PROGRAM: Final = "roq.demo.job_types:jobs"
LINE_SECONDS: Final = 2.0
BATCH_LINES: Final = 5
"""So many lines are between two batches."""
PARTS: Final = 12
START_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
STOP_SECONDS: Final = 40.0
_READY: Final = re.compile(r"^ready \{\"url\":\"([^\"]+)\"\}$", re.MULTILINE)


@click.command("demo", short_help="Run jobs of all kinds, to be looked at.")
@click.option(
    "--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Instances."
)
@click.option("--seconds", type=Number(min=0.0), help="End after so long; at Ctrl-C if not given.")
def job_demo(workers: int, seconds: float | None) -> None:
    """Run jobs of all kinds on this machine, with a console to look at them, until Ctrl-C.

    Starts a cluster, instances that hear of jobs by its queue, and the console (if the extra
    `console` is there), whose address is printed; all with a database in a temporary folder. A
    schedule fires, a type fails and is tried again, and batches wait for parts that have failed
    until somebody restarts them. At the end nothing is left. Exits with 1 if nothing was run.

    \b
    Example:
      roq jobs demo
      roq jobs demo --workers 4
    """
    from roq.testing import cluster  # noqa: PLC0415 - no other command of jobs needs it

    done = 0
    with ExitStack() as open_:
        told = open_.enter_context(_told_to_end())
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="roq-jobs-demo-")))
        note("Starting a cluster of one host …")
        address = open_.enter_context(cluster()).address
        os.environ["ROQ_JOBS"], os.environ["ROQ_CLUSTER"] = str(folder / "jobs.db"), address
        done = _Course(open_, folder, workers, told).run(seconds)
        note("Stopping …")
    if not done and told.is_set():
        raise Failed("it was interrupted before a job was complete", INTERRUPTED)
    if not done:
        raise Unavailable("no job was complete: this machine is too slow, or --seconds too few")
    note(f"{done:,} jobs were complete; nothing of the demo is left.")


class _Course:
    """The demo while it runs.

    Args:
        open_: what ends with it.
        folder: of the demo.
        workers: instances.
        told: set when it is to end.
    """

    def __init__(self, open_: ExitStack, folder: Path, workers: int, told: SignalEvent) -> None:
        from roq.demo import job_types  # noqa: PLC0415 - it reads where its database is

        self._told = told
        self._types = job_types
        self._jobs = open_.enter_context(job_types.jobs)
        self._operate = self._jobs.operate
        self._operate.dispatch("queue", who="demo")
        self._random = random.Random(7)  # noqa: S311 - which names jobs have
        self._workers = [
            open_.enter_context(
                _started(folder, f"worker-{n}", "jobs", "work", PROGRAM, "--threads", "4")
            )
            for n in range(workers)
        ]
        self._batches = 0
        self._wait("the workers did not start", self._live)
        if find_spec("uvicorn") is None:
            click.echo("no console: pip install 'roq-cluster[console]'")
            return
        log = folder / "console.log"
        console = open_.enter_context(_started(folder, "console", "console", "--port", "0"))
        self._wait(
            "the console did not start",
            lambda: console.poll() is not None or _url(log.read_text()) is not None,
        )
        url = _url(log.read_text())
        if url is not None:
            click.echo(f"console at {url}jobs")
        elif not told.is_set():
            raise Unavailable(f"the console did not start: {log.read_text()[-500:]}")

    def run(self, seconds: float | None) -> int:
        """Submit jobs and tell of them for so long; gives how many were complete."""
        lines, end = 0, float("inf") if seconds is None else monotonic() + seconds
        while monotonic() < end and not self._told.is_set():
            if lines % BATCH_LINES == 0:
                self._submit_batch()
            self._submit()
            self._told.wait(min(LINE_SECONDS, max(0.0, end - monotonic())))
            click.echo(self._line())
            lines += 1
            if any(worker.poll() is not None for worker in self._workers):
                raise Unavailable("an instance of the demo has ended by itself")
        return self._number(JobStatus.COMPLETE)

    def _wait(self, failed: str, condition: Callable[[], bool]) -> None:
        until = monotonic() + START_SECONDS
        while not condition() and not self._told.is_set():
            if monotonic() > until:
                raise Unavailable(f"{failed} in {START_SECONDS:g} s")
            self._told.wait(LOOK_SECONDS)

    def _live(self) -> bool:
        return len(self._operate.instance_list()) >= len(self._workers)

    def _submit(self) -> None:
        types = self._types
        for _ in range(self._random.randrange(2, 6)):
            names = [f"{n}.png" for n in range(self._random.randrange(5, 60))]
            types.resize.submit(types.Images(names), priority=self._random.choice(["low", None]))
        types.flaky.submit()

    def _submit_batch(self) -> None:
        self._batches += 1
        batch = self._jobs.batch(f"import {self._batches}")
        for n in range(PARTS):
            batch.add(self._types.part, n)
        batch.then(self._types.report, batch.name)

    def _number(self, status: JobStatus) -> int:
        return sum(cell.number for cell in self._operate.counts() if cell.status is status)

    def _line(self) -> str:
        cells = self._operate.counts()
        told = [
            f"{sum(cell.number for cell in cells if cell.status is status):,} {status.lower()}"
            for status in JobStatus
            if any(cell.status is status for cell in cells)
        ]
        open_ = [each for each in self._operate.batches() if each.complete < each.number]
        failed = sum(each.failed for each in open_)
        if failed:
            names = ", ".join(each.name for each in open_)
            told.append(f"{names}: {failed} parts have failed and wait to be restarted")
        return "; ".join(told)


def _url(said: str) -> str | None:
    """Where a console serves, from what it has said so far."""
    found = _READY.search(said)
    return None if found is None else found[1]


@contextmanager
def _started(folder: Path, name: str, *arguments: str) -> Iterator[Child]:
    """A command of RoQ until the block, or this thread, ends, with a log of its own."""
    argv = guarded([sys.executable, "-m", "roq", *arguments])
    child = spawn(argv, log_path=folder / f"{name}.log")
    try:
        yield child
    finally:
        child.stop(STOP_SECONDS)
        child.close()


@contextmanager
def _told_to_end() -> Iterator[SignalEvent]:
    """Set by Ctrl-C and SIGTERM; once more ends the process at once."""
    told = SignalEvent()

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        told.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
