"""The results as tables for people, and the progress while they come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from roq.benchmarks import plan
from roq.benchmarks.case import Case, CaseFailure, CaseSample, beside_text
from roq.benchmarks.contender import Contender
from roq.benchmarks.results import Environment, Results, Verdict
from roq.benchmarks.statistics import Figure

ROLES: Final = {"publisher": "publisher", "exchange": "server", "subscriber": "subscribers"}
ROLES_SERVER: Final = "exchange"
_MEGA: Final = 1e6


def size_text(size: int) -> str:
    """A message size as people say it."""
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def case_text(case: Case) -> str:
    """A case in a few words."""
    parts = [size_text(case.size)]
    if case.rate:
        parts.append(f"latency at {case.rate}/s")
    elif case.per_batch > 1:
        parts.append(f"{case.per_batch} per batch")
    if case.flood:
        parts.append("flood")
    if case.subscribers > 1:
        parts.append(f"{case.subscribers} subscribers")
    beside = beside_text(case)
    if beside:
        parts.append(beside)
    return ", ".join(parts)


def show_machine(environment: Environment, rounds: int, what: str, console: Console) -> None:
    """Print where and how often it was measured, and what."""
    console.print(
        f"{environment.cpu}, {environment.cores} cores, {environment.python}; "
        f"load {environment.load_before:.1f} before; medians of {rounds} rounds in turn, {what}",
        style="dim",
    )


def show_rest(
    told: Iterable[tuple[str, str]], skipped: Mapping[str, str], failures: Iterable[str],
    console: Console,
) -> None:  # fmt: skip
    """Print comparisons, what could not take part and why, and what went wrong."""
    for title, text in told:
        console.print(f"{title}: {text}")
    for key, reason in skipped.items():
        console.print(f"skipped: {key}: {reason}")
    for failure in failures:
        console.print(f"failed: {failure}")


def rate_text(rate: float) -> str:
    """Messages per second with three digits that mean something."""
    if rate >= 999_500:
        return f"{rate / 1e6:.2f} M"
    return f"{rate / 1e3:.0f} k" if rate >= 99_950 else f"{rate / 1e3:.1f} k"


def verdict_text(verdict: Verdict) -> Text:
    """`reached`, `missed` or `not measured`, in its colour."""
    if verdict.reached is None:
        return Text("not measured", style="yellow")
    return Text("reached", style="green") if verdict.reached else Text("missed", style="bold red")


def number_text(value: float | None, unit: str) -> str:
    """A measured value with its unit."""
    if value is None:
        return "-"
    return f"{value:.3g}{unit}" if abs(value) < 1000 else f"{value:,.0f}{unit}"


def show(results: Results, console: Console) -> None:
    """Print everything."""
    console.print(
        Group(
            _environment(results),
            _throughput(results),
            _costs(
                results,
                plan.main_case(),
                "CPU and memory, 100 B, 500 per batch, 1 subscriber",
            ),
            _costs(
                results,
                plan.fan_out_case(),
                f"CPU and memory, 100 B, 500 per batch, {plan.FAN_OUT} subscribers",
            ),
            *(_latency(results, case) for case in _latency_cases(results)),
            _flood(results),
            _idle(results),
            verdict_table(results.verdicts),
            _trouble(results),
        )
    )


def _environment(results: Results) -> RenderableType:
    found = results.environment
    libraries = ", ".join(f"{name} {number}" for name, number in found.libraries.items() if number)
    servers = ", ".join(text for text in found.servers.values() if text)
    lines = [
        f"{found.cpu}, {found.cores} cores, {found.memory_bytes / 2**30:.0f} GiB, {found.system}",
        f"{found.python}, libzmq {found.libzmq}, {libraries}",
        servers or "no servers of peers",
        (
            f"medians of {results.rounds} rounds ({results.fan_out_rounds} with many subscribers), "
            f"{results.seconds_per_run:g} s each, contenders alternating"
        ),
    ]
    text = Text("\n".join(lines), style="dim")
    if found.load_before > 0.5 * found.cores:
        text.append(
            f"\nOther work ran on this machine (load average {found.load_before:.1f} before the "
            "start): the figures are too low, the ratios less certain.",
            style="yellow",
        )
    return text


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=index > 0)
    return table


def _titled(title: str, table: Table) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold"), table)


def _throughput(results: Results) -> RenderableType:
    cases = [Case(size=size, batch=plan.FULL_BATCH) for size in plan.SIZES]
    cases.insert(2, plan.main_case(plan.SMALL_BATCH))
    heads = [f"{size_text(case.size)}\n{case.per_batch} per batch" for case in cases]
    table = _table("", *heads)
    for key, title in results.titles.items():
        row = [_find(results, key, case) for case in cases]
        if any(row):
            table.add_row(title, *(_rate_cell(figure) for figure in row))
    return _titled("Throughput, 1 subscriber: messages/s and MB/s", table)


def _rate_cell(figure: Figure | None) -> Text:
    if figure is None:
        return Text("-", style="dim")
    return Text.assemble(
        (rate_text(figure.rate), "bold"), f"  {figure.bytes_rate / _MEGA:,.0f} MB/s"
    )


def _costs(results: Results, case: Case, title: str) -> RenderableType:
    table = _table(
        "",
        "messages/s",
        *(f"{name}\nCPU s per M" for name in ROLES.values()),
        *(f"{name}\nRSS MB" for name in ROLES.values()),
    )
    for key, name in results.titles.items():
        figure = _find(results, key, case)
        if figure is not None:
            table.add_row(
                name,
                rate_text(figure.rate),
                *(f"{figure.cpu_us.get(role, 0.0):.2f}" for role in ROLES),
                *(f"{figure.rss.get(role, 0) / _MEGA:.0f}" for role in ROLES),
            )
    return _titled(title, table)


def _latency_cases(results: Results) -> list[Case]:
    return list(dict.fromkeys(figure.case for figure in results.figures if figure.latency_us))


def _latency(results: Results, case: Case) -> RenderableType:
    table = _table("", "p50", "p99", "p99.9")
    for key, title in results.titles.items():
        figure = _find(results, key, case)
        if figure is not None:
            table.add_row(title, *(f"{value:,.0f}" for value in figure.latency_us.values()))
    title = f"Latency from publish to the receiver's hands, 100 B, {case.rate}/s, µs"
    beside = beside_text(case)
    return _titled(f"{title}, {beside}" if beside else title, table)


def _flood(results: Results) -> RenderableType:
    """Who loses something at full speed, and what it costs not to."""
    case, table = plan.flood_case(), _table("", "lost", "messages/s", "server\nRSS MB")
    for key, title in results.titles.items():
        figure = _find(results, key, case)
        failed = [one for one in results.failures if (one.contender, one.case) == (key, case)]
        if figure is not None:
            rss = figure.rss.get(ROLES_SERVER, 0) / _MEGA
            table.add_row(title, "0", rate_text(figure.rate), f"{rss:.0f}")
        elif failed:
            table.add_row(title, Text(failed[0].reason, style="red"), "-", "-")
    if not table.row_count:
        return Text()
    return _titled("Ten seconds at full speed, default settings, 1 subscriber", table)


def _idle(results: Results) -> RenderableType:
    idle = results.idle
    if idle is None:
        return Text("no RoQ cluster, so no idle cost", style="yellow")
    table = _table("process", "CPU %", "RSS MB")
    for name, cost in idle.processes.items():
        table.add_row(name, f"{cost.cpu_percent:.2f}", f"{cost.rss / _MEGA:.0f}")
    seconds, up = idle.measured_seconds, idle.up_seconds
    return _titled(f"Idle cluster, over {seconds:g} s; `roq up` took {up:.1f} s", table)


def verdict_table(verdicts: Iterable[Verdict]) -> RenderableType:
    """What is wanted and what came out."""
    table = _table("", "goal", "measured", "range", "")
    for verdict in verdicts:
        sign = "≥" if verdict.at_least else "≤"
        spread = (
            f"{verdict.low:.3g} to {verdict.high:.3g}"
            if verdict.low is not None and verdict.high is not None
            else ""
        )
        table.add_row(
            verdict.text,
            f"{sign} {number_text(verdict.goal, verdict.unit)}",
            number_text(verdict.measured, verdict.unit),
            spread,
            verdict_text(verdict),
        )
    return _titled("Targets", table)


def _trouble(results: Results) -> RenderableType:
    lines = [
        Text(f"skipped: {results.titles.get(key, key)}: {reason}", style="yellow")
        for key, reason in results.skipped.items()
    ]
    lines += [
        Text(
            f"failed: {results.titles.get(one.contender, one.contender)}, {case_text(one.case)}, "
            f"round {one.round + 1}: {one.reason}",
            style="red",
        )
        for one in results.failures
    ]
    return Group(*lines)


def _find(results: Results, key: str, case: Case) -> Figure | None:
    return next((f for f in results.figures if (f.contender, f.case) == (key, case)), None)


class Bars:
    """Progress on a terminal: one bar, the measurement under way and the last figure."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold cyan]{task.fields[contender]:<36}[/] {task.fields[case]:<28}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[last]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=steps, contender="", case="", last="")

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def says(self, text: str) -> None:
        """Something else is going on."""
        self._progress.update(self._task, contender=escape(text), case="")

    def begins(self, contender: Contender, case: Case, number: int) -> None:
        """Show what is measured now."""
        self._progress.update(
            self._task, contender=contender.title, case=f"{case_text(case)}, round {number + 1}"
        )

    def measured(self, sample: CaseSample) -> None:
        """Show what came out."""
        self._progress.update(self._task, advance=1, last=f"last: {_sample_text(sample)}")

    def failed(self, failure: CaseFailure) -> None:
        """Leave a line."""
        self._progress.advance(self._task)
        self._console.print(Text(f"{failure.contender} failed: {failure.reason}", style="red"))

    def skipped(self, contender: Contender, reason: str) -> None:
        """Leave a line."""
        self._console.print(Text(f"skipped: {contender.title}: {reason}", style="yellow"))


class Lines:
    """Progress in a log: one line per measurement."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._done = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to undo."""

    def says(self, text: str) -> None:
        """Something else is going on."""
        self._console.print(text, markup=False)

    def begins(self, contender: Contender, case: Case, number: int) -> None:
        """Nothing yet."""

    def measured(self, sample: CaseSample) -> None:
        """One line."""
        self._line(f"{case_text(sample.case):<32} {sample.contender:<18} {_sample_text(sample)}")

    def failed(self, failure: CaseFailure) -> None:
        """One line."""
        self._line(f"{case_text(failure.case):<32} {failure.contender:<18} {failure.reason}")

    def skipped(self, contender: Contender, reason: str) -> None:
        """One line."""
        self._console.print(f"skipped: {contender.title}: {reason}", markup=False)

    def _line(self, text: str) -> None:
        self._done += 1
        self._console.print(f"{self._done:>4}/{self._steps} {text}", markup=False)


def _sample_text(sample: CaseSample) -> str:
    if sample.latencies_us:
        middle = sorted(sample.latencies_us)[len(sample.latencies_us) // 2]
        return f"{middle:,.0f} µs"
    return f"{rate_text(sample.rate)} messages/s"
