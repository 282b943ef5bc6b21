"""What the command line prints: tables for people, JSON for programs, one line for an error.

Results go to standard output and nothing else does; whatever is said to the person at the terminal
goes to standard error, so that `roq … | program` sees results alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Final, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from roq.client.admin.views import Listing
    from roq.protocol.public_answers import FromMemory

T = TypeVar("T")
_PLAIN_WIDTH: Final = 10_000
_COLOUR_ENDS: Final = "\x1b[0m"
_FOLDED_LEAST: Final = 20
"""Characters that a column has at least which is folded to fit a terminal."""
_COLOURS: Final = {
    "running": "green",
    "live": "green",
    "leading": "green",
    "following": "green",
    "serving": "green",
    "stopped": "yellow",
    "stopping": "yellow",
    "settling": "yellow",
    "caretaker": "yellow",
    "electing": "yellow",
    "silent": "yellow",
    "cordoned": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "awaited": "yellow",
    "unmanaged": "yellow",
    "degraded": "yellow",
    "paused": "yellow",
    "stalled": "red",
    "restarting": "yellow",
    "missing": "red",
    "failed": "red",
    "unreadable": "red",
    "lost": "red",
    "unknown": "red",
}


def console(*, error: bool = False, width: int | None = None) -> Console:
    """A console on standard output (or error): boxes and colour on a terminal, plain text else.

    Args:
        width: in characters; None: that of the terminal.
    """
    stream: IO[str] = sys.stderr if error else sys.stdout
    if not stream.isatty():  # a pipe has no width: nothing may be folded or cut for it
        width = _PLAIN_WIDTH
    # What is printed comes from errors, names and people: `[extra]` in it is no markup.
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, markup=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print rows under a heading; `empty` (on standard error) if there is none.

    Columns whose heading ends with `#` hold numbers and are aligned to the right.
    """
    listed = [[_cell(value) for value in row] for row in rows]
    if not listed:
        note(empty)
        return
    target = console()
    if target.is_terminal:
        _print_fitting(target, columns, listed)
    else:
        _print_lines(target, _table(columns, listed))


def _print_fitting(target: Console, columns: Sequence[str], rows: list[list[Text]]) -> None:
    """Print a table on a terminal: in a box, without one if it is too wide, with its widest column
    folded if that helps; else its lines are longer than those of the terminal. Words that are
    broken in every column cannot be read, nor copied."""
    folded = max(
        (n for n, column in enumerate(columns) if not column.endswith("#")),
        key=lambda n: _width(rows, n), default=0,
    )  # fmt: skip
    wide = target.options.update(width=_PLAIN_WIDTH)
    for shape in (box.ROUNDED, None):
        table = _table(columns, rows, shape)
        natural = target.measure(table, options=wide).maximum
        left = _width(rows, folded) - (natural - target.width)
        if natural <= target.width:
            return target.print(table)
        if left >= _FOLDED_LEAST:
            return target.print(_table(columns, rows, shape, folded))
    return _print_lines(console(width=_PLAIN_WIDTH), _table(columns, rows))


def _width(rows: list[list[Text]], column: int) -> int:
    return max(line.cell_len for row in rows for line in row[column].split(allow_blank=True))


def _table(
    columns: Sequence[str],
    rows: list[list[Text]],
    shape: box.Box | None = None,
    folded: int | None = None,
) -> Table:
    """A table; `folded` is the column that may be folded, None: all."""
    table = Table(box=shape, header_style="bold", pad_edge=shape is not None)
    for number, column in enumerate(columns):
        table.add_column(
            column.rstrip("#"), justify="right" if column.endswith("#") else "left",
            overflow="fold", no_wrap=folded not in {None, number},
        )  # fmt: skip
    for row in rows:
        table.add_row(*row)
    return table


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one a line."""
    target = console()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(name, _cell(value))
    _print(target, table)


def _print(target: Console, table: Table) -> None:
    if target.is_terminal:
        target.print(table)
    else:
        _print_lines(target, table)


def _print_lines(target: Console, table: Table) -> None:
    with target.capture() as printed:
        target.print(table)
    # One long reason must not make every line as long as itself.
    target.file.write("".join(f"{_trimmed(line)}\n" for line in printed.get().splitlines()))


def _trimmed(line: str) -> str:
    """Without the blanks at its end, before and behind where a colour ends."""
    bare = line.rstrip()
    if bare.endswith(_COLOUR_ENDS):
        return bare.removesuffix(_COLOUR_ENDS).rstrip() + _COLOUR_ENDS
    return bare


def print_json(value: object) -> None:
    """Print any plain value or struct as one JSON document on one line."""
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    if not text.isprintable():  # it reads the same when it is escaped
        text = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
    click.echo(text)


def print_listing(rows: Listing[T]) -> None:
    """Print what a cluster lists as JSON; each row says if it was told from memory."""
    told = {} if rows.from_memory is None else {"from_memory": fields_of(rows.from_memory)}
    if told and not rows:
        note(str(rows.from_memory))
    print_json([{**fields_of(row), **told} for row in rows])


def fields_of(value: object) -> dict[str, object]:
    """A struct under the names that its fields have in Python, whatever they are on the wire.

    All JSON of the command line has keys of this style: `memory_bytes`.
    """
    found = _plain(value)
    return found if isinstance(found, dict) else {}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return {name: _plain(each) for name, each in msgspec.structs.asdict(value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return msgspec.to_builtins(value)


def print_memory(from_memory: FromMemory | None) -> None:
    """Say, below what was printed, that it may be behind; if it may."""
    if from_memory is not None:
        click.echo(str(from_memory))


def visible(text: str, keep: str = "") -> str:
    """What somebody else has written, without what moves the cursor of a terminal or turns the
    writing; `keep` stays as it is."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def note(text: str) -> None:
    """Say something to the person at the terminal."""
    click.echo(text, err=True)


def done(text: str, *, as_json: bool, warning: str = "", **fields: object) -> None:
    """Say that something was done, and what is left to be done; for programs `fields` as JSON."""
    if as_json:
        print_json({"ok": True, **fields, **({"warning": warning} if warning else {})})
        return
    click.echo(text)
    if warning:
        note(f"  {warning}")


def rate_text(count: int, seconds: float) -> str:
    """So many per second, rounded to what is known."""
    return f"{count / seconds:,.0f}" if seconds > 0 else "-"


def state_text(state: str) -> Text:
    """A state in the colour that goes with it."""
    return Text(state, style=_COLOURS.get(state, ""))


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if value is None or value == "":
        return Text("-", style="dim")
    return Text(f"{value:,}" if isinstance(value, int) else visible(str(value), "\n"))
