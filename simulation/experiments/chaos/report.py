"""`python -m roq.simulation.experiments.chaos.report`: the table of promises, measured."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from roq.simulation.experiments.chaos.environment import Environment, Wish, environment
from roq.simulation.experiments.chaos.rows import NOMAD, STEADY, Measure, Row, Rows
from roq.simulation.real import results
from roq.simulation.real.results import Machine
from roq.simulation.real.timings import Timings, percentile
from roq.simulation.real.workers import ScenarioError
from roq.testing import namespaces

NAME: Final = "chaos_report"
CONTROL: Final = "control"
WHOLE_SECONDS: Final = 40.0
CAUGHT_UP_SECONDS: Final = 15.0
KPI_MS: Final = 250
"""Exchanges tell so often who is there: that is how exactly `forgotten` can be seen."""
P999_GOAL: Final = 0.1
MOST_GOAL: Final = 0.1
MOST_RATIO: Final = 2.0
WISHES: Final = (
    Wish(STEADY, exchanges=1, publishers=2, subscribers=2, rate=100.0, host=0),
    Wish(NOMAD, exchanges=1, publishers=2, subscribers=1, rate=50.0, host=1),
)
APART: Final = 2
"""Machines for ZooKeeper and configuration managers alone, so that a host is only a host."""
HOSTS: Final = 3


class Flow(msgspec.Struct, kw_only=True):
    """`publish()` during one kind of failure."""

    what: str
    calls: int
    seconds: float
    """How long all windows together were."""
    p999: float
    most: float
    errors: int

    def reached(self, control: Flow) -> bool:
        """Whether no caller had to wait too long, compared with a time without failures."""
        most = max(MOST_GOAL, MOST_RATIO * control.most)
        return self.calls > 0 and not self.errors and self.p999 <= P999_GOAL and self.most <= most


class Report(msgspec.Struct, kw_only=True):
    """The whole table."""

    machine: Machine
    repeat: int
    rows: list[Row]
    flows: list[Flow]
    tally: dict[str, int]
    troubles: list[str] = []
    """What was wrong when nothing was being broken."""

    @property
    def control(self) -> Flow:
        """The data flow without failures."""
        return next(flow for flow in self.flows if flow.what == CONTROL)

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        rows = all(row.reached for row in self.rows)
        return not self.troubles and rows and all(flow.reached(self.control) for flow in self.flows)


Play = tuple[str, Callable[[Rows], Iterable[Measure]], Callable[[Rows], Row | None]]
PLAYS: Final[tuple[Play, ...]] = (
    ("control", lambda rows: [rows.calm()], lambda _: None),
    ("exchange killed", lambda rows: [rows.kill_exchange()], lambda rows: rows.exchange_killed),
    ("exchange hung", lambda rows: [rows.hang_exchange()], lambda rows: rows.exchange_hung),
    ("monitor killed", lambda rows: [rows.kill_monitor()], lambda rows: rows.monitor_killed),
    # One waits for the session of one host, the other one for that of another.
    (
        "HCM killed, host lost",
        lambda rows: [rows.lose_host(), rows.kill_hcm()],
        lambda rows: rows.host_lost,
    ),
    ("GCM leader killed", lambda rows: [rows.kill_leader()], lambda rows: rows.leader_killed),
    ("ZooKeeper away", lambda rows: [rows.stop_zookeeper()], lambda rows: rows.again),
    (
        "client killed",
        lambda rows: [rows.lose_clients(signal.SIGKILL)],
        lambda rows: rows.client_killed,
    ),
    (
        "client hung",
        lambda rows: [rows.lose_clients(signal.SIGSTOP)],
        lambda rows: rows.client_hung,
    ),
)


def run(repeat: int, only: tuple[str, ...], say: Callable[[str], None]) -> Report:
    """Measure everything so many times.

    Args:
        only: plays whose names begin so; empty: all.

    Raises:
        Unavailable, ScenarioError: it cannot be measured here.
    """
    plays = [play for play in PLAYS if not only or play[0].startswith((*only, CONTROL))]
    with (
        results.measured() as machine,
        environment(
            list(WISHES),
            nodes=APART + HOSTS,
            apart=APART,
            managers=APART,
            kpi_ms=KPI_MS,
            calls=True,
        ) as made,
    ):
        rows = Rows(made)
        troubles: list[str] = []
        try:
            _play_all(rows, plays, repeat, say, troubles)
        finally:
            rows.close()
        made.rest(1.0)
        return Report(
            machine=machine,
            repeat=repeat,
            rows=[row for row in rows.rows if row.seconds or row.violations],
            flows=_flows(made, rows),
            tally=msgspec.to_builtins(made.workers.judge.tally),
            troubles=troubles,
        )


def _play_all(
    rows: Rows, plays: list[Play], repeat: int, say: Callable[[str], None], troubles: list[str]
) -> None:
    began, done = time.monotonic(), 0
    for number in range(1, repeat + 1):
        for name, measures, row_of in plays:
            rows.play(*measures(rows))
            row = row_of(rows)
            wrong = _after(rows)
            (troubles if row is None else row.violations).extend(wrong)
            done += 1
            left = (time.monotonic() - began) / done * (repeat * len(plays) - done)
            figure = f"{row.seconds[-1]:.2f} s" if row and row.seconds else ""
            say(f"{number}/{repeat}  {name:24} {figure:8}  {left / 60:4.0f} min to go")
            for text in wrong:
                say(f"      ✘ {text}")


def _after(rows: Rows) -> list[str]:
    """Wait until all is well again and every message has come; what is wrong in the end."""
    made, judge = rows.environment, rows.environment.workers.judge
    violations = [f"not whole: {each}" for each in made.whole(WHOLE_SECONDS)]
    marks = judge.acked(ended=False)
    made.until(lambda: not judge.behind(marks), CAUGHT_UP_SECONDS)
    violations += judge.behind(marks)
    judge.check()
    violations += judge.findings
    judge.findings = []
    return violations


def _flows(made: Environment, rows: Rows) -> list[Flow]:
    calls = [
        Timings.load(Path(worker.job.calls))
        for worker in made.workers.publishers
        if worker.job.queue == STEADY and worker.job.calls
    ]
    return [_flow(name, windows, calls) for name, windows in rows.windows.items()]


def _flow(name: str, windows: list[tuple[float, float]], calls: Sequence[Timings]) -> Flow:
    took = [each for timings in calls for each in timings.within(windows)]
    return Flow(
        what=name,
        calls=len(took),
        seconds=sum(high - low for low, high in windows),
        p999=percentile(took, 99.9),
        most=max(took, default=0.0),
        errors=0,
    )


@click.command(short_help="How long each failure lasts.")
@results.option("--repeat", click.IntRange(1, 1_000), 30, "Of each.")
@click.option(
    "--only",
    metavar="WHAT",
    multiple=True,
    help=f"May be repeated. There are: {', '.join(play[0] for play in PLAYS)}.",
)
@results.scenario()
def main(repeat: int, only: tuple[str, ...], output: Path, as_json: bool) -> bool:
    """Kill and hang each part of a cluster on hosts of its own, under a steady load, and measure
    how long it takes until all is as before. Hosts are network namespaces; needs root.

    \b
    Example:
      sudo python -m roq.simulation.experiments.chaos.report --repeat 10
      sudo python -m roq.simulation.experiments.chaos.report --only exchange --only monitor
    """
    out = results.console(as_json=as_json)
    if reason := namespaces.missing():
        raise ScenarioError(f"skipped: {reason}")
    report = run(repeat, only, lambda line: out.print(line, highlight=False, soft_wrap=True))
    results.told(report, NAME, output, _show, as_json=as_json)
    return report.ok


def _show(out: Console, report: Report) -> None:
    rows = []
    for row in report.rows:
        ordered = sorted(row.seconds)
        rows.append(
            (
                row.what,
                "" if row.goal is None else f"≤ {row.goal:g} s",
                f"{ordered[len(ordered) // 2]:.2f} s" if ordered else "-",
                f"{ordered[-1]:.2f} s" if ordered else "-",
                len(ordered),
                len(row.violations),
                _mark(row.reached),
            )
        )
    columns = ("", "goal#", "median#", "most#", "n#", "violations#", "")
    out.print()
    out.print(results.table("How long each failure lasts", columns, rows))
    for row in report.rows:
        for text in dict.fromkeys(row.violations):
            out.print(f"  {row.what}: {text}", style="red", highlight=False)
    for text in dict.fromkeys(report.troubles):
        out.print(f"  without any failure: {text}", style="red", highlight=False)
    flows = [
        (
            flow.what,
            f"{flow.calls:,}",
            f"{1_000 * flow.p999:.1f} ms",
            f"{1_000 * flow.most:.1f} ms",
            flow.errors,
            _mark(flow.reached(report.control)),
        )
        for flow in report.flows
    ]
    headings = ("publish() while", "calls#", "p99.9#", "most#", "errors#", "")
    out.print()
    out.print(results.table("Data flow", headings, flows))
    out.print("  ".join(f"{name} {count:,}" for name, count in report.tally.items()))
    out.print(results.machine_text(report.machine))


def _mark(reached: bool) -> Text:
    return Text("✔", style="green") if reached else Text("✘", style="bold red")


if __name__ == "__main__":
    main()
