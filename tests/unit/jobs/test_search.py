"""How jobs are found among many: by indexes, by counters, or a stretch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_contract import BADLY, various
from job_lab import Lab, new
from sqlalchemy import event

from roq.jobs import operate, search
from roq.jobs.operate import JobOperations
from roq.jobs.states import DEFAULT, JobStatus
from roq.jobs.views import Action, JobFilter


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"), durable=False)
    yield made
    made.close()


def plan_of(lab: Lab, do: Callable[[JobOperations], object]) -> list[str]:
    """How SQLite goes through the two long tables for all that is asked."""
    asked: list[tuple[str, object]] = []

    def note(
        _connection: object, _cursor: object, statement: str, values: object, *_: object
    ) -> None:
        asked.append((statement, values))

    operations = lab.jobs.operate
    event.listen(lab.database.engine, "before_cursor_execute", note)
    do(operations)
    event.remove(lab.database.engine, "before_cursor_execute", note)
    steps: list[str] = []
    with lab.database.engine.connect() as connection:
        for statement, values in asked:
            if statement.startswith(("SELECT", "WITH")):
                found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)  # type: ignore[arg-type]
                steps += [f"{row.detail} " for row in found]
    return [each for each in steps if {"job", "job_error", "e"} & set(each.split())]


@pytest.mark.parametrize(
    "wanted",
    [
        BADLY,
        JobFilter(types=("A",), statuses=(JobStatus.FAILED, JobStatus.TIMED_OUT), priority=DEFAULT),
        JobFilter(statuses=(JobStatus.RUNNING,)),
        JobFilter(statuses=(JobStatus.CREATED,)),
        JobFilter(types=("A",)),
        JobFilter(tag="t"),
        JobFilter(tag="t", statuses=(JobStatus.FAILED,)),
        JobFilter(key="k"),
        JobFilter(fingerprint="f" * 16),
        JobFilter(instance=1),
        JobFilter(ids=(1, 2)),
    ],
)
def test_no_page_reads_all_jobs(lab: Lab, wanted: JobFilter) -> None:
    various(lab)
    steps = plan_of(lab, lambda operate: operate.page(wanted, reach=4))
    for action in Action:
        steps += plan_of(lab, lambda operate, each=action: operate.select(each, wanted))
    assert steps
    assert [each for each in steps if each.startswith("SCAN") and " INDEX job_" not in each] == []


def test_what_is_looked_at_often_reads_no_whole_table(lab: Lab) -> None:
    various(lab)
    for do in (JobOperations.counts, JobOperations.running, JobOperations.failures):
        steps = plan_of(lab, do)
        assert [each for each in steps if each.startswith("SCAN") and " INDEX " not in each] == []
    assert any(" job_error_alike " in each for each in plan_of(lab, JobOperations.failures))


def test_a_page_ends_where_its_reach_does_and_the_next_one_goes_on(lab: Lab) -> None:
    rare = lab.submit("Rare", tag="")
    others = [each.id for each in lab.submit_all([new() for _ in range(10)])]
    mine = lab.instance("Rare")
    lab.finish(mine, lab.claim(mine, 1, "Rare")[0])
    wanted = JobFilter(types=("Rare",))
    operations = lab.jobs.operate
    page = operations.page(wanted, reach=4)
    assert (page.jobs, page.below) == ([], others[-4])
    pages = 1
    while page.below is not None and not page.jobs:
        page = operations.page(wanted, below=page.below, reach=4)
        pages += 1
    assert ([row.id for row in page.jobs], pages) == ([rare], 3)
    assert [row.id for row in operations.jobs(wanted)] == [rare]
    full = operations.page(JobFilter(types=("A",)), most=3, reach=4)
    assert ([row.id for row in full.jobs], full.below) == (others[:-4:-1], others[-3])


def test_many_types_are_looked_for_by_id(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    various(lab)
    listed = lab.jobs.operate.jobs(BADLY)
    monkeypatch.setattr(search, "CELLS_MAX", 0)
    assert lab.jobs.operate.jobs(BADLY) == listed


def test_what_is_done_to_few_among_many_goes_stretch_by_stretch(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "STRETCH", 3)
    jobs = [each.id for each in lab.submit_all([new("AB"[n % 5 == 0]) for n in range(23)])]
    operations = lab.jobs.operate
    told: list[int] = []
    selection = operations.select(Action.DELETE, JobFilter(types=("B",)))
    assert operations.act(selection, who="me", progress=told.append) == 5
    assert told == [1, 2, 3, 4, 5]
    assert [row.id for row in operations.jobs(JobFilter())] == [
        each for n, each in reversed(list(enumerate(jobs))) if n % 5
    ]
    lab.check()


def test_of_what_fails_alike_so_many_are_counted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    various(lab)
    monkeypatch.setattr(operate, "COUNTED_MAX", 3)
    (row,) = lab.jobs.operate.failures()
    assert row.number == 3
    lab.set("job_error", "fingerprint = 'e', at = 5", 1)
    lab.set("job_error", "fingerprint = 'e', at = 4", 2)
    first, second = lab.jobs.operate.failures()
    assert (first.number, second.number) == (3, 2)
    assert (second.fingerprint, second.first, second.last) == ("e", 4, 5)
    assert len(lab.jobs.operate.failures(most=1)) == 1
