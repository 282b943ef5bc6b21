"""The tables of jobs, and how a database comes to have them.

Times are µs since 1970; 0 or NULL: never. A schema has a number. A program refuses a database with
a higher one, and has one with a lower one migrated by `roq jobs migrate`: steps in `MIGRATIONS`,
all in one transaction, alone by a lock. (Alembic would bring a table, a folder of scripts and an
environment for what is one number and one list as long as every step is written by hand for two
databases; it can take over from any number.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import sqlalchemy as sa

from roq.errors import ConfigError
from roq.jobs.database import JobDatabase

VERSION: Final = 6


def _limits_as_one(connection: sa.Connection) -> None:
    """1 → 2: limits of a type in one column, an operator's beside them."""
    for change in (
        "DROP COLUMN cluster_limit",
        "DROP COLUMN time_limit",
        "ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'",
        "ADD COLUMN changes TEXT NOT NULL DEFAULT '{}'",
        "ADD COLUMN priority INTEGER",
        "ADD COLUMN rate_next BIGINT NOT NULL DEFAULT 0",
    ):
        connection.exec_driver_sql(f"ALTER TABLE job_type {change}")


def _batches(connection: sa.Connection) -> None:
    """2 → 3: batches."""
    BATCH.create(connection)


def _unsent_by_type(connection: sa.Connection) -> None:
    """3 → 4: what is unsent of a type is found without a look at the other types' jobs."""
    _made_anew(connection, "job_unsent")


def _late_first(connection: sa.Connection) -> None:
    """4 → 5: what is late, or is to stop, is found without a look at all that has run."""
    _made_anew(connection, "job_running", "job_stop")


def _keys_by_held(connection: sa.Connection) -> None:
    """5 → 6: of a key with many jobs the next one is found without a look at the others."""
    _made_anew(connection, "job_of_key")


def _made_anew(connection: sa.Connection, *names: str) -> None:
    for index in JOB.indexes:
        if index.name in names:
            index.drop(connection, checkfirst=True)
            index.create(connection)


