"""What a scenario prints and writes: the machine, the figures, the targets, the verdict."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeAlias, TypeVar

import click
import msgspec
import psutil
import zmq
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from roq.cli.interrupts import ends_quietly
from roq.cli.output import console as standard_console
from roq.cli.output import print_json
from roq.errors import RoQError
from roq.simulation.real.judge import Judge
from roq.simulation.real.workers import ScenarioError

WRONG_MAX: Final = 12
RESULTS: Final = Path("simulation/results")
Kind: TypeAlias = click.IntRange | click.FloatRange | click.Choice[str] | type[str]
_BOUNDED: Final[dict[object, type[click.IntRange | click.FloatRange]]] = {
    int: click.IntRange, float: click.FloatRange,
}  # fmt: skip
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., object])
D = TypeVar("D", bound=msgspec.Struct)


class Machine(msgspec.Struct, kw_only=True):
    """On what it was measured, and how quiet that was."""

    when: str
    cpu: str
    cores: int
    python: str
    libzmq: str
    load_before: float
    """Load average of the last minute when it began: what else ran on the machine."""
    busy_percent: float = 0.0
    """Of all cores, by everything, while it was measured."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be reached, and what came out."""

    text: str
    measured: float | None
    """None: it could not be measured."""
    goal: float
    at_least: bool = False
    """Whether more is better; else `goal` is the most that is allowed."""
    unit: str = ""

    @property
    def reached(self) -> bool:
        """Whether it was measured and is good enough."""
        if self.measured is None:
            return False
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The history check over all live subscribers, in messages."""

    sent: int
    received: int
    lost: int
    """Not received, reported or not."""
    duplicated: int
    reordered: int
    foreign: int
    subscribers: int
    streams: int
    wrong: list[str] = []
    """The streams in which something is wrong, if there are any."""

    @property
    def ok(self) -> bool:
        """Everything arrived, once and in order, and there was something."""
        wrong = self.lost + self.duplicated + self.reordered + self.foreign
        return self.sent > 0 and not wrong


class Measured(msgspec.Struct, kw_only=True):
    """What an experiment with targets has come to; each adds its own figures."""

    machine: Machine
    targets: list[Target]
    counts: list[Counts] = []
    """What subscribers have got, where anybody has published."""

    @property
    def reached(self) -> bool:
        """Whether all targets were, and every message has arrived once and in order."""
        return all(each.reached for each in self.targets) and all(each.ok for each in self.counts)


def counts(judge: Judge) -> Counts:
    """What a judge says at the end."""
    expected, tally = judge.finish(), judge.tally
    return Counts(
        sent=expected.sent,
        received=tally.received,
        lost=tally.lost + tally.counted_lost,
        duplicated=tally.duplicated,
        reordered=tally.reordered,
        foreign=tally.foreign,
        subscribers=expected.subscribers,
        streams=expected.streams,
        wrong=judge.findings[:WRONG_MAX],
    )


@contextmanager
def measured() -> Iterator[Machine]:
    """Look at the machine before and after the block, which may say itself how busy it was."""
    psutil.cpu_percent()
    machine = Machine(
        when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        cpu=cpu_model(),
        cores=os.cpu_count() or 0,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libzmq=zmq.zmq_version(),
        load_before=os.getloadavg()[0],
    )
    yield machine
    machine.busy_percent = machine.busy_percent or psutil.cpu_percent()


def scenario(
    keeps: str = "Directory for the JSON.", folder: Path = RESULTS
) -> Callable[[Callable[P, bool]], Callable[P, None]]:
    """Make a command of a function that gives whether everything was reached.

    It gets the options `--output` (as `output`) and `--json` (as `as_json`) behind its own; end it
    with `told`. Exit codes: 0 reached, 1 not, or it could not be run.

    Args:
        keeps: what the directory of `--output` is for.
        folder: which one it is if none is given.
    """

    def decorated(function: Callable[P, bool]) -> Callable[P, None]:
        @wraps(function)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            reached = False
            with ends_quietly():
                try:
                    reached = function(*args, **kwargs)
                except (ScenarioError, RoQError) as error:
                    raise click.ClickException(str(error)) from None
            raise SystemExit(0 if reached else 1)

        directory = click.Path(path_type=Path, file_okay=False)
        output = click.option(
            "--output", type=directory, default=folder, show_default=True, help=keeps
        )
        as_json = click.option(
            "--json", "as_json", is_flag=True, help="JSON for programs on standard output."
        )
        return output(as_json(command))

    return decorated


def option(name: str, kind: Kind, default: float | str, text: str) -> Callable[[F], F]:
    """An option of a command that shows its default."""

    def decorated(function: F) -> F:
        return click.option(name, type=kind, default=default, show_default=True, help=text)(
            function
        )

    return decorated


def planned(
    plan: type[msgspec.Struct],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a plan: what its fields are described as are the options, with the defaults.

    A field is described by `Annotated[int, Meta(ge=1, le=9, description="What people read.")]`;
    others are none of the options. Stands above `scenario`.
    """
    described = [
        (field.name, field.type.__origin__, field.type.__metadata__[0], field.default)
        for field in msgspec.structs.fields(plan)
        if hasattr(field.type, "__metadata__")
    ]

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: object) -> None:
            made = plan(**{name: given.pop(name) for name, *_ in described})
            function(made, **given)

        for name, kind, meta, default in reversed(described):
            bounded = _BOUNDED.get(kind)
            option(
                f"--{name.replace('_', '-')}",
                bounded(meta.ge, meta.le) if bounded else kind,
                default,
                meta.description,
            )(command)
        return command

    return decorated


