"""Any history of claims, ends, deaths, late and doubled messages: a job has one valid run at most.

The model knows of each job which run is the valid one, and which others have to be complete before
it. The database has to agree: it gives a job away only when there is no valid run and nothing to
wait for, takes the end of the valid one alone, and deletes nothing that another one waits for. In
the end nothing waits without a reason.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from job_lab import Lab

from roq.errors import JobNotFound
from roq.jobs.rows import Claimed
from roq.jobs.states import PRIORITIES, JobStatus, RunEnd
from roq.jobs.views import Action, JobFilter

ENDS = (RunEnd.DONE, RunEnd.RAISED, RunEnd.STOPPED, RunEnd.LIMIT, RunEnd.INTERRUPTED)
SETTINGS = settings(
    max_examples=15, stateful_step_count=25, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


class History(RuleBasedStateMachine):
    """Two instances and some jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lab = Lab(str(Path(self.folder.name) / "jobs.db"), durable=False)
        self.valid: dict[int, Claimed | None] = {}
        self.runs: list[tuple[int, Claimed]] = []
        self.ended: set[int] = set()
        self.owners: list[int] = []
        self.complete: set[int] = set()
        self.parents: dict[int, set[int]] = {}
        self.gone: list[int] = []

    @initialize()
    def begin(self) -> None:
        self.owners = [self.lab.instance(), self.lab.instance()]

    @rule(
        priority=st.sampled_from(sorted(PRIORITIES.values())),
        again=st.booleans(),
        key=st.sampled_from([None, None, "k"]),
    )
    def submit(self, priority: int, again: bool, key: str | None) -> None:
        self._submitted(self.lab.submit(priority=priority, restartable=again, key=key), set())

    def _submitted(self, job: int, parents: set[int]) -> None:
        self.valid[job] = None
        self.parents[job] = parents - self.complete

    @rule(owner=st.integers(0, 1), most=st.integers(1, 3))
    def claim(self, owner: int, most: int) -> None:
        waited = self.lab.waiting()
        runs = self.lab.claim(self.owners[owner], most)
        assert [run.id for run in runs] == waited[:most], "those that waited, in order"
        self._given(owner, runs)

    @precondition(lambda self: self.valid)
    @rule(owner=st.integers(0, 1), data=st.data(), token=st.integers(1, 8))
    def message(self, owner: int, data: st.DataObject, token: int) -> None:
        """Any that there ever was: early, late, twice."""
        job = data.draw(st.sampled_from(sorted([*self.valid, *self.gone])))
        self._given(owner, self.lab.claim_named(self.owners[owner], job, token))

    def _given(self, owner: int, runs: list[Claimed]) -> None:
        for run in runs:
            assert self.valid[run.id] is None, "two valid runs of one job"
            assert run.id not in self.ended
            assert self.parents[run.id] <= self.complete, "it was to wait"
            self.valid[run.id] = run
            self.runs.append((self.owners[owner], run))

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), end=st.sampled_from(ENDS))
    def finish(self, data: st.DataObject, end: RunEnd) -> None:
        """Any run there ever was says that it has ended."""
        owner, run = data.draw(st.sampled_from(self.runs))
        was_valid = self.valid.get(run.id) is run
        assert self.lab.finish(owner, run, end) is was_valid
        if was_valid:
            self._over(run.id)

    def _over(self, job: int) -> None:
        self.valid[job] = None
        status = self.lab.status(job)
        if status is not JobStatus.CREATED:
            self.ended.add(job)
        if status is JobStatus.COMPLETE:
            self.complete.add(job)

    @rule(owner=st.integers(0, 1))
    def die(self, owner: int) -> None:
        """It is taken for dead: what it does later is in vain. Another one takes its place."""
        dead = self.owners[owner]
        self.lab.kill(dead)
        self.owners[owner] = self.lab.instance()
        for of, run in self.runs:
            if of == dead and self.valid.get(run.id) is run:
                self._over(run.id)

    @precondition(lambda self: any(self.valid.values()))
    @rule(data=st.data())
    def overdue(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(job for job, run in self.valid.items() if run)))
        self.lab.overdue(job)
        self._over(job)

    @rule()
    def time_passes(self) -> None:
        self.lab.let_due()

    @precondition(lambda self: self.ended)
    @rule()
    def restart(self) -> None:
        operate = self.lab.jobs.operate
        operate.act(operate.select(Action.RESTART, JobFilter()), who="test")
        self.ended = {job for job in self.ended if self.lab.status(job) is not JobStatus.CREATED}

    @invariant()
    def counters_and_keys(self) -> None:
        self.lab.check()

    def teardown(self) -> None:
        try:
            self.run_out()
        finally:
            self.lab.close()
            self.folder.cleanup()

    def run_out(self) -> None:
        """All that can run runs, and completes. What is left waits for a job that has ended badly,
        or for one that is left."""
        for owner in self.owners:
            self.die(self.owners.index(owner))
        while True:
            self.lab.let_due()
            before = len(self.runs)
            self.claim(0, 1)
            for owner, run in self.runs[before:]:
                finish = self.lab.finish_foreign if run.id % 2 else self.lab.finish
                assert finish(owner, run)
                self._over(run.id)
            if len(self.runs) == before:
                break
        for job in self.valid:
            waits = self.lab.status(job) is JobStatus.CREATED
            assert waits == bool(self.parents[job] - self.complete) or job in self.ended


class Families(History):
    """… of which some wait for others, and some are deleted; users' transactions, too."""

    @precondition(lambda self: self.valid)
    @rule(
        again=st.booleans(),
        key=st.sampled_from([None, None, "k"]),
        after=st.sets(st.integers(0, 5), max_size=2),
        foreign=st.booleans(),
    )
    def submit_after(self, again: bool, key: str | None, after: set[int], foreign: bool) -> None:
        there = sorted(self.valid, reverse=True)
        parents = {there[each] for each in after if each < len(there)}
        submit = self.lab.submit_foreign if foreign else self.lab.submit
        self._submitted(submit(restartable=again, key=key, parents=tuple(parents)), parents)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def finish_with_a_transaction(self, data: st.DataObject) -> None:
        owner, run = data.draw(st.sampled_from(self.runs))
        was_valid = self.valid.get(run.id) is run
        assert self.lab.finish_foreign(owner, run) is was_valid
        if was_valid:
            self._over(run.id)

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), foreign=st.booleans())
    def submit_after_none(self, data: st.DataObject, foreign: bool) -> None:
        parents = (data.draw(st.sampled_from(self.gone)),)
        submit = self.lab.submit_foreign if foreign else self.lab.submit
        with pytest.raises(JobNotFound):
            submit(parents=parents)

    @rule()
    def release(self) -> None:
        """What is due, and what users' transactions have left."""
        self.lab.release()

    @precondition(lambda self: self.valid)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        waiting = {each for each in self.valid if self.lab.status(each) is JobStatus.CREATED}
        needed = {parent for each in waiting for parent in self.parents[each] - self.complete}
        job = data.draw(st.sampled_from(sorted(needed or self.valid)))
        may = self.valid[job] is None and job not in needed
        assert self.lab.delete(job) == may
        if may:
            del self.valid[job]
            self.ended.discard(job)
            self.gone.append(job)


def test_a_job_has_one_valid_run_at_most() -> None:
    run_machine(Families, settings=SETTINGS)
