"""Slots: their numbers after limits have changed. How they are taken is in `job_contract`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_lab import Lab
from sqlalchemy import text


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"), durable=False)
    yield made
    made.close()


def numbers(lab: Lab) -> list[tuple[int, bool]]:
    """Of slots, and whether somebody has them."""
    asked = "SELECT number, owner IS NOT NULL FROM job_slot ORDER BY number"
    with lab.database.read() as connection:
        return [(number, bool(taken)) for number, taken in connection.execute(text(asked))]


def test_slots_of_what_runs_are_kept_below_zero_and_come_back(lab: Lab) -> None:
    lab.declare("A", 4)
    for _ in range(3):
        lab.submit()
    mine = lab.instance()
    assert len(lab.claim(mine, 3, limited=True)) == 3
    lab.declare("A", 1)
    assert numbers(lab) == [(-3, True), (-2, True), (0, True)]
    lab.declare("A", 2)
    assert numbers(lab) == [(-3, True), (0, True), (1, True)]
    lab.declare("A", 4)
    assert numbers(lab) == [(0, True), (1, True), (2, True), (3, False)]
    lab.declare("A", None)
    assert numbers(lab) == []
