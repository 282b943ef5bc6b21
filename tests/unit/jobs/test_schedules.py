"""Schedules in SQLite, on a clock of the test's; the same on PostgreSQL is an integration test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_lab import Lab
from schedule_contract import MINUTE, ScheduleContract, schedule
from sqlalchemy import Connection


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"), durable=False)
    yield made
    made.close()


class TestSQLite(ScheduleContract):
    """All of it, and what needs a clock."""

    def test_the_last_times_are_found_once_for_each_schedule(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        run = lab.database.run

        def explained(connection: Connection, statement: str, **values: object) -> object:
            if "LIMIT 1 OFFSET" in statement:
                plan = run(connection, f"EXPLAIN QUERY PLAN {statement}", **values)
                said.extend(row.detail for row in plan)
            return run(connection, statement, **values)

        monkeypatch.setattr(lab.database, "run", explained)
        lab.jobs.operate.schedules.look()
        with lab.database.write() as connection:
            lab.jobs.operate.schedules.tidy(connection)
        ways = [each for each in said if each.startswith(("SCAN f", "SEARCH f", "MATERIALIZE"))]
        assert [each.split()[0] for each in ways] == ["MATERIALIZE", "SEARCH"] * 2, said

    def test_a_clock_that_jumps_fires_nothing_twice(self, lab: Lab) -> None:
        day = 24 * 60 * MINUTE
        self.declare(lab, schedule(every=3600, overlap="allow", catch_up="all"))
        fired = []
        for step in (60 * MINUTE, day, -day, 60 * MINUTE, 23 * 60 * MINUTE, 60 * MINUTE):
            lab.time += step
            fired.append(self.fire(lab))
        assert fired == [1, 24, 0, 0, 0, 1]
        assert lab.jobs.operate.counts()[0].number == 26

    def test_a_clock_that_was_far_ahead_does_not_stop_a_schedule(self, lab: Lab) -> None:
        years = 365 * 24 * 60 * MINUTE
        yearly = schedule("y", cron="0 0 1 1 *")
        self.declare(lab, schedule(every=60, overlap="allow"), yearly)
        new_year = self.shown(lab, "y").next
        lab.time += 5 * years
        assert self.fire(lab) == 2
        lab.time -= 5 * years
        assert self.shown(lab).next > lab.time + years, "it waits for that"  # type: ignore[operator]
        with lab.database.write() as connection:
            lab.jobs.operate.schedules.tidy(connection)
        assert self.shown(lab, "y").next == new_year
        lab.time += MINUTE
        assert (self.fire(lab), self.fire(lab)) == (1, 0)

    def test_one_that_cannot_be_read_is_told_once(
        self, lab: Lab, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.declare(lab, schedule())
        self.missed(lab, 1)
        with lab.database.write() as connection:
            connection.exec_driver_sql("UPDATE job_schedule SET definition = '?'")
        operate = lab.jobs.operate.schedules
        with caplog.at_level(logging.WARNING), lab.database.write() as connection:
            assert [operate.fire_due(connection) for _ in range(3)] == [0, 0, 0]
        assert len(caplog.records) == 1

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("next", "soon"),
            ("next", 1.5),
            ("next", 2.0**70),
            ("next", b"\xff"),
            ("body", "text"),
            ("body", 10**18),
            ("body", 1.5),
            ("version", "x"),
            ("version", 2**40),
            ("codec", b"\xff"),
            ("definition", b"\xff"),
            ("definition", b"{}"),
            ("restartable", "x"),
            ("restartable", 2.5),
            ("type", b"A"),
        ],
    )
    def test_columns_of_sqlite_hold_anything_and_others_fire(
        self, lab: Lab, column: str, value: object
    ) -> None:
        self.spoilt(lab, column, value)

    def test_a_name_that_is_no_text_holds_up_no_other_one(self, lab: Lab) -> None:
        self.declare(lab, *(schedule(name) for name in "ab"))
        for name in "ab":
            self.missed(lab, 1, name)
        with lab.database.write() as connection:
            lab.database.run(connection, "UPDATE job_schedule SET name = x'ff' WHERE name = 'b'")
        assert (self.fires(lab), self.fire(lab)) == (True, 1)
        assert [row.why for row in lab.jobs.operate.schedules.look()][1].startswith("its row")
        lab.jobs.operate.stalls()
