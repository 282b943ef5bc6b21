"""The SQL of jobs on SQLite; the same tests run on PostgreSQL in `tests/integration`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from job_contract import StoreContract
from job_lab import Lab, new
from sqlalchemy import text

from roq.jobs import store
from roq.jobs.database import JobDatabase
from roq.jobs.rows import Body


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


class TestSQLite(StoreContract):
    """All of it."""


def test_statements_about_named_jobs_look_at_no_others(lab: Lab) -> None:
    values = {"rows": "[]", "owner": 1, "now": 1}
    with lab.database.read() as connection:
        for statement in (lab.store._claim, lab.store._finish):
            plan = connection.execute(text(f"EXPLAIN QUERY PLAN {statement}"), values).all()
            way = " / ".join(row.detail for row in plan)
            assert "job USING INTEGER PRIMARY KEY" in way, way


def test_instances_are_not_told_of_jobs_whose_messages_are_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(lab.database, "notify", told.append)
    with lab.database.write() as connection:
        lab.store.submit(connection, [new(), new()], sent=True)
        assert told == []
        lab.store.submit(connection, [new(), new(due=2**60)], sent=True)
        assert len(told) == 1, "one of them is not sent"
        lab.store.submit(connection, [new()])
    assert len(told) == 2


def test_large_bodies_are_brought_by_several_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BODIES_BYTES", 10)
    bodies = [(job, Body("json", 1, b"x" * size)) for job, size in enumerate((4, 6, 1, 99, 1, 9))]
    portions = [[job for job, _ in some] for some in store._portions(bodies)]
    assert portions == [[0, 1], [2], [3], [4, 5]]
    assert list(store._portions([])) == []


def test_params_go_over_a_users_connection_of_another_driver() -> None:
    """As psycopg2 does: it puts each value into the text."""
    told: list[str] = []
    connection = SimpleNamespace(
        dialect=SimpleNamespace(driver="psycopg2"),
        exec_driver_sql=lambda statement, rows: told.extend(statement % row for row in rows),
    )
    jobs = store.JobStore(JobDatabase("postgresql://nobody@nowhere/none"))
    bodies = [(each, Body("json", 1, b"b")) for each in (1, 2)]
    jobs._write_bodies(connection, "job_params", bodies)  # type: ignore[arg-type]
    assert [each.partition("VALUES ")[2][:17] for each in told] == [
        "(1, json, 1, b'b'", "(2, json, 1, b'b'",
    ]  # fmt: skip
