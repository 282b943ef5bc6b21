"""Plays a run: waits until both queries work, kills something at a random moment, and again.

Between the kills an exchange comes or goes, in turn.
"""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from roq.errors import RoQError
from roq.local.part import guarded
from roq.model import LogId
from roq.runtime.process import Child, spawn
from roq.simulation.experiments.chaos_spark.application import QUERIES, Job
from roq.simulation.experiments.chaos_spark.judge import Loss
from roq.simulation.experiments.chaos_spark.progress import Progress, covers, progress, reached
from roq.simulation.experiments.chaos_spark.standalone import Standalone
from roq.simulation.experiments.chaos_spark.traffic import Traffic
from roq.simulation.real.waiting import until
from roq.simulation.real.workers import ScenarioError

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
WORKER: Final = "worker"
EXCHANGE: Final = "exchange"
KINDS: Final = {
    DRIVER: "the driver's Python and its Java; what it has begun elsewhere goes on",
    EXECUTOR: "an executor",
    WORKER: "the Python process of a task",
    EXCHANGE: "an exchange of the first queue, and its log with it: both queries fail, and are "
    "started again with what their error says",
}
_ROUND: Final = (DRIVER, EXECUTOR, EXECUTOR, EXECUTOR, WORKER, EXCHANGE)
"""So many of each, in an order that the seed says."""
_ACCEPTED: Final = re.compile("set option acceptedLoss to '([^']*)'")
BATCHES_MAX: Final = 2
DELAY_MAX_SECONDS: Final = 0.8
"""A kill comes after so many further micro-batches and so long; a micro-batch takes about as
long."""
WORK_SECONDS: Final = 600.0
"""Both queries have to go on within so long."""
END_SECONDS: Final = 180.0
ENDS_MAX: Final = 5
"""So often the driver may end by itself in a row without any progress."""
STEP_SECONDS: Final = 0.1
WORDS_MAX: Final = 1_000_000
"""Of the last words of a driver in which its error is looked for."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange that came or went."""

    seconds: float
    """Since the beginning of the run."""
    exchange: str
    comes: bool
    took_seconds: float
    """An exchange goes when all readers have read its log, also the queries."""


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill, and what followed."""

    number: int
    kind: str
    seconds: float
    """Since the beginning of the run."""
    batches: dict[str, int]
    """The micro-batch that each query was at."""
    phases: dict[str, str]
    """`reading` a micro-batch, `publishing` it, or `between` two."""
    recovered_seconds: float
    """Until both queries had done a further micro-batch."""


def plan(seed: int, kills: int) -> Iterator[str]:
    """What is killed, in this order: all kinds before one comes again too often."""
    dice = random.Random(f"{seed} kinds")
    left = kills
    while left > 0:
        some = list(_ROUND if left >= len(_ROUND) else KINDS)
        dice.shuffle(some)
        yield from some[:left]
        left -= len(some)


class Player:
    """One run.

    Args:
        folder: for files.
        spark: the Spark cluster.
        traffic: the messages.
        job: of the Spark program.
        say: prints a line for people.

    Attributes:
        kills: those that were made.
        scalings: exchanges that came and went.
        losses: logs that went with exchanges that were killed, and how far each query had read
            them for good.
        ended: how the driver has ended by itself, in words: what was killed made a query fail.
    """

    def __init__(
        self,
        folder: Path,
        spark: Standalone,
        traffic: Traffic,
        job: Job,
        say: Callable[[str], None],
    ) -> None:
        self.kills: list[Kill] = []
        self.scalings: list[Scaling] = []
        self.losses: list[tuple[Loss, Mapping[str, int]]] = []
        self.ended: list[str] = []
        self._folder = folder
        self._spark = spark
        self._traffic = traffic
        self._job = job
        self._say = say
        self._driver: Child | None = None
        self._lives = 0
        self._fruitless = 0
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def play(self, seed: int, kinds: Sequence[str]) -> None:
        """Kill these, one after the other, while messages flow and exchanges come and go.

        Raises:
            RoQError: an exchange cannot come or go.
            ScenarioError: a query does not go on; says what its driver has said.
        """
        dice = random.Random(f"{seed} moments")
        self._work_on(self._progress())
        self._say(f"{self.elapsed:7.1f} s  both queries work")
        for number, kind in enumerate(kinds, 1):
            if number > 1:
                self._scale(comes=number % 2 == 0)
            query = dice.choice(QUERIES)
            wanted = self._progress()[query].committed + dice.randint(1, BATCHES_MAX)
            self._until(lambda: self._progress()[query].committed >= wanted, WORK_SECONDS)  # noqa: B023
            self._until(lambda: False, dice.uniform(0.0, DELAY_MAX_SECONDS))
            self._kill(number, kind, dice)

    def finish(self) -> list[Path]:
        """Wait until everything is read, end the queries; gives the files of the table.

        Raises:
            ScenarioError: that takes too long.
        """
        self._traffic.finish()
        ends = self._traffic.ends()

        def done() -> bool:
            return all(
                covers(reached(self._job.checkpoint(query), ends.queue_id), ends)
                for query in QUERIES
            )

        if not self._until(done, WORK_SECONDS):
            raise self._stuck("not everything was read")
        self._tend()
        assert self._driver is not None  # noqa: S101 - `_tend` has started it
        self._driver.terminate()
        if self._driver.wait(END_SECONDS) != 0:
            raise self._stuck("the driver does not end in order")
        return [
            Path(path.removeprefix("file:").replace("///", "/"))
            for path in msgspec.json.decode(self._job.files.read_bytes(), type=list[str])
        ]

    def close(self) -> None:
        """End the driver; idempotent."""
        if self._driver is not None:
            self._driver.stop(0.0)
            self._driver.close()
            self._driver = None

    def _scale(self, *, comes: bool) -> None:
        began = self.elapsed
        if comes:
            name = self._traffic.grow()
        else:
            name = self._traffic.exchanges()[0]  # the publishers are at the oldest one
            self._shrink(name)
        took = round(self.elapsed - began, 2)
        self.scalings.append(
            Scaling(seconds=round(began, 2), exchange=name, comes=comes, took_seconds=took)
        )
        self._say(
            f"{began:7.1f} s  exchange {name} {'has come' if comes else 'is gone'} "
            f"after {took:.1f} s"
        )

    def _shrink(self, name: str) -> None:
        """Have an exchange go while the queries work."""
        failed: list[RoQError] = []

        def shrink() -> None:
            try:
                self._traffic.shrink(name)
            except RoQError as error:
                failed.append(error)

        thread = threading.Thread(target=shrink, name="removal")
        thread.start()
        try:
            self._until(lambda: not thread.is_alive(), WORK_SECONDS)
        finally:
            thread.join()
        if failed:
            raise failed[0]

    def _kill(self, number: int, kind: str, dice: random.Random) -> None:
        before = self._progress()
        if kind == EXCHANGE:
            seconds = self._kill_exchange(dice)
        else:
            victims = self._victims(kind, dice)
            seconds = self.elapsed
            for victim in victims:
                _end(victim)
            if kind == DRIVER:
                self.close()
        self._work_on(before)
        kill = Kill(
            number=number,
            kind=kind,
            seconds=round(seconds, 2),
            batches={query: now.planned for query, now in before.items()},
            phases={query: now.phase for query, now in before.items()},
            recovered_seconds=round(self.elapsed - seconds, 2),
        )
        self.kills.append(kill)
        where = ", ".join(
            f"{query} {kill.phases[query]} {kill.batches[query]}" for query in kill.batches
        )
        self._say(
            f"{seconds:7.1f} s  kill {number}: {kind} ({where}); "
            f"both go on after {kill.recovered_seconds:.1f} s"
        )

    def _kill_exchange(self, dice: random.Random) -> float:
        """Kill the one with the longest log that both queries know; gives when.

        Both have to fail: it is not known what else was in the log.
        """
        found: list[LogId] = []

        def known() -> bool:
            ends = self._traffic.ends()
            read = [reached(self._job.checkpoint(query), ends.queue_id) for query in QUERIES]
            found[:] = [log for log in ends.next if all(log in each for each in read)]
            found.sort(key=lambda log: ends.next[log])
            return bool(found)

        if not self._until(known, WORK_SECONDS):
            raise self._stuck("the queries know no exchange that is there")
        log = found[-1]
        queue_id = self._traffic.ends().queue_id
        read = {
            query: reached(self._job.checkpoint(query), queue_id).get(log, 0) for query in QUERIES
        }
        offsets, first = self._traffic.note(log)
        self._until(lambda: False, dice.uniform(0.0, DELAY_MAX_SECONDS))
        seconds = self.elapsed
        last = self._traffic.kill(log)
        late = frozenset(self._traffic.sent[first:last])
        self.losses.append((Loss(log, offsets, late), read))
        if not self._until(lambda: f'"{log}"' in self._job.accepted_loss, WORK_SECONDS):
            raise self._stuck(f"no query has told that the log {log} is gone")
        return seconds

    def _victims(self, kind: str, dice: random.Random) -> list[psutil.Process]:
        found: list[psutil.Process] = []

        def some() -> bool:
            found[:] = self._candidates(kind)
            return bool(found)

        if not self._until(some, WORK_SECONDS):
            raise self._stuck(f"there is no {kind} to be killed")
        return found if kind == DRIVER else [dice.choice(found)]

    def _candidates(self, kind: str) -> list[psutil.Process]:
        if kind == EXECUTOR:
            return self._spark.executors()
        if kind == WORKER:
            return self._spark.workers()
        if self._driver is None:
            return []
        try:
            python = psutil.Process(self._driver.pid)
            return [python, *python.children()]
        except psutil.Error:
            return []

    def _work_on(self, before: dict[str, Progress]) -> None:
        """Wait until both queries have done a micro-batch more."""

        def further() -> bool:
            now = self._progress()
            return all(now[query].committed > before[query].committed for query in QUERIES)

        if not self._until(further, WORK_SECONDS):
            raise self._stuck("a query does not go on")
        self._fruitless = 0

    def _progress(self) -> dict[str, Progress]:
        return {query: progress(self._job.checkpoint(query)) for query in QUERIES}

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let it go on until something holds, for so long at most."""

        def holds() -> bool:
            self._tend()
            return condition()

        return until(holds, seconds, STEP_SECONDS)

    def _tend(self) -> None:
        """Start the driver if it does not run."""
        if self._driver is not None and (code := self._driver.poll()) is not None:
            self.close()
            if not self._accept_loss():
                words = self._words().splitlines()
                self.ended.append(f"exit code {code}: {words[-1] if words else 'no word'}")
                self._say(
                    f"{self.elapsed:7.1f} s  the driver has ended by itself, {self.ended[-1]}"
                )
                self._fruitless += 1
                if self._fruitless > ENDS_MAX:
                    raise self._stuck("the driver ends again and again")
        if self._driver is None:
            self._lives += 1
            path = self._folder / "job.json"
            path.write_bytes(msgspec.json.encode(self._job))
            module = "roq.simulation.experiments.chaos_spark.application"
            self._driver = spawn(
                guarded([sys.executable, "-P", "-m", module, str(path)]), log_path=self._log
            )

    def _accept_loss(self) -> bool:
        """Do as the error says, if it names a log that was killed and not accepted yet."""
        told = _ACCEPTED.findall(self._words(WORDS_MAX))
        if not told or told[-1] == self._job.accepted_loss:
            return False
        killed = {str(loss.log) for loss, _ in self.losses}
        if not set(msgspec.json.decode(told[-1], type=dict[str, int | str])) <= killed:
            return False
        self._job = msgspec.structs.replace(self._job, accepted_loss=told[-1])
        self._say(f"{self.elapsed:7.1f} s  a query has failed; accepted are losses of {told[-1]}")
        return True

    @property
    def _log(self) -> Path:
        return self._folder / f"driver-{self._lives}.log"

    def _words(self, most: int = 3_000) -> str:
        try:
            return self._log.read_text(errors="replace").strip()[-most:]
        except FileNotFoundError:
            return ""

    def _stuck(self, text: str) -> ScenarioError:
        return ScenarioError(f"{text}; the last words of the driver:\n{self._words()}")


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return  # it was faster
