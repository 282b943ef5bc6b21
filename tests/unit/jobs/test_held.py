"""Jobs that wait; what holds for both databases is in the contract, which runs here on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_contract import HeldContract
from job_lab import Lab
from sqlalchemy import Connection, text


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


class TestSQLite(HeldContract):
    """All of it."""


def test_what_users_have_left_is_found_by_an_index(lab: Lab) -> None:
    left = "SELECT min(parent) FROM job_edge WHERE child = 0"
    new = (
        "SELECT id FROM job WHERE status = 'CREATED' AND held = 'later' AND waits > 0"
        " AND due <= 5 ORDER BY due LIMIT 5"
    )
    with lab.database.read() as connection:
        for statement, index in ((left, "job_edge_child"), (new, "job_later")):
            plan = connection.execute(text(f"EXPLAIN QUERY PLAN {statement}")).all()
            assert index in " / ".join(row.detail for row in plan)


def test_the_next_one_of_a_key_is_found_without_a_look_at_its_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def explained(connection: Connection, statement: str, *_: object, **__: object) -> None:
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {statement}"), {"rows": "[]"})
        said.extend(row.detail for row in plan)

    monkeypatch.setattr(lab.database, "run", explained)
    with lab.database.write() as connection:
        lab.store.release_keys(connection, [("A", "k")])
    by_held = "USING INDEX job_of_key (type=? AND key=? AND held=?)"
    assert {f"SEARCH {each} {by_held}" for each in "jo"} <= set(said), said
    assert not any("ORDER BY" in each for each in said), said
