"""Which databases there may be, and what is told of them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from roq.errors import ConfigError, InvalidRequest, Unavailable
from roq.jobs.database import POOL, JobDatabase, parsed_url


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


def test_a_file_that_was_overwritten_is_told_to_who_writes(tmp_path: Path) -> None:
    database = JobDatabase(str(tmp_path / "x.db"))
    fill(database, "CREATE TABLE t (a INTEGER)")
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("CREATE TABLE u (a INTEGER)")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (tmp_path / "x.db").write_bytes(b"print('no database')" * 1_000)
        with pytest.raises(Unavailable, match="not a database"), database.write():
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


def test_who_waits_to_write_looks_often_whether_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = JobDatabase(str(tmp_path / "x.db"))
    looks: list[str] = []
    with database.write(), database.engine.connect() as other:
        driver = other.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_trace_callback(looks.append)
        monkeypatch.setattr("roq.jobs.database.BUSY_SECONDS", 0.05)
        with pytest.raises(sa.exc.OperationalError, match="locked"):
            other.begin()
        patience = driver.execute("PRAGMA busy_timeout").fetchone()
    assert looks.count("BEGIN IMMEDIATE") > 2, "SQLite itself looks so rarely that nobody writes"
    assert patience == (50,)
    with database.write():
        pass
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


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, object]] = []

    def connect(*_: object, **arguments: object) -> None:
        given.append(arguments)
        raise OSError("nobody there")

    monkeypatch.setattr("psycopg.connect", connect)
    for url in ("postgresql://host/jobs", "postgresql://host/jobs?connect_timeout=3"):
        with pytest.raises(OSError, match="nobody there"), JobDatabase(url).read():
            pass
    assert [int(str(each["connect_timeout"])) for each in given] == [5, 3]
    assert all(each["tcp_user_timeout"] for each in given)


def test_an_instance_has_connections_of_its_own(tmp_path: Path) -> None:
    shared = JobDatabase(str(tmp_path / "jobs.db"), lambda: 7)
    own = shared.for_instance()
    with contextlib.ExitStack() as held:
        for _ in range(POOL):
            held.enter_context(shared.engine.connect())
        with own.write() as connection:
            assert own.now(connection) == 7
    own.close()
    shared.close()
