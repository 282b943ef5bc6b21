"""`roq debug`: what a daemon did last, written down, read and flown again."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

import click
import psutil

from roq.cli.failures import Failed
from roq.cli.output import visible
from roq.errors import RemoteProtocolError
from roq.runtime.flight import Flight, folder_of, read
from roq.runtime.signals import FLIGHT_SIGNAL

WAIT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.05
_FILE: Final = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def debug() -> None:
    """What a daemon did last: written down, read, and done again.

    Configuration managers, host managers and monitors keep the last of what they were told and
    what they wanted to be done: 1 MB of a manager, 256 kB of each monitor (variable ROQ_FLIGHT_KB).
    It is written when they crash, and when they are asked. Of one that has run for longer than
    that lasts, it can be shown and not replayed. Exchanges keep nothing: each message would cost.

    \b
    Example:
      roq debug record "$(pgrep -of roq.gcm)"
    """


@debug.command()
@click.argument("pid", type=click.IntRange(min=1))
def record(pid: int) -> None:
    """Have a daemon of this machine write down what it did last.

    The process goes on. One with several monitors writes all of them into one file. Prints the
    path. Needs the same user as the daemon, or root.

    \b
    Example:
      roq debug record "$(pgrep -of roq.gcm)"
      ROQ_FLIGHT_KB=65536 roq up     # keeps more, to be replayed for longer
    """
    try:
        process = psutil.Process(pid)
        folder = Path(process.cwd(), folder_of(process.environ(), process.uids().real))
        if not _listens(process):
            raise Failed(
                f"process {pid} is no daemon of RoQ that keeps what it does",
                hint="Configuration managers, host managers and monitors do.",
            )
        before = _written(folder, pid)
        process.send_signal(FLIGHT_SIGNAL)
    except (psutil.NoSuchProcess, FileNotFoundError):
        raise Failed(f"there is no process {pid}") from None
    except (psutil.AccessDenied, PermissionError):
        raise Failed(f"process {pid} is of another user: ask as that one, or as root") from None
    pause = threading.Event()
    end = time.monotonic() + WAIT_SECONDS
    while not (new := _written(folder, pid).items() - before.items()):
        if time.monotonic() > end:
            raise Failed(
                f"process {pid} has written nothing into {folder} within {WAIT_SECONDS:g} s",
                hint="Its log says why, if it is not stopped.",
            )
        pause.wait(POLL_SECONDS)
    for path, _ in sorted(new):
        click.echo(path)


@debug.command()
@_FILE
def show(file: Path) -> None:
    """Tell what a daemon did: a line for each event, and one for each thing it wanted.

    Times are UTC. Of whichever version of RoQ the file is, and however much is missing at its
    beginning.

    \b
    Example:
      roq debug show gcm.4711.flight | less -S
    """
    from roq.cli.replay import story  # noqa: PLC0415 - loads all daemons

    for flight in _flights(file):
        for line in story(flight):
            click.echo(visible(line))


@debug.command()
@_FILE
def replay(file: Path) -> None:
    """Have a new machine take in what a daemon was told, and compare what it wants.

    Works for flights from the birth of the daemon on, of this version of RoQ: not for one that has
    run for long, whose oldest events have gone; `roq debug show` tells the others. Shows the first
    event of each machine that differs. Ends with 1 if there is one, or if a machine cannot be
    replayed.

    \b
    Example:
      roq debug replay gcm.4711.flight
    """
    from roq.cli import replay as again  # noqa: PLC0415 - loads all daemons

    others = 0
    for flight in _flights(file):
        header, _, records = flight
        try:
            found = again.replay(flight)
        except RemoteProtocolError as error:
            others += 1
            click.echo(visible(f"{again.about(header)}: cannot be replayed: {error}"))
            continue
        if found is None:
            click.echo(visible(f"{again.about(header)}: {len(records)} events, the same effects"))
            continue
        others += 1
        lines = [f"{again.about(header)}: event {found.number} of {len(records)} differs"]
        lines.append(again.told(header, found.number, records[found.number]))
        lines += [f"  recorded: {line}" for line in found.recorded or ["nothing"]]
        lines += [f"  replayed: {line}" for line in found.replayed or ["nothing"]]
        click.echo("\n".join(map(visible, lines)))
    if others:
        raise Failed(f"{others} of the machines did something else, or cannot be replayed")


def _flights(file: Path) -> list[Flight]:
    try:
        return read(file)
    except OSError as error:
        raise Failed(f"{file}: {error.strerror}") from None
    except RemoteProtocolError as error:
        raise Failed(visible(f"{file}: {error}")) from None


def _listens(process: psutil.Process) -> bool:
    """Whether it is one of ours, and takes the signal: others would be ended by it."""
    if not any("roq" in part for part in process.cmdline()):
        return False
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (FLIGHT_SIGNAL - 1) & 1)


def _written(folder: Path, pid: int) -> dict[Path, int]:
    """The flights of a process, with when they were written."""
    try:
        entries = [each for each in os.scandir(folder) if each.name.endswith(f".{pid}.flight")]
        return {Path(each.path): each.stat().st_mtime_ns for each in entries}
    except FileNotFoundError:
        return {}
