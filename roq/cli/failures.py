"""From the errors that RoQ raises to what the command line says and the code it ends with.

0   done
1   refused, or nobody answered
2   wrong usage (click's own)
69  a daemon's dependency was away when it started
70  a daemon crashed
78  a configuration is wrong
130 interrupted before it was done
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import IO, Any, Final

import click

from roq.errors import (
    ConfigError,
    DeliveryError,
    ExchangeNotFound,
    GroupNotFound,
    HostNotFound,
    Interrupted,
    InvalidName,
    NoCapacity,
    NotEmpty,
    QueueExists,
    QueueNotFound,
    QueueStopped,
    RegistryAway,
    RoQError,
    Unavailable,
)
from roq.runtime import exits

REFUSED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_HINTS: Final[tuple[tuple[type[RoQError], str], ...]] = (
    (QueueNotFound, "`roq queue list` shows what there is, `roq queue create NAME` makes one."),
    (QueueExists, "Add --exists-ok if that is fine."),
    (QueueStopped, "`roq queue start NAME` starts it."),
    (HostNotFound, "`roq host list` shows the hosts of the cluster."),
    (ExchangeNotFound, "`roq exchange list QUEUE` shows the exchanges of a queue."),
    (GroupNotFound, "`roq group list QUEUE` shows the consumer groups of a queue."),
    (NotEmpty, "`roq top QUEUE` shows who publishes there and how far subscribers are."),
    (NoCapacity, "`roq host list` shows how full the hosts are."),
    (Interrupted, "`roq queue list` and `roq queue show NAME` tell what is done."),
    (
        RegistryAway,
        "The registry cannot be reached; try again once it is back.",
    ),
    (DeliveryError, "`roq queue show NAME` and `roq host list` show what is wrong with the queue."),
    (Unavailable, "`roq health` tells what is wrong with a cluster, `roq up` starts one here."),
)


class Failed(click.ClickException):
    """One clear line on standard error, a line on what to do, and an exit code."""

    def __init__(self, text: str, exit_code: int = REFUSED, hint: str = "") -> None:
        super().__init__(text)
        self.exit_code = exit_code  # type: ignore[misc] # click reads it from the instance
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it."""
        click.secho("Error: ", fg="red", bold=True, nl=False, file=file, err=file is None)
        click.echo(self.message, file=file, err=file is None)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=file is None)


def failed(error: RoQError) -> Failed:
    """What a command that talks to a cluster says about an error of RoQ."""
    text = text_of(error)
    if isinstance(error, InvalidName | ConfigError):
        return Failed(text, USAGE)
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
    # The error may say what to do by itself, or be of a database and not of a cluster.
    told = "`roq " in text or text.startswith("database ")
    return Failed(text, REFUSED, "" if told else hint)


def daemon_failed(error: RoQError) -> Failed:
    """What a daemon says that could not start."""
    configuration = isinstance(error, ConfigError | InvalidName)
    return Failed(text_of(error), exits.CONFIG if configuration else exits.UNAVAILABLE)


def text_of(error: RoQError) -> str:
    """The sentence of an error; what its class stands for if it has none."""
    return str(error).strip() or (type(error).__doc__ or type(error).__name__).strip()


def confirm(question: str) -> None:
    """Ask who is there whether something is to be done; standard error has the question.

    Raises:
        click.Abort: the answer was no, or Ctrl-C.
        Failed: nobody is there to answer.
    """
    try:
        answer = click.confirm(question, err=True)
    except click.Abort:  # also at the end of the input
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise Failed("nobody has answered", hint="Say --yes if that is meant.") from None
    if not answer:
        raise click.Abort


# Modules that an extra brings, imported when they are used: scenarios, benchmarks, the console.

EXTRA: Final = "pip install 'roq-cluster[sim]'"


BENCH: Final = "pip install 'roq-cluster[bench]'"


CONSOLE: Final = "pip install 'roq-cluster[console]'"


def wanted(module: str, what: str = "scenarios", extra: str = EXTRA) -> ModuleType:
    """Import what an extra brings; say which one if it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Failed(
            f"{what} need what is not installed here: {error.name}",
            exits.UNAVAILABLE,
            f"Install it with {extra}.",
        ) from None