def told(
    document: D,
    name: str,
    output: Path,
    show: Callable[[Console, D], None],
    *,
    as_json: bool,
    drawing: Path | None = None,
) -> None:
    """Tell what came out, to programs or to people, and keep it.

    Args:
        document: what came out.
        name: of its file.
        output: directory of that.
        show: prints it for people.
        as_json: for programs.
        drawing: was made beside it.
    """
    if as_json:
        print_json(document)
    else:
        out = console(as_json=False)
        show(out, document)
        if isinstance(document, Measured):
            rest = (targets_table(document.targets), machine_text(document.machine))
            for each in (*map(counts_table, document.counts), *rest):
                out.print()
                out.print(each)
    written = f"{write(document, name, output)}{f' and {drawing}' if drawing else ''}"
    console(as_json=as_json).print(f"written: {written}", style="dim")


def console(*, as_json: bool) -> Console:
    """Where people read: standard error when programs read standard output."""
    return standard_console(error=as_json)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table; columns whose heading ends with `#` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold dim")
    made.box = None
    for column in columns:
        right = column.endswith("#")
        made.add_column(column.rstrip("#"), justify="right" if right else "left")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    return made


def targets_table(targets: Sequence[Target]) -> Table:
    """The targets as people read them."""
    rows = []
    for target in targets:
        sign = "≥" if target.at_least else "≤"
        measured = "not measured" if target.measured is None else _figure(target.measured, target)
        style = "green" if target.reached else "bold red"
        mark = "✔" if target.reached else "✘"
        rows.append(
            (target.text, Text(measured, style=style), f"{sign} {_figure(target.goal, target)}",
             Text(mark, style=style))
        )  # fmt: skip
    return table("Targets", ("", "measured#", "wanted#", ""), rows)


def counts_table(found: Counts, title: str = "History of every live subscriber") -> RenderableType:
    """The history check as people read it."""
    style = "bold green" if found.ok else "bold red"
    sums = table(
        title,
        ("subscribers#", "streams#", "sent#", "received#", "lost#", "duplicated#", "reordered#"),
        [
            (
                found.subscribers,
                found.streams,
                f"{found.sent:,}",
                f"{found.received:,}",
                Text(f"{found.lost + found.foreign:,}", style=style),
                Text(f"{found.duplicated:,}", style=style),
                Text(f"{found.reordered:,}", style=style),
            )
        ],
    )
    return Group(sums, *(Text(f"  {line}", style="red") for line in found.wrong))


def machine_text(machine: Machine) -> Text:
    """The machine in one line."""
    return Text(
        f"{machine.cpu}, {machine.cores} cores, {machine.python}, libzmq {machine.libzmq}; "
        f"load {machine.load_before:.1f} before, {machine.busy_percent:.0f} % busy meanwhile",
        style="dim",
    )


def write(document: msgspec.Struct, name: str, directory: Path) -> Path:
    """Write a result as readable JSON; gives its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    return path


def _figure(value: float, target: Target) -> str:
    text = f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:.3g}"
    return f"{text} {target.unit}".rstrip()


def cpu_model() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
