"""What generating load inside Spark costs: `python -m roq.simulation.lab.live.overhead`.

The same publishers work in a Spark task and in a process of their own, one after the other, again
and again: flat out, flat out with traces, and at a rate. `bare` is a loop around `publish()` in a
process of its own, which stamps, measures and counts nothing: what RoQ takes of one process.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

import roq
from roq.errors import WouldBlock
from roq.local.part import guarded
from roq.simulation.lab.live.clocks import Clock, anchor
from roq.simulation.lab.live.driver import Driver
from roq.simulation.lab.live.interrupts import Aside
from roq.simulation.lab.live.load import Job, perform
from roq.simulation.lab.live.plan import plan
from roq.simulation.lab.live.setting import LiveFailed
from roq.simulation.lab.live.tasks import Tasks
from roq.simulation.lab.live.verdict import TaskTally
from roq.simulation.real import results
from roq.simulation.real.results import Measured, Target, measured
from roq.simulation.scenario.draws import Topics
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario
from roq.testing import cluster as own_cluster

NAME: Final = "live-overhead"
GOAL: Final = 0.70
BARE_CHUNK: Final = 500
WAIT_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.002
QUEUES: Final = ("load", "messages", "traces")
KINDS: Final = ("outside", "inside", "outside, traces", "inside, traces", "bare")


class Outcome(Measured, kw_only=True):
    """What is kept of it.

    Attributes:
        per_second: messages that were published and acknowledged, of each turn, by kind.
        late: at a rate: share of messages that were more than 10 ms late, by kind.
        cpu_per_million: seconds of CPU of the generating process, by kind.
    """

    publishers: int
    size: int
    seconds: float
    rate: float
    per_second: dict[str, list[float]]
    late: dict[str, list[float]]
    cpu_per_million: dict[str, float]


class Bench:
    """One cluster and one Spark session, and jobs for them."""

    def __init__(
        self, address: str, cluster: roq.Cluster, spark: Tasks, *, publishers: int, size: int,
        seconds: float,
    ) -> None:  # fmt: skip
        self._address = address
        self._cluster = cluster
        self._spark = spark
        self._publishers = publishers
        self._size = size
        self._seconds = seconds
        self._turn = 0

    def play(self, kind: str, rate: float = 0.0) -> TaskTally:
        """One turn.

        Args:
            kind: one of `KINDS`.
            rate: messages a second of each publisher; 0: flat out.
        """
        self._turn += 1
        group = PublisherGroup(
            count=self._publishers, rate=rate or 1.0, size=self._size, topics=Topics()
        )
        made = plan(
            Scenario(
                name=NAME,
                title=NAME,
                phases=[Phase(name="load", seconds=self._seconds, publishers=[group])],
            ),
            tasks=1,
        )
        now = anchor()
        job = Job(
            run=f"{NAME}-{self._turn}", task=0, tag=1, addresses=[self._address], queue="load",
            messages="messages", traces="traces" if "traces" in kind else "", share=made.shares[0],
            marks=[], prefixes=[], seed=1, window_seconds=1.0, anchor=now, flat_out=not rate,
        )  # fmt: skip
        clock = Clock(now.wall_us - now.monotonic_us)
        data = msgspec.msgpack.encode(job)
        with Driver(self._cluster, "messages", made, job.run, clock) as driver:
            if kind.startswith("inside"):
                stage = Aside(lambda: self._spark.work([data], barrier=True), "stage")
            else:
                stage = Aside(lambda: [_outside(data, bare=kind == "bare")], "stage")
            _until(lambda: driver.ready == 1 or stage.done)
            driver.begin()
            _until(lambda: stage.done)
        (tally,) = (msgspec.msgpack.decode(each, type=TaskTally) for each in stage.wait())
        if tally.trouble:
            raise LiveFailed(tally.trouble)
        return tally


def _outside(data: bytes, *, bare: bool) -> bytes:
    """Do a job in a process of its own."""
    argv = [sys.executable, "-P", "-m", "roq.simulation.lab.live.overhead"]
    done = subprocess.run(
        guarded([*argv, "--worker", "bare" if bare else "same"]),
        input=data, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    if done.returncode:
        raise LiveFailed(f"the process has ended with {done.returncode}")
    return done.stdout


def _until(condition: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + WAIT_SECONDS, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise LiveFailed(f"a turn has taken more than {WAIT_SECONDS:g} s")
        pause.wait(PAUSE_SECONDS)


def _bare(data: bytes) -> bytes:
    """Only publish."""
    from roq.simulation.lab.live.task_channel import TaskChannel  # noqa: PLC0415
    from roq.simulation.lab.live.verdict import SentTally  # noqa: PLC0415 - of this one function

    job = msgspec.msgpack.decode(data, type=Job)
    stays = job.share.publishers
    size = stays[0].stretches[0].size
    payload = bytes(size if isinstance(size, int) else 100)
    with roq.connect(job.addresses) as cluster:
        channel = TaskChannel(job, cluster, [], [], on_error=lambda _: None)
        publishers = [cluster.publisher(job.queue, block=False) for _ in stays]
        with channel:
            channel.ready()
            while not channel.begin_us:
                channel.wait(PAUSE_SECONDS)
            cpu, end_us = time.process_time(), channel.begin_us + int(stays[0].ends * 1e6)
            while channel.clock.now_us() < end_us:
                idle = True
                for publisher in publishers:
                    with contextlib.suppress(WouldBlock):
                        for _ in range(BARE_CHUNK):
                            publisher.publish(payload, "t")
                        idle = False
                if idle:
                    channel.wait(PAUSE_SECONDS)
            cpu = time.process_time() - cpu
        for publisher in publishers:
            publisher.flush(WAIT_SECONDS)
        acknowledged = sum(publisher.stats().acked_messages for publisher in publishers)
        for publisher in publishers:
            publisher.close()
    sent = [SentTally(source=0, messages=acknowledged)]
    return msgspec.msgpack.encode(TaskTally(task=0, sent=sent, cpu_seconds=cpu))


def measure(publishers: int, size: int, seconds: float, rate: float, turns: int) -> Outcome:
    """All turns."""
    per_second: dict[str, list[float]] = {kind: [] for kind in KINDS}
    late: dict[str, list[float]] = {kind: [] for kind in KINDS[:2]}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    spark = Tasks()
    with (
        measured() as machine,
        tempfile.TemporaryDirectory(prefix="roq-overhead-") as folder,
        own_cluster(1) as running,
        running.connect() as cluster,
    ):
        try:
            spark.start("local[1]", Path(folder) / "spark.log", None)
            for queue in QUEUES:
                cluster.create_queue(queue, durability="none", limits={"exchanges_max": 1})
            bench = Bench(
                running.address, cluster, spark, publishers=publishers, size=size, seconds=seconds
            )
            bench.play("inside")  # both have started Python and seen all code once
            for _ in range(turns):
                for kind in KINDS:
                    tally = bench.play(kind)
                    sent = sum(each.messages - each.failed for each in tally.sent)
                    per_second[kind].append(sent / seconds)
                    cpu[kind].append(1e6 * tally.cpu_seconds / max(1, sent))
                for kind in KINDS[:2]:
                    tally = bench.play(kind, rate / publishers)
                    sent = sum(each.messages for each in tally.sent)
                    late[kind].append(sum(each.late for each in tally.sent) / max(1, sent))
        finally:
            spark.stop()
    median = {kind: statistics.median(found) for kind, found in per_second.items()}
    targets = [
        Target(text="inside Spark, of outside", measured=median["inside"] / median["outside"],
               goal=GOAL, at_least=True),
        Target(text="with traces, of without (inside)",
               measured=median["inside, traces"] / median["inside"], goal=GOAL, at_least=True),
    ]  # fmt: skip
    return Outcome(
        machine=machine, publishers=publishers, size=size, seconds=seconds, rate=rate,
        per_second=per_second, late=late, targets=targets,
        cpu_per_million={kind: statistics.median(found) for kind, found in cpu.items()},
    )  # fmt: skip


@click.command()
@results.option("--publishers", click.IntRange(1, 100), 8, "In one task.")
@results.option("--size", click.IntRange(24), 100, "Payload bytes.")
@results.option("--seconds", click.FloatRange(1, 600), 5.0, "Of one turn.")
@results.option(
    "--rate",
    click.FloatRange(1),
    6_000.0,
    "Messages a second of all publishers, where not flat out.",
)
@results.option("--turns", click.IntRange(1, 100), 5, "Of each kind.")
@click.option("--worker", type=click.Choice(["same", "bare"]), hidden=True)
@results.scenario()
def main(
    publishers: int, size: int, seconds: float, rate: float, turns: int, worker: str | None,
    output: Path, as_json: bool,
) -> bool:  # fmt: skip
    """Measure what generating load inside Spark costs. Takes two minutes."""
    if worker is not None:
        data = sys.stdin.buffer.read()
        sys.stdout.buffer.write(_bare(data) if worker == "bare" else perform(data))
        return True
    outcome = measure(publishers, size, seconds, rate, turns)
    results.told(outcome, NAME, output, _show, as_json=as_json)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    rows = [
        (
            kind,
            f"{statistics.median(found):,.0f}",
            f"{min(found):,.0f} … {max(found):,.0f}",
            f"{outcome.cpu_per_million[kind]:.2f}",
            f"{statistics.median(outcome.late[kind]):.2%}" if kind in outcome.late else "",
        )
        for kind, found in outcome.per_second.items()
    ]
    columns = ("where", "messages/s#", "least … most#", "CPU s per million#",
               f"late at {outcome.rate:,.0f}/s#")  # fmt: skip
    out.print(results.table(f"{outcome.publishers} publishers, {outcome.size} B", columns, rows))


if __name__ == "__main__":
    main()
