"""`roq bench`: what this machine makes of RoQ, beside its peers if wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from roq.cli.failures import BENCH, Failed, wanted
from roq.cli.output import console, note, print_json

RESULTS: Final = Path("benchmarks/results")


@click.command(short_help="Measure RoQ on this machine, beside its peers if wanted.")
@click.option(
    "--compare",
    is_flag=True,
    help="Measure zmq.proxy, a raw hop, NATS and Redis as well, and write the results.",
)
@click.option("--quick", is_flag=True, help="About a minute instead of about five.")
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Rounds; the medians over them are shown."
)
@click.option(
    "--durable",
    is_flag=True,
    help="Measure durable queues instead: beside the bare disk and peers that store.",
)
@click.option(
    "--groups",
    is_flag=True,
    help="Measure consumer groups instead: beside subscribers and peers.",
)
@click.option(
    "--requests", is_flag=True, help="Measure requests and responses instead: beside peers."
)
@click.option(
    "--limits",
    is_flag=True,
    help="With --requests: what they cost at most instead, against what is wanted.",
)
@click.option("--jobs", is_flag=True, help="Measure jobs instead: beside peers.")
@click.option(
    "--backlog",
    type=click.IntRange(1, 100_000_000),
    help="With --jobs: beside so many jobs that wait, and as many that are done; times and a "
    "console as well, and no peers.",
)
@click.option(
    "--held-minutes",
    type=click.IntRange(1, 24 * 60),
    help="With --backlog: a transaction is open for at least so long meanwhile.",
)
@click.option(
    "--busy",
    type=click.IntRange(min=0, max=256),
    default=0,
    help="Measure latency also beside so many programs that burn a core each.",
)
@click.option(
    "--idle",
    type=click.IntRange(min=0, max=256),
    default=0,
    help="Measure latency also beside so many servers that have nothing to do.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Directory for JSON and picture; with --compare {RESULTS} if not given.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of tables.")
def bench(
    compare: bool,
    quick: bool,
    rounds: int | None,
    durable: bool,
    groups: bool,
    requests: bool,
    limits: bool,
    jobs: bool,
    backlog: int | None,
    held_minutes: int | None,
    busy: int,
    idle: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure throughput, CPU, memory and latency on this machine.

    Starts a cluster of its own on free ports (and nats-server and redis-server, where they are
    installed), measures sizes from 10 B to 64 KiB with 1 and 20 subscribers, in several rounds in
    which the contenders take turns, and stops everything again. Keep the machine quiet meanwhile.

    \b
    Example:
      roq bench --quick
      roq bench --compare
      roq bench --compare --busy 1 --idle 5
      roq bench --durable
      roq bench --groups
      roq bench --requests --limits
      roq bench --jobs
      roq bench --jobs --backlog 5000000
      roq bench --jobs --backlog 1000000 --held-minutes 10
    """
    chosen_apart = [
        name
        for name, wants in (
            ("durable", durable),
            ("groups", groups),
            ("requests", requests),
            ("jobs", jobs),
        )
        if wants
    ]
    if len(chosen_apart) > 1 or (chosen_apart and (compare or busy or idle)):
        raise click.UsageError(
            "--durable, --groups, --requests and --jobs are measured apart: give one of them, "
            "without --compare, --busy and --idle"
        )
    if backlog is not None and not jobs:
        raise click.UsageError("--backlog is of jobs: give --jobs, too")
    if held_minutes is not None and backlog is None:
        raise click.UsageError("--held-minutes is of a backlog: give --backlog, too")
    if limits and not requests:
        raise click.UsageError("--limits are of requests: give --requests, too")
    if chosen_apart:
        named = "request_limits" if limits else "backlog" if backlog else chosen_apart[0]
        more = {"backlog_bytes": 200_000_000 if quick else 1_000_000_000,
                "cold_bytes": 1 << 28 if quick else 1 << 30} if durable else {}  # fmt: skip
        if backlog is not None:
            more = {"number": backlog, "held_minutes": held_minutes or 0}
        _bench_apart(
            named, rounds or (2 if quick else 5), 0.4 if quick else 1.0,
            output or RESULTS, as_json=as_json, **more,
        )  # fmt: skip
        return
    plan, benchmark, report = (
        wanted(f"roq.benchmarks.{name}", "benchmarks", BENCH)
        for name in ("plan", "benchmark", "report")
    )
    chosen = plan.quick if quick else plan.full
    besides = {"busy": busy, "idle": idle}
    planned = chosen(**besides) if rounds is None else chosen(rounds, **besides)
    results = benchmark.measure(planned, console(error=True), compare=compare)
    if as_json:
        print_json(results)
    else:
        report.show(results, console())
    reason = benchmark.nothing_measured(results)
    if reason:
        raise Failed(f"nothing of RoQ was measured: {reason}", hint="No results are written.")
    directory = output or (RESULTS if compare else None)
    if directory is not None:
        for path in benchmark.write(results, directory):
            note(f"written: {path}")


def _bench_apart(
    name: str, rounds: int, seconds: float, directory: Path, *, as_json: bool, **more: int
) -> None:
    module = wanted(f"roq.benchmarks.{name}", "benchmarks", BENCH)
    results = module.measure(rounds, seconds, console(error=True), **more)
    if as_json:
        print_json(results)
    else:
        module.show(results, console())
    if not results.rates:
        raise Failed("nothing was measured", hint="No results are written.")
    for path in module.write(results, directory):
        note(f"written: {path}")
