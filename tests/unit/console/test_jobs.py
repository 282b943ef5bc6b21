"""Which jobs a filter means, and how counts become a table."""

from __future__ import annotations

import pytest

from roq.console.jobs import agreed, filters, table, wanted
from roq.errors import InvalidRequest
from roq.jobs.states import JobStatus
from roq.jobs.views import Action, JobCount, JobFilter


def count(type_: str, status: JobStatus, number: int, priority: int = 100) -> JobCount:
    return JobCount(
        type=type_, priority=priority, status=status, number=number, items=3 * number,
        failures=1, oldest=5 if status is JobStatus.CREATED else None, known=True,
    )  # fmt: skip


def test_a_filter_is_what_its_fields_say() -> None:
    given = {"type": "Resize", "status": "FAILED", "priority": "10", "id": "7", "tag": "", "x": "y"}
    assert filters(given) == {"type": "Resize", "status": "FAILED", "priority": "10", "id": "7"}
    assert wanted(given) == JobFilter(
        ids=(7,), types=("Resize",), statuses=(JobStatus.FAILED,), priority=10
    )
    assert wanted({"priority": "High"}) == JobFilter(priority=10)
    assert wanted({}) == JobFilter()


@pytest.mark.parametrize(
    "given", [{"status": "GONE"}, {"id": "1 OR 1=1"}, {"priority": "-1"}, {"instance": "9" * 30}]
)
def test_what_no_filter_has_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        wanted(given)


def test_a_form_is_about_the_jobs_that_were_counted() -> None:
    selection = agreed("restart", {"type": "Resize", "number": "5", "last": "9"})
    assert (selection.action, selection.number, selection.last) == (Action.RESTART, 5, 9)
    with pytest.raises(InvalidRequest, match="number must be"):
        agreed("restart", {"type": "Resize"})


def test_counts_are_a_row_for_each_type_and_priority() -> None:
    waiting = [count("A", JobStatus.CREATED, 4, 1000), count("A", JobStatus.CREATED, 1, 10)]
    rows = table([count("B", JobStatus.FAILED, 2), *waiting, count("B", JobStatus.RUNNING, 1)])
    assert [(row["type"], row["priority"]) for row in rows] == [("A", 10), ("A", 1000), ("B", 100)]
    assert rows[2]["numbers"] == {"FAILED": 2, "RUNNING": 1}
    assert (rows[2]["items"], rows[2]["failures"], rows[1]["oldest"]) == (3, 2, 5)
