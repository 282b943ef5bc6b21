"""The tables of jobs: made once, and refused if they are of another version."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from roq.errors import ConfigError
from roq.jobs import schema
from roq.jobs.database import JobDatabase
from roq.jobs.schema import JOB, SETTING, TYPE, VERSION, migrate, prepare, version


def test_tables_are_made_once(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "jobs.db"))
    prepare(database)
    prepare(database)
    with database.read() as connection:
        assert version(connection) == VERSION
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert migrate(database) == (VERSION, VERSION)
    database.close()


def at(database: JobDatabase, number: int) -> None:
    with database.write() as connection:
        connection.execute(sa.update(SETTING).values(value=str(number)))


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "jobs.db"))
    prepare(database)
    at(database, VERSION + 1)
    for step in (prepare, migrate):
        with pytest.raises(ConfigError, match="install a newer roq-cluster"):
            step(database)
    database.close()


def test_an_older_schema_is_migrated_by_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = JobDatabase(str(tmp_path / "jobs.db"))
    prepare(database)
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    with pytest.raises(ConfigError, match="roq jobs migrate"):
        prepare(database)
    steps = []
    monkeypatch.setattr(schema, "MIGRATIONS", {VERSION: steps.append})
    assert migrate(database) == (VERSION, VERSION + 1)
    assert len(steps) == 1
    prepare(database)
    database.close()


def test_the_first_tables_become_those_of_today(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "jobs.db"))
    prepare(database)
    with database.write() as connection:
        for change in (
            *(f"DROP COLUMN {each}" for each in ("limits", "changes", "priority", "rate_next")),
            "ADD COLUMN cluster_limit INTEGER",
            "ADD COLUMN time_limit BIGINT NOT NULL DEFAULT 1",
        ):
            connection.exec_driver_sql(f"ALTER TABLE job_type {change}")
        connection.exec_driver_sql("DROP TABLE job_batch")
        connection.exec_driver_sql("DROP INDEX job_unsent")
        connection.exec_driver_sql("CREATE INDEX job_unsent ON job (dispatched)")
        connection.exec_driver_sql("DROP INDEX job_running")
        connection.exec_driver_sql("CREATE INDEX job_running ON job (owner, deadline)")
        connection.exec_driver_sql("DROP INDEX job_stop")
        connection.exec_driver_sql("DROP INDEX job_of_key")
        connection.exec_driver_sql("CREATE INDEX job_of_key ON job (type, key, priority)")
    at(database, 1)
    assert migrate(database) == (1, VERSION)
    with database.read() as connection:
        assert sa.inspect(connection).has_table("job_batch")
        columns = {each["name"] for each in sa.inspect(connection).get_columns("job_type")}
        indexes = {
            each["name"]: each["column_names"] for each in sa.inspect(connection).get_indexes("job")
        }
    assert columns == set(TYPE.c.keys())
    assert indexes == {each.name: each.columns.keys() for each in JOB.indexes}
    database.close()