MIGRATIONS: Final[Mapping[int, Callable[[sa.Connection], None]]] = {
    1: _limits_as_one,
    2: _batches,
    3: _unsent_by_type,
    4: _late_first,
    5: _keys_by_held,
}
"""From a version to the step that leads to the next one."""
METADATA: Final = sa.MetaData()
_ID: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite counts keys up for columns of the type INTEGER alone."""


ENDED_BADLY: Final = "status IN ('FAILED', 'INTERRUPTED', 'TIMED_OUT')"
OPEN: Final = "status IN ('CREATED', 'RUNNING')"
BLOCKS: Final = "children = 1 AND status <> 'COMPLETE'"
"""Of jobs that others may wait for."""


def _when(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


JOB: Final = sa.Table(
    "job",
    METADATA,
    # A key that was used is never given again: messages name jobs by it.
    sa.Column("id", _ID, sa.Identity(always=False), primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("batch_sequence", sa.Integer, nullable=False),
    _number("due"),
    sa.Column("held", sa.Text, nullable=False),
    _number("dispatched"),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.BigInteger),
    sa.Column("started", sa.BigInteger),
    sa.Column("deadline", sa.BigInteger),
    sa.Column("ended", sa.BigInteger),
    sa.Column("stop", sa.Integer, nullable=False, server_default="0"),
    _number("failures"),
    _number("timeouts"),
    _number("losses"),
    sa.Column("restartable", sa.Integer, nullable=False),
    sa.Column("items", sa.BigInteger, nullable=False),
    sa.Column("tag", sa.Text, nullable=False, server_default=""),
    sa.Column("unique_key", sa.Text),
    sa.Column("key", sa.Text),
    _number("waits"),
    sa.Column("children", sa.Integer, nullable=False, server_default="0"),
    _number("saved"),
    sa.Column("error", sa.Text),
    sa.Index(
        "job_waiting", "type", "priority", "created", "batch_sequence", "id",
        **_when("status = 'CREATED' AND held = ''"),
    ),
    # By deadline first: those that have ended, and that the database cannot forget while some
    # transaction is open, are not in the way of who looks for what is late.
    sa.Index("job_running", "deadline", "owner", **_when("status = 'RUNNING'")),
    sa.Index("job_stop", "owner", **_when("status = 'RUNNING' AND stop = 1")),
    sa.Index("job_later", "due", **_when("status = 'CREATED' AND held = 'later'")),
    sa.Index(
        "job_unique", "type", "unique_key", unique=True,
        **_when(f"unique_key IS NOT NULL AND {OPEN}"),
    ),
    sa.Index(
        # What may be claimed or runs is held for nothing: it is found beside all that waits.
        "job_of_key", "type", "key", "held", "priority", "created", "batch_sequence", "id",
        **_when(f"key IS NOT NULL AND {OPEN}"),
    ),
    sa.Index(
        # Its last condition keeps it from being taken where the order of the other one is needed.
        "job_unsent", "type", "priority", "dispatched",
        **_when("status = 'CREATED' AND held = '' AND dispatched >= 0"),
    ),
    # What is COMPLETE is many and nobody's worry: it is listed by id, and deleted by age.
    sa.Index(
        "job_ended_badly", "type", "status", "priority", "id", **_when(ENDED_BADLY),
    ),
    sa.Index("job_of_tag", "tag", "id", **_when("tag <> ''")),
    sa.Index("job_with_key", "key", "id", **_when("key IS NOT NULL")),
    sa.Index("job_blocks", "id", **_when(BLOCKS)),
    sa.Index("job_ended", "ended", **_when("status = 'COMPLETE'")),
    sqlite_autoincrement=True,
)  # fmt: skip


def _bodies(name: str) -> sa.Table:
    """Params and results are apart from rows that change often, and have a codec and a version."""
    return sa.Table(
        name,
        METADATA,
        sa.Column("job", _ID, primary_key=True, autoincrement=False),
        sa.Column("codec", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


PARAMS: Final = _bodies("job_params")
RESULT: Final = _bodies("job_result")
ERROR: Final = sa.Table(
    "job_error",
    METADATA,
    sa.Column("id", _ID, sa.Identity(always=False), primary_key=True),
    sa.Column("job", sa.BigInteger, nullable=False, index=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("end_kind", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("trace", sa.Text, nullable=False),
    sa.Column("instance", sa.Text, nullable=False),
    sa.Index("job_error_alike", "fingerprint", "at"),
    sa.Index("job_error_jobs", "fingerprint", "job"),
)
EDGE: Final = sa.Table(
    "job_edge",
    METADATA,
    sa.Column("parent", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("child", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Index("job_edge_child", "child"),
)
BATCH: Final = sa.Table(
    "job_batch",
    METADATA,
    # The last one, which waits for all others.
    sa.Column("job", _ID, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    # For how many others it was to wait.
    sa.Column("number", sa.BigInteger, nullable=False),
)
COUNT: Final = sa.Table(
    "job_count",
    METADATA,
    sa.Column("type", sa.Text, primary_key=True),
    sa.Column("priority", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.Text, primary_key=True),
    # Writers of several processes have rows of their own; a reader sums them up.
    sa.Column("shard", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("items", sa.BigInteger, nullable=False),
    sa.Column("failures", sa.BigInteger, nullable=False),
)
TYPE: Final = sa.Table(
    "job_type",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("restartable", sa.Integer, nullable=False),
    sa.Column("enabled", sa.Integer, nullable=False, server_default="1"),
    # What programs declare, and what an operator has set in place of it.
    sa.Column("limits", sa.Text, nullable=False, server_default="{}"),
    sa.Column("changes", sa.Text, nullable=False, server_default="{}"),
    # Set by an operator, for the statement that submits.
    sa.Column("priority", sa.Integer),
    _number("rate_next"),
)
SLOT: Final = sa.Table(
    "job_slot",
    METADATA,
    sa.Column("type", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.BigInteger),
    sa.Index("job_slot_owner", "owner"),
)
INSTANCE: Final = sa.Table(
    "job_instance",
    METADATA,
    sa.Column("id", _ID, sa.Identity(always=False), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("threads", sa.Integer, nullable=False),
    sa.Column("types", sa.Text, nullable=False),
    sa.Column("wants", sa.Text, nullable=False, server_default="[]"),
    sa.Column("started", sa.BigInteger, nullable=False),
    sa.Column("expires", sa.BigInteger, nullable=False),
    sa.Column("dead", sa.Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
SCHEDULE: Final = sa.Table(
    "job_schedule",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("codec", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("body", sa.LargeBinary),
    sa.Column("restartable", sa.Integer, nullable=False),
    sa.Column("enabled", sa.Integer, nullable=False, server_default="1"),
    sa.Column("next", sa.BigInteger),
)
FIRED: Final = sa.Table(
    "job_fired",
    METADATA,
    sa.Column("schedule", sa.Text, primary_key=True),
    sa.Column("time", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("job", sa.BigInteger),
)
AUDIT: Final = sa.Table(
    "job_audit",
    METADATA,
    sa.Column("id", _ID, sa.Identity(always=False), primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
)
SETTING: Final = sa.Table(
    "job_setting",
    METADATA,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


def prepare(database: JobDatabase) -> None:
    """Make the tables if there is none, and see that they are of this version.

    Raises:
        ConfigError: they are of another version.
        Unavailable: the database cannot be reached, or written to.
    """
    with database.read() as connection:
        there = version(connection)
    if there is None:
        with database.write() as connection:
            _alone(database, connection)
            there = version(connection)
            if there is None:
                METADATA.create_all(connection, checkfirst=False)
                connection.execute(SETTING.insert().values(name="schema", value=str(VERSION)))
                there = VERSION
    if there > VERSION:
        raise ConfigError(
            f"the jobs in {database.name} have schema {there}, and this program knows {VERSION}: "
            "install a newer roq-cluster here"
        )
    if there < VERSION:
        raise ConfigError(
            f"the jobs in {database.name} have schema {there}, and this program needs {VERSION}: "
            "end all programs that use them, and run `roq jobs migrate`"
        )


def migrate(database: JobDatabase) -> tuple[int | None, int]:
    """Bring the tables to this version; gives the one before (None: there were none) and after.

    Raises:
        ConfigError: they are of a later version.
        Unavailable: the database cannot be reached, or written to.
    """
    before: int | None
    with database.write() as connection:
        _alone(database, connection)
        before = version(connection)
        for step in range(before or VERSION, VERSION):
            MIGRATIONS[step](connection)
            connection.execute(
                SETTING.update().where(SETTING.c.name == "schema").values(value=str(step + 1))
            )
    prepare(database)
    return before, VERSION


def version(connection: sa.Connection) -> int | None:
    """The version of the tables; None: there are none."""
    if not sa.inspect(connection).has_table(SETTING.name):
        return None
    found = connection.execute(sa.select(SETTING.c.value).where(SETTING.c.name == "schema"))
    return int(found.scalar_one())


def _alone(database: JobDatabase, connection: sa.Connection) -> None:
    database.lock(connection, ["roq.jobs.schema"])
