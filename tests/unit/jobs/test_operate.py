"""What operators do to many jobs; on both databases in `job_contract`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_lab import Lab, new

from roq.errors import InvalidRequest, JobNotFound, Unavailable
from roq.jobs.held import BLOCK
from roq.jobs.states import JobStatus
from roq.jobs.views import Action, JobFilter


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def test_many_are_done_in_blocks(lab: Lab) -> None:
    lab.submit_all([new() for _ in range(BLOCK + 7)])
    operate = lab.jobs.operate
    told: list[int] = []
    selection = operate.select(Action.DELETE, JobFilter(types=("A",)))
    assert operate.act(selection, who="me", progress=told.append) == BLOCK + 7
    assert told == [BLOCK, BLOCK + 7]
    assert operate.counts() == []
    lab.check()


def test_nothing_is_done_that_cannot_be_audited(lab: Lab) -> None:
    job = lab.submit()
    lab.declare("A", None)
    with lab.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE job_audit RENAME TO away")
    operate = lab.jobs.operate
    selection = operate.select(Action.DELETE, JobFilter())
    for act in (
        lambda: operate.act(selection, who="me"),
        lambda: operate.switch(False, who="me"),
        lambda: operate.switch(False, who="me", type="A"),
        lambda: operate.dispatch("queue", who="me"),
    ):
        with pytest.raises(Unavailable, match="job_audit"):
            act()
    assert lab.status(job) is JobStatus.CREATED
    settings = operate.settings()
    assert (settings.on, settings.dispatch) == (True, "database")
    assert [row.on for row in operate.type_list()] == [True]


def test_what_is_done_to_many_is_audited_though_it_is_cut_short(lab: Lab) -> None:
    lab.submit_all([new() for _ in range(2 * BLOCK + 7)])
    operate = lab.jobs.operate
    told: list[list[int]] = []

    def killed_after_two(done: int) -> None:
        told.append([row.number for row in operate.audit()])
        if done == 2 * BLOCK:
            raise KeyboardInterrupt

    selection = operate.select(Action.DELETE, JobFilter())
    with pytest.raises(KeyboardInterrupt):
        operate.act(selection, who="me", progress=killed_after_two)
    assert told == [[BLOCK], [2 * BLOCK]]
    assert [(row.action, row.who) for row in operate.audit()] == [("delete", "me")]
    lab.check()


def test_to_requeue_is_always_safe(lab: Lab) -> None:
    job, later, mine = lab.submit(), lab.submit(due=2**60), lab.instance()
    lab.set("job", "dispatched = 5", job)
    operate = lab.jobs.operate
    selection = operate.select(Action.REQUEUE, JobFilter())
    assert (selection.number, operate.act(selection, who="me")) == (1, 1)
    assert lab.field(job, "dispatched") == 0
    (run,) = lab.claim(mine)
    assert operate.act(operate.select(Action.REQUEUE, JobFilter()), who="me") == 0
    assert lab.finish(mine, run)
    assert lab.status(later) is JobStatus.CREATED
    lab.check()


def test_a_stale_selection_does_nothing_to_jobs_that_have_gone_on(lab: Lab) -> None:
    lab.submit()
    operate = lab.jobs.operate
    selection = operate.select(Action.DELETE, JobFilter())
    lab.claim(lab.instance())
    assert operate.act(selection, who="me") == 0


def test_a_type_that_nobody_declared_has_no_switch(lab: Lab) -> None:
    with pytest.raises(InvalidRequest, match="no program has declared"):
        lab.jobs.operate.switch(False, who="me", type="Nope")
    with pytest.raises(InvalidRequest, match="database, queue"):
        lab.jobs.operate.dispatch("pigeon", who="me")
    assert lab.jobs.operate.settings().dispatch == "database"


def test_numbers_that_no_job_has(lab: Lab) -> None:
    job = lab.submit()
    operate = lab.jobs.operate
    for number in (0, -1, 2**63, 10**20):
        with pytest.raises(JobNotFound):
            operate.job(number)
        with pytest.raises(JobNotFound):
            lab.submit(parents=(number,))
    assert [row.id for row in operate.jobs(JobFilter(), below=2**63)] == [job]
    with pytest.raises(InvalidRequest, match="cannot hold"):
        operate.jobs(JobFilter(ids=(2**63,)))
    with pytest.raises(InvalidRequest, match="cannot hold"):
        operate.select(Action.DELETE, JobFilter(tag="\udcff"))
