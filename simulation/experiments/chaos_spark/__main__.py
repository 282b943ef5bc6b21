"""Kill Spark and exchanges; nothing is lost in silence: `make chaos-spark`."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from roq.model import LogId
from roq.simulation.experiments.chaos_spark.application import QUERIES, Job
from roq.simulation.experiments.chaos_spark.folder import run_folder
from roq.simulation.experiments.chaos_spark.judge import (
    Loss,
    Row,
    back,
    differences,
    disorder,
    distinct,
)
from roq.simulation.experiments.chaos_spark.player import Kill, Player, Scaling, plan
from roq.simulation.experiments.chaos_spark.progress import progress
from roq.simulation.experiments.chaos_spark.standalone import Standalone, can_hide
from roq.simulation.experiments.chaos_spark.traffic import SOURCE, TARGET, Traffic
from roq.simulation.real import results
from roq.simulation.real.results import Machine
from roq.testing import cluster

NAME: Final = "chaos_spark"
WORKERS: Final = 2
SEEDS: Final = 1_000_000


class Tally(msgspec.Struct, kw_only=True):
    """Messages, where they stood in the end."""

    sent: int
    """Published, and acknowledged."""
    logged: int
    """In the logs of the first queue, also those that went with their exchanges."""
    filed: int
    """Rows of the Parquet table, each message counted once."""
    filed_again: int
    """Rows that stand there once more: their exchange died, and they were sent to another one."""
    unfiled: int
    """Messages that went with an exchange before they were read: the query has failed."""
    files: int
    received: int
    """What a subscriber of the second queue got, each message counted once."""
    received_again: int
    unreceived: int
    """As of the files."""
    copied: int
    """In the logs of the second queue, each counted once."""
    copied_again: int
    """In the logs of the second queue once more, for a micro-batch was published again. Subscribers
    drop these, and so does `dropDuplicates`."""
    batches: int
    """Micro-batches that were published to the second queue, or parts of them if tasks publish."""
    micro_batches: int = 0
    """Of the query that published them, with those that had no rows."""


class Result(msgspec.Struct, kw_only=True):
    """A whole run."""

    machine: Machine
    seed: int
    rate: float
    by_tasks: bool = False
    """The tasks of the query publish, not its driver."""
    apart: bool = False
    """The workers did not see the driver's folder, only the one of checkpoints, stages and tables.
    """
    seconds: float
    kills: list[Kill]
    scalings: list[Scaling]
    ended: list[str]
    """How the driver has ended by itself; it was started again."""
    tally: Tally
    violations: list[str]
    """What is not as promised, in sentences."""

    @property
    def ok(self) -> bool:
        """Something happened, and everything was as promised."""
        return bool(self.kills) and self.tally.sent > 0 and not self.violations


def run(
    seed: int,
    kills: int,
    rate: float,
    *,
    by_tasks: bool,
    say: Callable[[str], None],
    logs: Path | None = None,
) -> Result:
    """Play the plan of a seed.

    Args:
        rate: messages a second.
        by_tasks: the tasks of the query into the other queue publish, not its driver.
        logs: where everything that was written is copied to when something was wrong.

    Raises:
        RoQError, ScenarioError: it cannot be played here, or does not go on.
    """
    with results.measured() as machine, run_folder() as folder:
        try:
            result = _played(folder, seed, kills, rate, by_tasks, machine, say)
        except Exception:
            _save(folder, logs, say)
            raise
        if result.violations:
            _save(folder, logs, say)
    return result


def _played(
    folder: Path,
    seed: int,
    kills: int,
    rate: float,
    by_tasks: bool,
    machine: Machine,
    say: Callable[[str], None],
) -> Result:
    own, shared = folder / "driver", folder / "shared"
    own.mkdir()
    shared.mkdir()
    apart = can_hide()
    with (
        cluster(data_dir=folder / "roq") as roq_cluster,
        Standalone(folder, cores=1, workers=WORKERS, hidden=own if apart else None) as spark,
        Traffic(roq_cluster.address, rate) as traffic,
    ):
        job = Job(
            master=spark.master, home=str(spark.home), cluster=roq_cluster.address,
            source=SOURCE, target=TARGET, folder=str(shared), by_tasks=by_tasks,
        )  # fmt: skip
        say(f"Spark {spark.master}, RoQ {roq_cluster.address}, {rate:g} messages a second")
        player = Player(own, spark, traffic, job, say)
        try:
            player.play(seed, list(plan(seed, kills)))
            files = player.finish()
        finally:
            player.close()
        tally, violations = _judged(traffic, files, player.losses)
        tally.micro_batches = progress(job.checkpoint("queue")).committed + 1
        return Result(
            machine=machine, seed=seed, rate=rate, by_tasks=by_tasks, apart=apart,
            seconds=round(player.elapsed, 1),
            kills=player.kills, scalings=player.scalings, ended=player.ended, tally=tally,
            violations=violations,
        )  # fmt: skip


def _judged(
    traffic: Traffic, files: Sequence[Path], losses: Sequence[tuple[Loss, Mapping[str, int]]]
) -> tuple[Tally, list[str]]:
    logs, copies = traffic.log(SOURCE), traffic.log(TARGET)
    table = {path.name: read_rows(path) for path in files}
    present = [row for rows in logs.values() for row in rows]
    copied = [row for rows in copies.values() for row in rows]
    once = distinct(copied)
    traffic.wait_for(len(traffic.sent), len(once))
    # What stood in a log that is gone, a subscriber has seen.
    logged = distinct([*present, *traffic.seen])
    filed = [row for rows in table.values() for row in rows]
    payloads, got = [row.payload for row in logged], list(traffic.got)
    received = {row.payload for row in got}
    # An exchange that was killed took its log along; what it had was partly sent again.
    again = {payload for loss, _ in losses for payload in loss.sent_again()}
    lost = {
        query: {key for loss, read in losses for key in loss.unread(read[query])}
        for query in QUERIES
    }
    again_rows = {row for row in logged if row.payload in again}
    lost_rows = {row for row in logged if row.payload in lost["files"]}
    tally = Tally(
        sent=len(traffic.sent), logged=len(logged), filed=len(set(filed)),
        filed_again=len(filed) - len(set(filed)), unfiled=len(set(logged) - set(filed)),
        files=len(table), received=len(received), received_again=len(got) - len(received),
        unreceived=len(set(payloads) - received),
        copied=len(once), copied_again=len(copied) - len(once),
        batches=len({row.publisher for row in copied}),
    )  # fmt: skip
    originals = [row for row in got if row.payload not in again]
    return tally, [
        *traffic.troubles,
        *differences("first queue", traffic.sent, payloads),
        *differences("first queue, as received", payloads, [row.payload for row in traffic.seen]),
        *differences("logs of the first queue", distinct(present), present, again=again_rows),
        *differences("files", logged, filed, lost=lost_rows, again=again_rows),
        *differences(
            "second queue, as logged", payloads, [row.payload for row in once],
            lost=lost["queue"], again=again,
        ),
        *differences(
            "second queue, as received", [row.payload for row in once], [row.payload for row in got]
        ),
        *disorder("files", table),
        *disorder("second queue, as received", {"what came": got}),
        *disorder("second queue, by partition", back(originals, _places(logs))),
    ]  # fmt: skip


def _places(logs: Mapping[LogId, Sequence[Row]]) -> dict[bytes, tuple[str, Row]]:
    return {row.payload: (str(log), row) for log, rows in logs.items() for row in rows}


def read_rows(path: Path) -> list[Row]:
    """A Parquet file, in its order."""
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    table = parquet.ParquetFile(path).read(list(Row._fields))
    columns = [table[name].to_pylist() for name in Row._fields]
    return [Row(*values) for values in zip(*columns, strict=True)]


def _save(folder: Path, logs: Path | None, say: Callable[[str], None]) -> None:
    if logs is None:
        return
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    for path in (*folder.glob("**/*.log"), *folder.glob("work/*/*/stderr")):
        shutil.copy(path, logs / str(path.relative_to(folder)).replace("/", "-"))
    say(f"logs: {logs}")


@click.command(short_help="Kill Spark and exchanges, and see that nothing is lost in silence.")
@click.option("--seed", type=click.IntRange(0), help="Of the plan; by default a new one.")
@results.option("--kills", click.IntRange(1, 10_000), 60, "How many.")
@results.option(
    "--rate", click.FloatRange(1, 10_000), 300.0, "Messages a second, published the whole time."
)
@click.option(
    "--tasks",
    "by_tasks",
    is_flag=True,
    help="The tasks of a query publish (TaskSink), not its driver.",
)
@results.scenario("Directory for the JSON, and for logs when something was wrong.")
def main(
    seed: int | None, kills: int, rate: float, by_tasks: bool, output: Path, as_json: bool
) -> bool:
    """Run two streaming queries on a Spark cluster of local processes, from one RoQ queue into
    another and into Parquet files, and kill the driver, executors, tasks and exchanges at random
    moments. Between the kills exchanges of the first queue come and go. In the end the logs of the
    queues, the files and what subscribers have got must be the same, but for what went with an
    exchange that was killed: of that the queries must have told.

    \b
    Example:
      python -m roq.simulation.experiments.chaos_spark --kills 10 --seed 7
    """
    out = results.console(as_json=as_json)
    given = random.randrange(SEEDS) if seed is None else seed
    out.print(f"seed {given}")
    result = run(
        given, kills, rate, by_tasks=by_tasks, logs=output / "chaos-spark-logs",
        say=lambda line: out.print(line, highlight=False, soft_wrap=True),
    )  # fmt: skip
    results.told(result, f"{NAME}_tasks" if by_tasks else NAME, output, _show, as_json=as_json)
    return result.ok


def _show(out: Console, result: Result) -> None:
    rows = []
    for kind in sorted({kill.kind for kill in result.kills}):
        some = [kill for kill in result.kills if kill.kind == kind]
        took = sorted(kill.recovered_seconds for kill in some)
        phases = Counter(phase for kill in some for phase in kill.phases.values())
        rows.append(
            (kind, len(some), f"{took[len(took) // 2]:.1f}", f"{took[-1]:.1f}",
             ", ".join(f"{phase} {count}" for phase, count in phases.most_common()))
        )  # fmt: skip
    columns = ("killed", "times#", "both go on after, median s#", "most s#", "the queries were")
    out.print()
    out.print(results.table(f"Seed {result.seed}, {result.seconds:.0f} s", columns, rows))
    out.print()
    gone = sorted(each.took_seconds for each in result.scalings if not each.comes)
    if gone:
        out.print(
            f"{len(result.scalings) - len(gone)} exchanges came, {len(gone)} went, after "
            f"{gone[len(gone) // 2]:.1f} s (median), {gone[-1]:.1f} s at most"
        )
    tally = msgspec.structs.asdict(result.tally)
    out.print("  ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in tally.items()))
    for text in result.ended:
        out.print(f"the driver has ended by itself: {text}", style="yellow")
    for text in result.violations:
        out.print(text, style="red", soft_wrap=True)
    out.print(results.machine_text(result.machine))
    verdict = "everything as promised" if result.ok else f"{len(result.violations)} violations"
    out.print(verdict, style="bold green" if result.ok else "bold red")


if __name__ == "__main__":
    main()
