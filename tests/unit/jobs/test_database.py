"""Which databases there may be, and what is told of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roq.errors import ConfigError, InvalidRequest, Unavailable
from roq.jobs.database import JobDatabase, parsed_url


@pytest.mark.parametrize("url", ["", ":memory:", "sqlite://", "sqlite:///:memory:", "a\0b"])
def test_jobs_in_memory_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="need a file"):
        parsed_url(url)


def test_other_databases_are_refused() -> None:
    with pytest.raises(ConfigError, match="SQLite or PostgreSQL"):
        parsed_url("mysql://root@host/jobs")
    with pytest.raises(ConfigError, match="no URL"):
        parsed_url("sqlite:\\://x://")


def test_a_url_of_postgresql_means_psycopg_and_hides_its_password() -> None:
    database = JobDatabase("postgresql://me:secret@host/jobs")
    assert database.url.drivername == "postgresql+psycopg"
    assert "secret" not in database.name


def test_a_statement_is_given_rows(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "x.db"))
    with database.write() as connection:
        rows = database.run(
            connection,
            f"SELECT a, b FROM {database.given(('a', 'bigint'), ('b', 'text'))} AS d",  # noqa: S608 - ours
            [[1, "one ':b' %s"], [2, None]],
        ).all()
    assert [tuple(row) for row in rows] == [(1, "one ':b' %s"), (2, None)]
    database.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "no" / "x.db"))
    with pytest.raises(Unavailable, match="its folder must exist"), database.read():
        pass


@pytest.mark.parametrize("value", [2**63, "\udcff"])
def test_what_no_database_holds_is_refused(tmp_path: Path, value: object) -> None:
    database = JobDatabase(str(tmp_path / "x.db"))
    with pytest.raises(InvalidRequest, match="cannot hold"), database.read() as connection:
        database.run(connection, "SELECT :value", value=value)
    database.close()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("print('no database')\n" * 100)
    database = JobDatabase(str(tmp_path / "x.db"))
    with pytest.raises(Unavailable, match="not a database"), database.read():
        pass
    database.close()


def test_what_fails_is_undone(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "x.db"))
    with database.write() as connection:
        database.run(connection, "CREATE TABLE t (a INTEGER)")
    with pytest.raises(Unavailable, match="no such table: u"):
        fill(database, "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    with database.read() as connection:
        assert database.run(connection, "SELECT count(*) FROM t").scalar_one() == 0
    database.close()


def test_a_forked_child_is_told_to_open_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = JobDatabase(str(tmp_path / "x.db"))
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with pytest.raises(Unavailable, match="forked"), database.read():
        pass


def fill(database: JobDatabase, *statements: str) -> None:
    with database.write() as connection:
        for each in statements:
            database.run(connection, each)
