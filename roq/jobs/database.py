"""The database of jobs: SQLite (one host) or PostgreSQL, its transactions and its clock.

All SQL of jobs is written once. What differs between the two databases stands here: how a
transaction begins, what time it is, and how many rows are given to one statement (as one JSON
parameter, so that a statement has the same text however many rows there are).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, Final

import msgspec

from roq.errors import ConfigError, InvalidRequest, Unavailable

try:
    import sqlalchemy as sa
    from sqlalchemy import exc
except ImportError:  # pragma: no cover - without the extra
    raise ConfigError("jobs need SQLAlchemy: pip install 'roq-cluster[jobs]'") from None

MICROSECONDS: Final = 1_000_000
BUSY_SECONDS: Final = 10.0
"""How long a transaction waits for its turn to write, or for a connection of the pool."""
TURN_MILLISECONDS: Final = 3
"""SQLite looks 1, 3, 8, 18 … ms after the first time whether it is a transaction's turn to write,
and later every 100 ms, while nobody writes. So it is asked anew after so long."""
POOL: Final = 16
OWN_POOL: Final = 3
"""Connections of an instance itself: transactions of handlers never take them all."""
FRESH_SECONDS: Final = 1.0
"""A connection that was in use so shortly before is not asked whether it is still there."""
LOCK_SECONDS: Final = 2.0
"""How long an instance waits for a row that a transaction of some program has changed."""
_PATIENCE: Final[Mapping[str, int]] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
}
"""Of libpq: a server that does not answer is an error, not a wait without an end."""
_AGAIN: Final = frozenset({"40001", "40P01"})
"""What PostgreSQL calls transactions that it has undone in favour of others."""
CHANNEL: Final = "roq_jobs"
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")
_READ: Final = "roq_read"
_USED: Final = "roq_used"


Row = Any
"""SQLAlchemy's rows have the columns that a statement names: no type says more."""


class Undone(Unavailable):
    """The database has undone a transaction in favour of another one: it may be tried again."""


