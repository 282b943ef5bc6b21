"""Jobs whose instances, queue and database are killed and stopped all the time.

    python -m roq.simulation.experiments.job_kills --kills 200                     PostgreSQL
    python -m roq.simulation.experiments.job_kills --kills 100 --database sqlite   a file
    python -m roq.simulation.experiments.job_kills --queue                         jobs by a queue

Instances are killed, or stand still for up to twice the time after which others take them for
dead; so do all processes of PostgreSQL, and exchanges are killed. Clocks of PostgreSQL's instances
are up to an hour off (a file of SQLite has one host, and so one clock). In the end everything goes
on, all jobs have to end, and each is looked at: which runs it had, and whose effect it has.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import psutil
from rich.console import Console

import roq
import roq.testing
from roq.benchmarks.contenders import postgres_server
from roq.benchmarks.contenders.postgres_server import PostgresServer
from roq.benchmarks.processes import PYTHON, BenchmarkError, Program
from roq.jobs.states import JobStatus
from roq.simulation.real import results
from roq.simulation.real.job_judge import JobEnd, judge
from roq.simulation.real.job_program import (
    CLUSTER,
    EFFECT,
    JOURNAL,
    LIMIT,
    PROGRAM,
    URL,
    program,
)
from roq.simulation.real.machines import clock_library
from roq.simulation.real.results import Machine
from roq.simulation.real.waiting import rest, until
from roq.simulation.real.workers import ScenarioError

NAME: Final = "job_kills"
INSTANCES: Final = 8
THREADS: Final = 4
OPEN_JOBS: Final = 30
"""So many wait or run at any time."""
LOOK_SECONDS: Final = 0.1
STILL_SECONDS: Final = 30.0
DATABASE_SECONDS: Final = 12.0
END_SECONDS: Final = 180.0
HOUR: Final = 3600
LOG_CHARACTERS: Final = 4_000
"""Of what instances tell, if something is wrong."""
TYPES: Final = ("Effect", "Limited", "Returns", "Once")
_WATCHED: Final = (
    "SELECT (SELECT count(*) FROM job WHERE type = 'Limited' AND status = 'RUNNING') AS runs,"
    " (SELECT count(*) FROM job_slot WHERE owner IS NOT NULL) AS slots,"
    " (SELECT count(*) FROM (SELECT owner, count(*) AS n FROM job WHERE type = 'Limited' AND"
    " status = 'RUNNING' GROUP BY owner) AS r WHERE r.n > (SELECT count(*) FROM job_slot AS s"
    " WHERE s.owner = r.owner)) AS without"
)
_RESTS: Final = (
    "SELECT id, type, status, held, owner FROM job WHERE status IN ('CREATED', 'RUNNING')",
    "SELECT type, number, owner FROM job_slot",
    "SELECT id, pid, dead, expires FROM job_instance",
)


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    machine: Machine
    database: str
    queue: bool
    seed: int
    kills: dict[str, int]
    seconds: float
    seconds_to_end: float | None
    """From the last kill until all jobs have ended; None: they have not."""
    jobs: dict[str, int]
    runs: int
    again: int
    """Runs beyond the first of their job."""
    refused: int
    """Outdated runs whose end was refused."""
    watched: int
    """Looks at the limit while everything ran."""
    most: int
    """Jobs of the limited type that ran at once; it has a limit of 3."""
    skipped: list[str]
    wrong: list[str]


class Killing:
    """One run of it.

    Args:
        folder: for files.
        url: of the database.
        server: PostgreSQL, if that is it.
        cluster: with whose queue jobs are dispatched.
        seed: of what happens.
        tell: is told what happens.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        server: PostgresServer | None,
        cluster: str | None,
        seed: int,
        tell: Callable[[str], None],
    ) -> None:
        self.kills: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.watched = self.most = 0
        self.journal = folder / "journal"
        self._folder, self._url, self._server = folder, url, server
        self._cluster = cluster
        self._random = random.Random(seed)
        self._tell = tell
        self._clocks = clock_library() if server is not None else ""
        self._programs: list[Program] = []
        self._still: list[tuple[float, list[int]]] = []
        self._end = threading.Event()
        self._jobs = program(url, cluster, str(self.journal))

    def run(self, kills: int, gap: float) -> float | None:
        """Do it; gives the seconds from the last kill until all jobs have ended."""
        self._jobs.open()
        with self._jobs.engine.begin() as connection:
            connection.exec_driver_sql(EFFECT)
        if self._cluster is not None:
            self._jobs.operate.dispatch("queue", who=NAME)
        watch = threading.Thread(target=self._watch, name="job-kills-watch")
        watch.start()
        try:
            self._programs = [self._start() for _ in range(INSTANCES)]
            self._submit()
            rest(gap)
            while self.kills.total() < kills:
                self._kill()
                until(self._turn, gap * self._random.uniform(0.5, 1.5), LOOK_SECONDS)
            began = time.monotonic()
            self._go_on(float("inf"))
            ended = until(self._all_ended, END_SECONDS, 0.5)
            if not ended:
                self._tell_rest()
            return time.monotonic() - began if ended else None
        finally:
            self._go_on(float("inf"))
            self._end.set()
            watch.join()
            for each in self._programs:
                each.stop()

    def judged(self) -> tuple[list[JobEnd], dict[int, int]]:
        """All jobs, and all effects."""
        with self._jobs.engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT id, type, status, token FROM job").all()
            effects = connection.exec_driver_sql("SELECT job, token FROM effect").all()
        return [JobEnd(*row) for row in rows], {row.job: row.token for row in effects}

    def close(self) -> None:
        """Leave the database."""
        self._jobs.close()

    # --- what happens -----------------------------------------------------------------------------

    def _kill(self) -> None:
        kinds = {self._kill_instance: 45, self._stop_instance: 35}
        if self._server is not None:
            kinds |= {self._kill_database: 6, self._stop_database: 6}
        if self._cluster is not None:
            kinds[self._kill_exchange] = 10
        (chosen,) = self._random.choices(list(kinds), list(kinds.values()))
        what = chosen()
        if what:
            self.kills[chosen.__name__.strip("_").replace("_", " ")] += 1
            self._tell(f"{self.kills.total()}: {what}")

    def _kill_instance(self) -> str:
        victim = self._random.choice(self._programs)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        return f"instance {victim.pid} is killed"

    def _stop_instance(self) -> str:
        victim = self._random.choice(self._programs)
        seconds = self._random.uniform(1.0, STILL_SECONDS)
        return self._hold([victim.pid], seconds, "instance")

    def _kill_database(self) -> str:
        assert self._server is not None  # noqa: S101 - asked before
        for pid in self._server.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self._server_runs(), 10.0)
        try:
            self._server.again()
        except BenchmarkError:
            rest(2.0)  # its last processes are just going
            self._server.again()
        return "the database is killed, and starts again"

    def _stop_database(self) -> str:
        assert self._server is not None  # noqa: S101 - asked before
        return self._hold(
            self._server.pids(), self._random.uniform(1.0, DATABASE_SECONDS), "the database"
        )

    def _kill_exchange(self) -> str:
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "roq.exchange" in each.cmdline():
                    each.kill()
                    return f"exchange {each.pid} is killed"
        return ""

    def _hold(self, pids: list[int], seconds: float, what: str) -> str:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        heapq.heappush(self._still, (time.monotonic() + seconds, pids))
        return f"{what} {pids[0]} stands still for {seconds:.0f} s"

    def _go_on(self, now: float) -> None:
        while self._still and self._still[0][0] <= now:
            for pid in heapq.heappop(self._still)[1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _server_runs(self) -> bool:
        return any(map(psutil.pid_exists, self._server.pids() if self._server is not None else []))

    # --- what goes on -----------------------------------------------------------------------------

    def _start(self) -> Program:
        environment = {
            URL: self._url, CLUSTER: self._cluster or "", JOURNAL: str(self.journal),
        }  # fmt: skip
        if self._clocks:
            environment |= {
                "LD_PRELOAD": self._clocks, "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME": f"{self._random.choice([-HOUR, 0, HOUR]):+d}s",
            }  # fmt: skip
        return Program(
            [*PYTHON, "roq", "jobs", "work", PROGRAM, "--threads", str(THREADS)],
            self._folder / "instances.log", env=environment,
        )  # fmt: skip

    def _turn(self) -> bool:
        """Never True: it goes on until the next kill."""
        self._go_on(time.monotonic())
        self._revive()
        if not any(set(pids) & set(self._server_pids()) for _, pids in self._still):
            self._submit()
        return False

    def _server_pids(self) -> list[int]:
        return self._server.pids() if self._server is not None else []

    def _revive(self) -> None:
        for at, each in enumerate(self._programs):
            if not each.alive():
                self._programs[at] = self._start()

    def _submit(self) -> None:
        with contextlib.suppress(roq.Unavailable):
            for _ in range(OPEN_JOBS - self._open()):
                kind = self._jobs.types[self._random.choice(TYPES)]
                kind.submit(self._random.randrange(1, 30))

    def _open(self) -> int:
        counts = self._jobs.operate.counts()
        return sum(each.number for each in counts
                   if each.status in {JobStatus.CREATED, JobStatus.RUNNING})  # fmt: skip

    def _all_ended(self) -> bool:
        self._revive()
        try:
            return not self._open()
        except roq.Unavailable:
            return False

    def _tell_rest(self) -> None:
        """How everything stands, if jobs do not end."""
        for each in self._programs:
            status = psutil.Process(each.pid).status() if each.alive() else "it has ended"
            self._tell(f"instance {each.pid}: {status}")
        with self._jobs.database.read() as connection:
            for asked in _RESTS:
                for row in connection.exec_driver_sql(asked):
                    self._tell(str(row))

    def _watch(self) -> None:
        """See that the limit holds, in one look after the other."""
        database = self._jobs.database.for_instance()
        while not self._end.wait(LOOK_SECONDS):
            with contextlib.suppress(roq.Unavailable), database.read() as connection:
                self._watch_once(connection.exec_driver_sql(_WATCHED).one())
        database.close()

    def _watch_once(self, row: Any) -> None:
        self.watched += 1
        self.most = max(self.most, row.runs)
        if row.runs > LIMIT or row.without or row.slots > LIMIT:
            self.wrong.append(
                f"{row.runs} limited jobs ran at once with {row.slots} slots, the limit is {LIMIT};"
                f" {row.without} instances had too few"
            )


def measure(
    kills: int, gap: float, database: str, seed: int, *, queue: bool, tell: Callable[[str], None]
) -> Outcome:
    """Kill so many, and judge.

    Raises:
        ScenarioError: it cannot be done here.
    """
    with results.measured() as machine, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roq-kills-")))
        server, url, skipped = None, str(folder / "jobs.db"), []
        if database == "postgres":
            reason = postgres_server.missing()
            if reason:
                raise ScenarioError(reason)
            server = PostgresServer()
            server.start(folder)
            stack.callback(server.stop)
            url = server.url
            if not clock_library():
                skipped.append("clocks: no libfaketime (apt-get install faketime)")
        cluster = stack.enter_context(roq.testing.cluster()).address if queue else None
        killing = Killing(folder, url, server, cluster, seed, tell)
        stack.callback(killing.close)
        began = time.monotonic()
        to_end = killing.run(kills, gap)
        verdict = judge(*killing.judged(), _lines(killing.journal))
        log = (folder / "instances.log").read_text(errors="replace")
        verdict.wrong += killing.wrong[: results.WRONG_MAX]
        verdict.wrong += ["an instance tells a traceback"] * ("Traceback" in log)
        if verdict.wrong:
            tell(log[-LOG_CHARACTERS:])
        return Outcome(
            machine=machine, database=database, queue=queue, seed=seed,
            kills=dict(killing.kills), seconds=round(time.monotonic() - began, 1),
            seconds_to_end=None if to_end is None else round(to_end, 1),
            jobs=dict(verdict.jobs), runs=verdict.runs, again=verdict.again,
            refused=verdict.refused, watched=killing.watched, most=killing.most, skipped=skipped,
            wrong=verdict.wrong,
        )  # fmt: skip


def _lines(journal: Path) -> Iterator[str]:
    yield from journal.read_text().splitlines()


def show(console: Console, outcome: Outcome) -> None:
    """For people."""
    told = msgspec.to_builtins(outcome)
    rows = [(name, told[name]) for name in told if name not in {"machine", "wrong"}]
    console.print(results.table("jobs", ("what", "how much"), rows))
    for each in outcome.wrong[: results.WRONG_MAX]:
        console.print(each, style="bold red")


@click.command(help=__doc__.partition("\n")[0])
@results.option("--kills", click.IntRange(1), 200, "Kills and stops in all.")
@results.option("--gap", click.FloatRange(0.1), 5.0, "Seconds between two, about.")
@results.option("--database", click.Choice(["postgres", "sqlite"]), "postgres", "Where jobs are.")
@results.option("--seed", click.IntRange(0), 7, "Of what happens.")
@click.option("--queue", is_flag=True, help="Dispatch by the queue of a cluster.")
@results.scenario()
def main(
    kills: int, gap: float, database: str, seed: int, queue: bool, output: Path, as_json: bool
) -> bool:
    """Kill, and say what came of it."""
    console = results.console(as_json=True)
    outcome = measure(kills, gap, database, seed, queue=queue, tell=console.print)
    name = f"{NAME}_{database}{'_queue' * queue}"
    results.told(outcome, name, output, show, as_json=as_json)
    return not outcome.wrong


if __name__ == "__main__":
    main()
