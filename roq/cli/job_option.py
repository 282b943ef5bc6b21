"""Which database a command of `roq jobs` works on, who runs it, and how it shows times."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import click

from roq.cli.output import visible
from roq.client.admin.wording import age_text
from roq.errors import ConfigError, InvalidRequest
from roq.jobs.database import MICROSECONDS, JobDatabase
from roq.jobs.jobs import Jobs
from roq.jobs.operate import JobOperations
from roq.jobs.timetable import zone_of

VARIABLE: Final = "ROQ_JOBS"
DEFAULT_DATABASE: Final = "jobs.db"
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobsTarget:
    """Which database a command works on, and how it answers."""

    url: str
    as_json: bool

    def operate(self) -> JobOperations:
        """What there is to see and do.

        Raises:
            ConfigError: there is no such file; a command that looks makes none.
        """
        database = JobDatabase(self.url)
        if database.sqlite and not Path(str(database.url.database)).exists():
            raise ConfigError(
                f"there are no jobs in {database.url.database}: name the database with --database, "
                f"or {VARIABLE}"
            )
        return Jobs(self.url).operate


def jobs_command(function: Callable[Concatenate[JobsTarget, P], T]) -> Callable[P, T]:
    """Give a command `--database` and `--json`, and the function a `JobsTarget`."""

    @click.option(
        "--database",
        metavar="URL",
        envvar=VARIABLE,
        default=DEFAULT_DATABASE,
        show_default=True,
        show_envvar=True,
        help="A file of SQLite, or postgresql://user@host/name.",
    )
    @click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text.")
    @wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> T:
        target = JobsTarget(str(kwargs.pop("database")), bool(kwargs.pop("as_json")))
        return function(target, *args, **kwargs)

    return command


def operator() -> str:
    """Who runs this command, for the audit."""
    with suppress(KeyError, OSError):
        return f"{visible(getpass.getuser())} (roq jobs)"
    return f"user {os.getuid()} (roq jobs)"


def now() -> int:
    """µs since 1970 of this host; ages are shown by it."""
    return int(datetime.now(UTC).timestamp() * MICROSECONDS)


def ago(time: int | None) -> str:
    """How long ago that was."""
    return "" if not time else age_text(max(0.0, (now() - time) / MICROSECONDS))


def clock(time: int | None, zone: str = "UTC") -> str:
    """A time as people read it, in a zone; in UTC if it is not known here."""
    if not time:
        return ""
    where: tzinfo = UTC
    with suppress(InvalidRequest):
        where = zone_of(zone)
    try:
        return datetime.fromtimestamp(time // MICROSECONDS, where).isoformat(" ", "seconds")
    except (OverflowError, ValueError):
        return f"{time:,} µs"


limited = click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="So many lines at most.",
)