class JobDatabase:
    """A database, as the SQL of jobs sees it.

    Args:
        url: of SQLAlchemy; or a path, which is a file of SQLite.
        clock: µs since 1970 in place of the database's clock; for tests, and SQLite alone.
        instance: for an instance itself: few connections, and short waits for locks.

    Attributes:
        engine: SQLAlchemy's, for transactions of the program's own.

    Raises:
        ConfigError: no such database is supported, or its driver is not installed.
    """

    def __init__(
        self,
        url: str | sa.URL,
        clock: Callable[[], int] | None = None,
        *,
        instance: bool = False,
    ) -> None:
        self.url = parsed_url(url) if isinstance(url, str) else url
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._clock = clock or _host_clock
        self._process = os.getpid()
        self._pool = OWN_POOL if instance else POOL
        self.engine = self._engine()
        if instance and not self.sqlite:
            sa.event.listen(self.engine, "connect", _impatient)

    def for_instance(self) -> JobDatabase:
        """The same database, with connections of an instance's own."""
        return JobDatabase(self.url, self._clock, instance=True)

    def _engine(self) -> sa.Engine:
        arguments: dict[str, Any] = {"timeout": BUSY_SECONDS}
        if not self.sqlite:
            arguments = {k: v for k, v in _PATIENCE.items() if k not in self.url.query}
        try:
            engine = sa.create_engine(
                self.url,
                connect_args=arguments,
                poolclass=sa.QueuePool,
                pool_size=self._pool,
                max_overflow=0,
                pool_timeout=BUSY_SECONDS,
            )
        except ImportError:
            raise ConfigError("PostgreSQL needs: pip install 'roq-cluster[postgres]'") from None
        if self.sqlite:
            sa.event.listen(engine, "connect", _connected)
            sa.event.listen(engine, "begin", _begun)
        else:
            sa.event.listen(engine, "checkin", _used)
            sa.event.listen(engine, "checkout", partial(_asked, engine.dialect))
        self._reading = engine.execution_options(**{_READ: True})
        return engine

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What the driver raises on a connection that is used without SQLAlchemy."""
        error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        return (error,)

    @property
    def name(self) -> str:
        """The database, without a password."""
        return self.url.render_as_string(hide_password=True)

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that changes something; committed in the end, undone by an error.

        Raises:
            Unavailable: the database cannot be reached or written to; nothing was done, unless it
                went away during the commit.
            InvalidRequest: a value that the database cannot hold.
        """
        with self._told(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that only looks; it waits for no writer.

        Raises:
            Unavailable: the database cannot be reached.
            InvalidRequest: as `write`.
        """
        with self._told(), self._reading.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise Unavailable(
                "this process was forked from the one that opened the database: open it anew here"
            )
        try:
            yield
        except exc.TimeoutError:
            raise Unavailable(
                f"all {self._pool} connections to {self.name} were in use for {BUSY_SECONDS:g} s: "
                "end transactions sooner, or use fewer threads"
            ) from None
        except (exc.DataError, OverflowError, UnicodeEncodeError) as error:
            raise InvalidRequest(
                f"a value that the database cannot hold: {sentence(error)}"
            ) from None
        except (exc.DatabaseError, exc.InterfaceError) as error:
            kind = Undone if getattr(error.orig, "sqlstate", None) in _AGAIN else Unavailable
            raise kind(f"database {self.name}: {sentence(error)}") from error

    def close(self) -> None:
        """Close all connections that nobody uses."""
        self.engine.dispose()

    @property
    def time(self) -> str:
        """SQL of `now`."""
        if self.sqlite:
            return str(self._clock())
        return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"

    def now(self, connection: sa.Connection) -> int:
        """µs since 1970 by the clock of PostgreSQL; on SQLite by that of its one host."""
        if self.sqlite:
            return self._clock()
        return int(connection.exec_driver_sql(f"SELECT {self.time}").scalar_one())

    def run(
        self,
        connection: sa.Connection,
        statement: str,
        rows: Sequence[Sequence[object]] | None = None,
        **values: object,
    ) -> sa.CursorResult[Any]:
        """Run a statement with `:name` parameters; `rows` is the one that `given` reads."""
        if rows is not None:
            values["rows"] = msgspec.json.encode(rows).decode()
        if not self.sqlite:
            statement = _of_psycopg(statement)
        return connection.exec_driver_sql(statement, values)

    def run_each(
        self, connection: sa.Connection, statement: str, rows: Sequence[Mapping[str, object]]
    ) -> None:
        """Run a statement once for each of these sets of values."""
        if rows:
            if not self.sqlite:
                statement = _of_psycopg(statement)
            connection.exec_driver_sql(statement, [dict(each) for each in rows])

    def given(self, *fields: tuple[str, str]) -> str:
        """SQL of a table of the rows that `run` is given: (name, SQL type) of its columns."""
        if self.sqlite:
            columns = ", ".join(
                f"json_extract(value, '$[{at}]') AS {name}" for at, (name, _) in enumerate(fields)
            )
            return f"(SELECT {columns} FROM json_each(:rows))"
        columns = ", ".join(
            f"CAST(value->>{at} AS {kind}) AS {name}" for at, (name, kind) in enumerate(fields)
        )
        return f"(SELECT {columns} FROM jsonb_array_elements(CAST(:rows AS jsonb)) AS t(value))"

    @property
    def skip_locked(self) -> str:
        """What a SELECT ends with that takes rows which no other transaction is about to change."""
        return "" if self.sqlite else " FOR NO KEY UPDATE SKIP LOCKED"

    @property
    def skip_used(self) -> str:
        """… and of which none says that it needs them: they may be deleted."""
        return "" if self.sqlite else " FOR UPDATE SKIP LOCKED"

    @property
    def for_change(self) -> str:
        """What a SELECT ends with whose rows are to be changed: others wait to change them."""
        return "" if self.sqlite else " FOR UPDATE"

    @property
    def needed(self) -> str:
        """What a SELECT ends with whose rows may be changed, but not deleted meanwhile."""
        return "" if self.sqlite else " FOR KEY SHARE"

    def notify(self, connection: sa.Connection) -> None:
        """When this transaction is committed, have instances look for jobs at once.

        Those on SQLite see by themselves that something was committed.
        """
        if not self.sqlite:
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")

    def lock(self, connection: sa.Connection, names: Sequence[str]) -> None:
        """Be alone with these names until the transaction ends; on SQLite a writer is anyway."""
        if not self.sqlite and names:
            self.run(
                connection,
                "SELECT pg_advisory_xact_lock(k) FROM (SELECT DISTINCT"
                f" hashtextextended(name, 16) AS k FROM {self.given(('name', 'text'))} AS d"
                " ORDER BY 1) AS ordered",
                [[each] for each in names],
            )


def parsed_url(text: str) -> sa.URL:
    """The URL of a database; a text without a scheme is the path of a file of SQLite.

    Raises:
        ConfigError: it is of no database that jobs can be in.
    """
    if "://" not in text:
        if not text or text == ":memory:" or "\0" in text:
            raise ConfigError("jobs in SQLite need a file: several threads and processes share it")
        return sa.URL.create("sqlite", database=str(Path(text).absolute()))
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        raise ConfigError(f"{text.partition('@')[0][:40]!r}… is no URL of a database") from None
    match url.get_backend_name():
        case "sqlite":
            if not url.database or url.database == ":memory:":
                raise ConfigError(
                    "jobs in SQLite need a file: several threads and processes share it"
                )
            return url.set(drivername="sqlite")
        case "postgresql" | "postgres":
            return url.set(drivername="postgresql+psycopg")
        case other:
            raise ConfigError(f"jobs cannot be in {other}: use SQLite or PostgreSQL")


def sentence(error: Exception) -> str:
    """What the driver says, on one line, and what to do where that is known."""
    told = " ".join(str(error.orig if isinstance(error, exc.DBAPIError) else error).split())
    for part, hint in _HINTS.items():
        if part in told:
            return f"{told} ({hint})"
    return told


_HINTS: Final[Mapping[str, str]] = {
    "database or disk is full": "make room on its disk; nothing was changed",
    "readonly database": "its file, or its folder, cannot be written by this user",
    "database is locked": "a transaction of some program has been open for too long",
    "due to lock timeout": "a transaction of some program has been open for too long",
    "unable to open database file": "its folder must exist and be writable by this user",
    "read-only transaction": "this is a standby, or set to read only",
}


def host_identity() -> str:
    """What tells this host's kernel from others, since it was started.

    SQLite shares its index of the log by memory, so all users of a file are under one kernel.
    """
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return os.uname().nodename


def _host_clock() -> int:
    return time_ns() // 1000


@lru_cache(256)
def _of_psycopg(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement)


def _connected(connection: Any, _record: object) -> None:
    # sqlite3 begins transactions by itself, and too late: `_begun` does it.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32000"):
        connection.execute(f"PRAGMA {pragma}")


def _impatient(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = {int(LOCK_SECONDS * 1000)}")
    connection.commit()


def _used(_connection: object, record: Any) -> None:
    record.info[_USED] = monotonic()


def _asked(dialect: sa.Dialect, connection: Any, record: Any, _proxy: object) -> None:
    """Ask a connection that was not used for a while whether it is still there; the pool has
    another one if not (SQLAlchemy's `pool_pre_ping` asks each time, which is a round trip)."""
    if monotonic() - record.info.get(_USED, math.inf) > FRESH_SECONDS:
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            raise exc.DisconnectionError from error


def _begun(connection: sa.Connection) -> None:
    if connection.get_execution_options().get(_READ):
        connection.exec_driver_sql("BEGIN")
        return
    driver: Any = connection.connection.driver_connection
    until = monotonic() + BUSY_SECONDS
    driver.execute(f"PRAGMA busy_timeout = {TURN_MILLISECONDS}")
    try:
        while monotonic() < until:
            try:
                driver.execute("BEGIN IMMEDIATE")
            except driver.DatabaseError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    break
            else:
                return
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1_000:.0f}")


def json_text(value: object) -> str:
    """JSON with sorted keys, as filters and params are written down."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
