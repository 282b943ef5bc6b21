"""The SQL of jobs on SQLite; the same tests run on PostgreSQL in `tests/integration`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_contract import StoreContract
from job_lab import Lab
from sqlalchemy import text


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


def test_a_claim_reads_the_index_in_order(lab: Lab) -> None:
    with lab.database.read() as connection:
        plan = connection.execute(
            text(
                "EXPLAIN QUERY PLAN SELECT id FROM job WHERE type = 'A' AND status = 'CREATED'"
                " AND held = '' ORDER BY priority, created, batch_sequence, id LIMIT 5"
            )
        ).all()
    assert [row.detail for row in plan] == ["SEARCH job USING INDEX job_waiting (type=?)"]
