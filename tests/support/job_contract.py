"""What the SQL of jobs must do; run against SQLite and against a real PostgreSQL."""

from __future__ import annotations

import pytest
from job_lab import SPAN, Lab, new
from sqlalchemy import event, text

from roq.errors import JobNotFound
from roq.jobs import instances
from roq.jobs.batches import write_batch
from roq.jobs.database import MICROSECONDS
from roq.jobs.held import LEFT
from roq.jobs.instances import EXPIRE_SECONDS
from roq.jobs.room import JobPlaces
from roq.jobs.rows import Body, Ended, ReadyJob, Want
from roq.jobs.states import (
    DEFAULT,
    HIGH,
    LOSSES_MAX,
    LOW,
    RETRY_SECONDS_MAX,
    JobStatus,
    RunEnd,
    StaleReason,
)
from roq.jobs.views import Action, JobFilter
from roq.jobs.waiting import REST_SECONDS, SLACK, WaitingFloors

BADLY = JobFilter(statuses=(JobStatus.FAILED,))
FILTERS = [
    JobFilter(),
    BADLY,
    JobFilter(statuses=(JobStatus.FAILED, JobStatus.TIMED_OUT)),
    JobFilter(types=("A",), priority=HIGH),
    JobFilter(types=("Nope",)),
    JobFilter(statuses=(JobStatus.RUNNING,)),
    JobFilter(statuses=(JobStatus.CREATED, JobStatus.FAILED)),
    JobFilter(tag="t"),
    JobFilter(tag=""),
    JobFilter(tag="t", statuses=(JobStatus.FAILED,)),
    JobFilter(key="k"),
    JobFilter(key="k", types=("B",)),
    JobFilter(fingerprint="f" * 16),
    JobFilter(fingerprint="f" * 16, types=("B",)),
    JobFilter(ids=(1, 2, 3, 99)),
    JobFilter(instance=1),
    JobFilter(created_before=1),
]


def various(lab: Lab) -> None:
    """Jobs of all statuses, some with tags, keys and children."""
    mine = lab.instance("A", "B")
    for n in range(24):
        lab.submit("AB"[n % 2], priority=(DEFAULT, HIGH)[n % 3 == 0], restartable=False,
                   tag="t" * (n % 4 == 0), key="k" if n % 6 == 0 else None)  # fmt: skip
    ends = [RunEnd.DONE, RunEnd.RAISED, RunEnd.LIMIT, RunEnd.INTERRUPTED, RunEnd.RAISED]
    for n, run in enumerate(lab.claim(mine, 12, "A", "B")):
        if n < 10:
            lab.finish(mine, run, ends[n % 5])
    failed = lab.jobs.operate.jobs(BADLY)
    lab.submit(parents=(failed[0].id, failed[-1].id))
    lab.submit(due=2**60)


def brute(lab: Lab, wanted: JobFilter) -> list[int]:
    """The ids that fit, found by a look at each job."""
    same = {"priority": wanted.priority, "tag": wanted.tag, "key": wanted.key}
    with lab.database.read() as connection:
        marks = connection.execute(text("SELECT job, fingerprint FROM job_error")).all()
        return [
            row.id
            for row in connection.execute(text("SELECT * FROM job ORDER BY id DESC"))
            if (not wanted.ids or row.id in wanted.ids)
            and (not wanted.types or row.type in wanted.types)
            and (not wanted.statuses or row.status in wanted.statuses)
            and all(each is None or getattr(row, name) == each for name, each in same.items())
            and (not wanted.fingerprint or (row.id, wanted.fingerprint) in marks)
            and (wanted.instance is None or row.owner == wanted.instance)
            and (wanted.created_before is None or row.created < wanted.created_before)
        ]


def may(lab: Lab, action: Action, job: int) -> bool:
    """Whether the page of a job offers it; to requeue is for those that nothing holds."""
    page = lab.jobs.operate.job(job)
    return action in page.actions and (action is not Action.REQUEUE or not page.job.held.value)


class StoreContract:
    """Each test has a `lab` without jobs."""

    def test_a_job_is_submitted_claimed_and_finished(self, lab: Lab) -> None:
        job = lab.submit(items=3, params=Body("json", 1, b"[1]"), tag="t")
        mine = lab.instance()
        (run,) = lab.claim(mine)
        assert (run.id, run.items, run.tag, run.params) == (job, 3, "t", Body("json", 1, b"[1]"))
        assert lab.status(job) is JobStatus.RUNNING
        lab.check()
        assert lab.finish(mine, run)
        assert lab.status(job) is JobStatus.COMPLETE
        lab.check()

    def test_what_is_claimed_is_nobody_elses(self, lab: Lab) -> None:
        job = lab.submit()
        one, two = lab.instance(), lab.instance()
        assert len(lab.claim(one)) == 1
        assert lab.claim(two) == []
        assert lab.claim_named(two, job, 1) == []

    def test_a_message_is_good_for_one_run(self, lab: Lab) -> None:
        job, mine = lab.submit(), lab.instance()
        (run,) = lab.claim_named(mine, job, 1)
        assert run.token == 2
        assert lab.finish(mine, run, RunEnd.STOPPED)
        assert lab.status(job) is JobStatus.CREATED
        assert lab.claim_named(mine, job, 1) == [], "a late message"
        assert lab.claim_named(mine, job, 2) == []
        assert len(lab.claim_named(mine, job, 3)) == 1
        assert lab.claim_named(mine, job, 3) == [], "the same message again"

    def test_a_message_that_was_not_looked_at_is_kept_whatever_older_one_was(
        self, lab: Lab
    ) -> None:
        job, mine = lab.submit(), lab.instance()
        lab.set("job", "token = 2", job)
        with lab.store.write() as connection:
            jobs = [(job, 1, "A"), (job, 2, "A")]
            claims = lab.store.claim(connection, mine, [Want("A", 1, SPAN)], jobs, JobPlaces(1))
        assert (claims.runs, claims.passed) == ([], {(job, 2)})

    def test_what_stands_still_says_why(self, lab: Lab) -> None:
        mine, dead = lab.instance(), lab.instance("A", "B")
        failed, child = lab.submit(), lab.submit("C")
        lab.submit("B")
        lab.claim(dead, 1, "B")
        lab.set("job", "status = 'FAILED', children = 1", failed)
        lab.set("job", "held = 'parents', waits = 2", child)
        other = lab.submit()
        lab.set("job", "children = 1", other)
        with lab.database.write() as connection:
            edges = [[failed, child], [other, child], [failed, LEFT]]
            lab.store.write_edges(connection, edges)
        told = [each.reason for each in lab.jobs.operate.stalls()]
        assert told == ["failed_parent"]
        lab.set("job_instance", "expires = 1", dead)
        first, second = lab.jobs.operate.stalls()
        assert (first.type, first.reason, first.number) == ("B", "dead_owner", 1)
        assert (second.type, second.reason, second.number) == ("C", "failed_parent", 1)
        assert f"such as {failed}: restart" in second.why
        assert "within seconds" in first.why
        lab.set("job_instance", "expires = 1", mine)
        assert any("none lives" in each.why for each in lab.jobs.operate.stalls())

    def test_stale_messages_say_why(self, lab: Lab) -> None:
        again, begun, ended, held, gone = (lab.submit() for _ in range(5))
        lab.set("job", "token = 3", again)
        lab.set("job", "token = 2, status = 'RUNNING'", begun)
        lab.set("job", "token = 2, status = 'COMPLETE'", ended)
        lab.set("job", "held = 'later'", held)
        lab.delete(gone)
        run = lab.claim_named(lab.instance(), lab.submit(), 1)
        asked = [ReadyJob(DEFAULT, each, 1, "A") for each in (again, begun, ended, held, gone)]
        asked.append(ReadyJob(DEFAULT, run[0].id, 1, "A"))
        with lab.database.read() as connection:
            told = lab.store.why_stale(connection, asked, run)
        assert told == dict.fromkeys(set(StaleReason) - {StaleReason.CHANGED}, 1)

    def test_the_end_of_an_outdated_run_is_refused(self, lab: Lab) -> None:
        job, mine = lab.submit(), lab.instance()
        (first,) = lab.claim(mine)
        lab.overdue(job)
        lab.let_due()
        (second,) = lab.claim(mine)  # by the same instance: its id alone would not do
        assert not lab.finish(mine, first)
        assert lab.status(job) is JobStatus.RUNNING
        assert lab.finish(mine, second)
        assert not lab.finish(mine, second), "twice"
        lab.check()

    def test_an_outdated_and_a_valid_run_may_end_together(self, lab: Lab) -> None:
        job, mine = lab.submit(), lab.instance()
        (first,) = lab.claim(mine)
        lab.overdue(job)
        lab.let_due()
        (second,) = lab.claim(mine)
        ended = [Ended(second, RunEnd.DONE, 0), Ended(first, RunEnd.LOST, 0)]
        with lab.database.write() as connection:
            assert lab.store.finish(connection, mine, ended) == {(job, second.token)}
        assert lab.status(job) is JobStatus.COMPLETE
        lab.check()

    def test_without_the_token_an_outdated_run_would_count(self, lab: Lab) -> None:
        lab.store._finish = lab.store._finish.replace(" AND job.token = d.token", "")
        with pytest.raises(AssertionError):
            self.test_the_end_of_an_outdated_run_is_refused(lab)

    def test_after_a_slow_look_the_next_ones_begin_where_it_has_found_something(
        self, lab: Lab
    ) -> None:
        """As if it had been slow: what was claimed is in the way of who looks."""
        clock = [0.0]
        lab.store._floors = floors = WaitingFloors(lambda: clock[0])
        mine = lab.instance()
        jobs = [lab.submit(priority=each) for each in (LOW, HIGH, DEFAULT)]
        lab.set("job", "created = 5", jobs[1])
        for priority in (HIGH, DEFAULT, LOW):
            floors.looked("A", priority, 0, 10 + SLACK, 0.1)
        assert [run.id for run in lab.claim(mine, 1)] == [jobs[2]], "a whole look finds the first"
        with lab.database.read() as connection:
            assert lab.store.oldest(connection, "A", HIGH) is None
            assert lab.store.first_priority(connection, "A", LOW) is None
        clock[0] += REST_SECONDS
        with lab.database.read() as connection:
            assert lab.store.first_priority(connection, "A", LOW) == HIGH
            assert lab.store.oldest(connection, "A", HIGH) == 5
        assert [run.id for run in lab.claim(mine)] == [jobs[1], jobs[0]]

    def test_order_is_priority_then_age(self, lab: Lab) -> None:
        jobs = [new(priority=each) for each in (LOW, HIGH, LOW, HIGH)]
        low1, high1, low2, high2 = (each.id for each in lab.submit_all(jobs))
        default = lab.submit()
        mine = lab.instance()
        assert [run.id for run in lab.claim(mine, 2)] == [high1, high2]
        assert [run.id for run in lab.claim(mine)] == [default, low1, low2]

    def test_order_holds_over_types(self, lab: Lab) -> None:
        lab.submit("A", priority=LOW)
        high = lab.submit("B", priority=HIGH)
        assert [run.id for run in lab.claim(lab.instance("A", "B"), 1, "A", "B")] == [high]

    def test_a_dead_owners_job_runs_again(self, lab: Lab) -> None:
        job, dead, living = lab.submit(), lab.instance(), lab.instance()
        (run,) = lab.claim(dead)
        lab.kill(dead)
        assert lab.status(job) is JobStatus.CREATED
        assert lab.field(job, "losses") == 1
        (again,) = lab.claim(living)
        assert not lab.finish(dead, run)
        assert lab.finish(living, again)
        lab.check()

    def test_the_dead_claim_nothing(self, lab: Lab) -> None:
        lab.submit()
        dead = lab.instance()
        lab.kill(dead)
        assert lab.claim(dead) == []
        with lab.database.write() as connection:
            assert not lab.instances.renew(connection, dead)

    def test_a_dead_owners_job_that_must_not_run_twice_is_kept(self, lab: Lab) -> None:
        job, dead = lab.submit(restartable=False), lab.instance()
        lab.claim(dead)
        lab.kill(dead)
        assert lab.status(job) is JobStatus.INTERRUPTED
        lab.check()

    def test_a_job_that_kills_its_owners_fails_in_the_end(self, lab: Lab) -> None:
        job = lab.submit()
        for _ in range(LOSSES_MAX + 1):
            owner = lab.instance()
            assert len(lab.claim(owner)) == 1
            lab.kill(owner)
        assert lab.status(job) is JobStatus.FAILED
        lab.check()

    def test_what_raises_is_tried_again_later_and_fails_in_the_end(self, lab: Lab) -> None:
        job, mine = lab.submit(), lab.instance()
        for _ in range(2):
            (run,) = lab.claim(mine)
            lab.finish(mine, run, RunEnd.RAISED, saved=4)
            assert (lab.status(job), lab.claim(mine)) == (JobStatus.CREATED, [])
            lab.let_due()
        (run,) = lab.claim(mine)
        assert (run.attempts.failures, run.saved) == (2, 4)
        lab.finish(mine, run, RunEnd.RAISED)
        assert lab.status(job) is JobStatus.FAILED
        assert lab.jobs.operate.failures()[0].number == 3
        lab.check()

    def test_a_job_waits_for_its_time(self, lab: Lab) -> None:
        lab.submit(due=2**60)
        mine = lab.instance()
        assert lab.claim(mine) == []
        lab.let_due()
        assert len(lab.claim(mine)) == 1

    def test_jobs_of_a_key_run_one_at_a_time_in_order(self, lab: Lab) -> None:
        first, second = (each.id for each in lab.submit_all([new(key="k"), new(key="k")]))
        other, mine = lab.submit(key="other"), lab.instance()
        runs = lab.claim(mine)
        assert [run.id for run in runs] == [first, other]
        assert lab.claim(mine) == []
        lab.finish(mine, runs[0])
        assert [run.id for run in lab.claim(mine)] == [second]

    def test_a_key_of_the_users_transaction_is_released_after_it(self, lab: Lab) -> None:
        with lab.database.write() as connection:
            lab.store.submit(connection, [new(key="k")], foreign=True)
        with lab.database.write() as connection:
            assert lab.store.release_due(connection) == 1
            lab.instances.tidy(connection)
        assert len(lab.claim(lab.instance())) == 1
        lab.check()

    def test_a_job_waits_for_others(self, lab: Lab) -> None:
        one, two, mine = lab.submit(), lab.submit(), lab.instance()
        last = lab.submit(parents=(one, two, two))
        runs = lab.claim(mine)
        assert [run.id for run in runs] == [one, two]
        lab.finish(mine, runs[0])
        assert lab.claim(mine) == []
        lab.finish(mine, runs[1], RunEnd.INTERRUPTED)
        assert lab.claim(mine) == []
        assert "restart" in lab.jobs.operate.job(last).why
        self._act(lab, Action.RESTART, two)
        (run,) = lab.claim(mine)
        lab.finish(mine, run)
        assert [run.id for run in lab.claim(mine)] == [last]

    def test_a_job_after_one_that_is_done_does_not_wait(self, lab: Lab) -> None:
        one, mine = lab.submit(), lab.instance()
        lab.finish(mine, lab.claim(mine)[0])
        lab.submit(parents=(one,))
        assert len(lab.claim(mine)) == 1
        with pytest.raises(JobNotFound, match="no job 999"):
            lab.submit(parents=(999,))

    def test_unique_jobs(self, lab: Lab) -> None:
        first = lab.submit(unique="u")
        told = lab.submit_all(
            [
                new(unique="u"),
                new(unique="u", on_unique="skip"),
                new(unique="u", on_unique="replace", items=5, params=Body("json", 1, b"2")),
                new("B", unique="u"),
            ]
        )
        assert [each.outcome for each in told] == ["exists", "skipped", "replaced", "new"]
        assert {each.id for each in told[:3]} == {first}
        mine = lab.instance()
        (run,) = lab.claim(mine)
        assert (run.items, run.params) == (5, Body("json", 1, b"2"))
        lab.check()
        again = lab.submit_all([new(unique="u", on_unique="replace")])[0]
        assert again.outcome == "exists", "it runs"
        lab.finish(mine, run)
        assert lab.submit_all([new(unique="u")])[0].outcome == "new"
        lab.check()

    def test_a_limit_of_the_cluster_holds_over_instances(self, lab: Lab) -> None:
        lab.declare("A", 3)
        for _ in range(6):
            lab.submit()
        one, two = lab.instance(), lab.instance()
        mine = lab.claim(one, 2, limited=True)
        theirs = lab.claim(two, 4, limited=True)
        assert (len(mine), len(theirs)) == (2, 1)
        assert lab.claim(two, 4, limited=True, running=1) == []
        lab.finish(one, mine[0])
        # The slot is the first one's until it needs it no more.
        assert lab.claim(two, 4, limited=True, running=1) == []
        assert lab.claim(one, 0, limited=True, running=1) == []
        assert len(lab.claim(two, 4, limited=True, running=1)) == 1
        lab.kill(one)
        assert len(lab.claim(two, 4, limited=True, running=2)) == 1, "slots of the dead are free"

    def test_a_limit_that_is_lowered_and_raised_counts_what_runs(self, lab: Lab) -> None:
        lab.declare("A", 3)
        for _ in range(9):
            lab.submit()
        one, two = lab.instance(), lab.instance()
        mine = lab.claim(one, 3, limited=True)
        assert len(mine) == 3
        lab.declare("A", 1)
        assert lab.claim(two, 4, limited=True) == []
        lab.declare("A", 3)
        assert lab.claim(two, 4, limited=True) == [], "three run, and three may"
        lab.declare("A", 1)
        for left in (2, 1):
            lab.finish(one, mine.pop())
            assert lab.claim(one, 4, limited=True, running=left) == []
            assert lab.claim(two, 4, limited=True) == [], f"{left} run, and one may"
        lab.finish(one, mine.pop())
        assert lab.claim(one, 0, limited=True) == []
        assert len(lab.claim(two, 4, limited=True)) == 1
        lab.declare("A", 2)
        assert len(lab.claim(one, 4, limited=True)) == 1

    def test_many_are_restarted_and_never_more_than_were_counted(self, lab: Lab) -> None:
        mine = lab.instance()
        jobs = [each.id for each in lab.submit_all([new(restartable=False) for _ in range(4)])]
        for run in lab.claim(mine):
            lab.finish(mine, run, RunEnd.RAISED)
        operate = lab.jobs.operate
        failed = JobFilter(statuses=(JobStatus.FAILED,))
        selection = operate.select(Action.RESTART, failed)
        late = lab.submit(restartable=False)
        lab.finish(mine, lab.claim(mine)[0], RunEnd.RAISED)
        assert (selection.number, operate.act(selection, who="me")) == (4, 4)
        assert {lab.status(each) for each in jobs} == {JobStatus.CREATED}
        assert lab.status(late) is JobStatus.FAILED
        assert operate.audit()[0].number == 4
        lab.check()
        assert len(lab.claim(mine)) == 4

    def test_the_audit_keeps_the_last_actions(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(instances, "AUDIT_KEPT", 3)
        with lab.database.write() as connection:
            for number in range(7):
                lab.instances.note(connection, "me", "test", "", number)
        for _ in range(2):
            with lab.store.write() as connection:
                lab.instances.tidy(connection)
            assert [row.number for row in lab.jobs.operate.audit()] == [6, 5, 4]

    def test_a_clock_that_was_set_back_delays_no_retry_for_long(self, lab: Lab) -> None:
        """As if it had been a day ahead when the first run failed."""
        mine, day = lab.instance(), 86_400 * MICROSECONDS
        retry = lab.submit()
        (run,) = lab.claim(mine)
        assert lab.finish(mine, run, RunEnd.RAISED)
        due = lab.field(retry, "due")
        lab.set("job", f"due = {due + day}", retry)
        later = lab.submit(due=due + day)
        lab.set("job_instance", f"expires = expires + {day}", mine)
        with lab.store.write() as connection:
            lab.instances.tidy(connection)
            now = lab.database.now(connection)
            expires = lab.database.run(connection, "SELECT expires FROM job_instance").scalar_one()
        assert now < lab.field(retry, "due") <= now + RETRY_SECONDS_MAX * MICROSECONDS
        assert lab.field(later, "due") == due + day, "that time was somebody's wish"
        assert now < expires <= now + EXPIRE_SECONDS * MICROSECONDS
        lab.let_due()
        assert retry in [each.id for each in lab.claim(mine)]

    def test_what_replaces_a_job_of_the_same_submission_has_the_last_word(self, lab: Lab) -> None:
        lab.submit_all(
            [
                new(unique="u", on_unique="replace", params=Body("json", 1, each))
                for each in (b"1", b"2", b"3")
            ]
        )
        (run,) = lab.claim(lab.instance())
        assert run.params == Body("json", 1, b"3")

    def test_a_restart_does_not_break_unique(self, lab: Lab) -> None:
        mine = lab.instance()
        for _ in range(2):
            lab.submit(unique="u", restartable=False)
            lab.finish(mine, lab.claim(mine)[0], RunEnd.RAISED)
        operate = lab.jobs.operate
        assert operate.act(operate.select(Action.RESTART, JobFilter()), who="me") == 1
        lab.check()

    def test_jobs_are_deleted_with_all_that_is_theirs(self, lab: Lab) -> None:
        mine = lab.instance()
        parent = lab.submit(params=Body("json", 1, b"1"))
        lab.submit(parents=(parent,))
        (run,) = lab.claim(mine)
        assert self._act(lab, Action.DELETE, parent) == 0, "it runs"
        lab.finish(mine, run, RunEnd.REFUSED)
        assert self._act(lab, Action.DELETE, parent) == 0, "another one waits for it"
        assert lab.jobs.operate.select(Action.DELETE, JobFilter()).number == 1
        lab.jobs.operate.act(lab.jobs.operate.select(Action.DELETE, JobFilter()), who="me")
        self._act(lab, Action.RESTART, parent)
        lab.finish(mine, lab.claim(mine)[0])
        assert self._act(lab, Action.DELETE, parent) == 1
        lab.check()
        with lab.database.read() as connection:
            for table in ("job", "job_params", "job_error", "job_edge"):
                number = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                assert (table, number) == (table, 0)

    def test_a_failed_parent_is_deleted_when_nothing_waits_for_it_any_more(self, lab: Lab) -> None:
        parent, mine = lab.submit(restartable=False), lab.instance()
        child = lab.submit(parents=(parent,))
        lab.finish(mine, lab.claim(mine)[0], RunEnd.RAISED)
        assert Action.DELETE not in lab.jobs.operate.job(parent).actions
        assert self._act(lab, Action.DELETE, parent) == 0
        assert self._act(lab, Action.DELETE, child) == 1
        assert Action.DELETE in lab.jobs.operate.job(parent).actions
        assert self._act(lab, Action.DELETE, parent) == 1
        lab.check()

    def test_old_results_are_deleted_and_other_ends_are_kept(self, lab: Lab) -> None:
        done, failed, mine = lab.submit(), lab.submit(restartable=False), lab.instance()
        for run in lab.claim(mine):
            lab.finish(mine, run, RunEnd.DONE if run.id == done else RunEnd.RAISED)
        for job in (done, failed):
            lab.set("job", "ended = 1", job)
        with lab.database.write() as connection:
            assert lab.instances.tidy(connection) == 1
        assert lab.jobs.status_of(done) is None
        assert lab.status(failed) is JobStatus.FAILED
        lab.check()

    def test_operators_see_what_there_is(self, lab: Lab) -> None:
        lab.declare("A", 2)
        mine = lab.instance()
        waits = lab.submit(items=2)
        unknown = lab.submit("Gone")
        operate = lab.jobs.operate
        assert [(row.type, row.known, row.number) for row in operate.counts()] == [
            ("A", True, 1),
            ("Gone", False, 1),
        ]
        assert "no living instance" in operate.job(unknown).why
        assert "the next one" in operate.job(waits).why
        operate.switch(False, who="me", type="A")
        assert "switched off" in operate.job(waits).why
        operate.switch(True, who="me", type="A")
        (run,) = lab.claim(mine, limited=True)
        assert [row.id for row in operate.running()] == [waits]
        other = lab.instance("A")
        assert [(each.slots, each.shares) for each in operate.instance_list()] == [
            ({"A": 1}, {"A": 1}),
            ({}, {"A": 1}),
        ]
        lab.set("job_instance", "expires = 1", other)
        assert [each.shares for each in operate.instance_list()] == [{"A": 2}, {}], "one is dead"
        assert operate.type_list()[0].slots_used == 1
        assert self._act(lab, Action.INTERRUPT, waits) == 1
        with lab.database.read() as connection:
            look = lab.instances.look(connection, mine)
        assert look.interrupt == {(run.id, run.token)}
        assert operate.job(waits).job.stop
        assert [row.id for row in operate.jobs(JobFilter(), most=1)] == [unknown]
        assert [row.id for row in operate.jobs(JobFilter(), below=unknown)] == [waits]
        assert operate.jobs(JobFilter(tag="'; DROP TABLE job; --")) == []
        with lab.database.write() as connection:
            connection.exec_driver_sql("UPDATE job_slot SET owner = 1")
        held_up = operate.job(lab.submit()).why
        assert held_up == "instances hold all 2 slots of type A, its limit in the cluster"

    def test_counts_and_lists_are_those_of_a_look_at_each_job(self, lab: Lab) -> None:
        various(lab)
        operate = lab.jobs.operate
        for wanted in FILTERS:
            fits = brute(lab, wanted)
            assert [row.id for row in operate.jobs(wanted)] == fits, wanted
            for action in Action:
                selection = operate.select(action, wanted)
                fit = [job for job in fits if may(lab, action, job)]
                assert selection.number == len(fit), (action, wanted)
        lab.check()

    def _act(self, lab: Lab, action: Action, job: int) -> int:
        operate = lab.jobs.operate
        return operate.act(operate.select(action, JobFilter(ids=(job,))), who="me")


class HeldContract:
    """Jobs that wait for others, of users' transactions too. Each test has a `lab` without jobs."""

    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_user_submits_after_others(self, lab: Lab, key: str | None) -> None:
        mine = lab.instance()
        done = lab.submit()
        lab.finish(mine, lab.claim(mine)[0])
        parent = lab.submit()
        child = lab.submit_foreign(parents=(done, parent), key=key)
        (run,) = lab.claim(mine)
        assert run.id == parent
        lab.release()
        assert lab.field(child, "held") == "parents"
        assert lab.claim(mine) == []
        lab.finish(mine, run)
        assert [run.id for run in lab.claim(mine)] == [child]
        lab.check()

    def test_a_parent_that_a_user_completes_is_not_counted_twice(self, lab: Lab) -> None:
        mine, other, first = lab.instance(), lab.submit("B"), lab.submit(key="k")
        (run,) = lab.claim(mine)
        child = lab.submit_foreign(parents=(first, other))
        assert lab.finish_foreign(mine, run)
        for _ in range(2):
            lab.release()
            assert (lab.field(child, "held"), lab.field(child, "waits")) == ("parents", 1)
        assert lab.claim(mine) == [], "the other one is not complete"
        lab.finish(mine, lab.claim(mine, 1, "B")[0])
        assert [run.id for run in lab.claim(mine)] == [child]
        lab.check()

    @pytest.mark.parametrize("foreign", [False, True])
    def test_the_last_job_of_a_batch_waits_visibly_for_what_failed(
        self, lab: Lab, foreign: bool
    ) -> None:
        mine, operate = lab.instance("A", "B"), lab.jobs.operate
        with lab.database.write() as connection:
            told = write_batch(
                lab.store, connection, "b", [new(tag="b") for _ in range(3)], new("B", tag="b"),
                foreign=foreign,
            )  # fmt: skip
        last = told[-1].id
        lab.release()
        first, *others = lab.claim(mine, 10, "A", "B")
        lab.finish(mine, first, RunEnd.INTERRUPTED)
        for run in others:
            lab.finish(mine, run)
        (row,) = operate.batches()
        assert (row.job, row.number, row.complete, row.failed) == (last, 3, 2, 1)
        assert f"did not complete ({first.id})" in operate.job(last).why
        assert operate.job(last).batch == row
        assert self._restart(lab, JobFilter(tag="b")) == 1
        assert operate.batches()[0].failed == 0
        (again,) = lab.claim(mine, 10, "A", "B")
        assert again.id == first.id, "the last one still waits"
        lab.finish(mine, again)
        (run,) = lab.claim(mine, 10, "A", "B")
        assert (run.id, operate.batches()[0].complete) == (last, 3), "in the finishing commit"
        lab.finish(mine, run)
        assert lab.delete(last) == 1
        assert operate.batches() == []
        lab.check()

    def _restart(self, lab: Lab, which: JobFilter) -> int:
        operate = lab.jobs.operate
        return operate.act(operate.select(Action.RESTART, which), who="me")

    def test_a_parent_that_is_complete_before_anybody_looks(self, lab: Lab) -> None:
        mine, parent = lab.instance(), lab.submit()
        child = lab.submit_foreign(parents=(parent,))
        lab.finish(mine, lab.claim(mine)[0])
        with lab.database.read() as connection:
            assert lab.instances.look(connection, mine).due
        lab.release()
        assert [run.id for run in lab.claim(mine)] == [child]

    def test_the_time_of_such_a_job_holds(self, lab: Lab) -> None:
        mine, parent = lab.instance(), lab.submit()
        child = lab.submit_foreign(parents=(parent,), due=2**60)
        assert lab.jobs.operate.job(child).job.due == 2**60
        lab.finish(mine, lab.claim(mine)[0])
        lab.release()
        assert (lab.field(child, "held"), lab.field(child, "due")) == ("later", 2**60)
        assert lab.claim(mine) == []
        lab.let_due()
        assert len(lab.claim(mine)) == 1

    def test_a_user_cannot_submit_after_a_job_that_is_not_there(self, lab: Lab) -> None:
        with pytest.raises(JobNotFound, match="no job 999"):
            lab.submit_foreign(parents=(999,))

    def test_a_user_finishes_a_job_that_others_wait_for(self, lab: Lab) -> None:
        mine, parent = lab.instance(), lab.submit(key="k")
        child, next_ = lab.submit(parents=(parent,)), lab.submit(key="k")
        (run,) = lab.claim(mine)
        assert lab.finish_foreign(mine, run)
        assert not lab.finish_foreign(mine, run)
        with lab.database.read() as connection:
            assert lab.instances.look(connection, mine).due
        lab.release()
        assert [run.id for run in lab.claim(mine)] == [child, next_]
        assert lab.jobs.operate.job(parent).children == [child]
        with lab.database.read() as connection:
            assert not lab.instances.look(connection, mine).due
        lab.check()

    def test_a_finished_job_is_not_deleted_before_others_are_let_go(self, lab: Lab) -> None:
        mine, parent = lab.instance(), lab.submit()
        child = lab.submit(parents=(parent,))
        lab.finish_foreign(mine, lab.claim(mine)[0])
        assert lab.delete(parent) == 1
        assert [run.id for run in lab.claim(mine)] == [child]

    def test_a_job_that_others_wait_for_is_not_deleted(self, lab: Lab) -> None:
        mine = lab.instance()
        first, second = lab.submit(restartable=False), lab.submit(restartable=False)
        children = [lab.submit(parents=(first,)), lab.submit_foreign(parents=(second,))]
        for run in lab.claim(mine):
            lab.finish(mine, run, RunEnd.RAISED)
        assert lab.delete(first, second) == 0
        lab.release()
        assert lab.delete(first, second) == 0
        assert lab.delete(*children) == 2
        assert lab.delete(first, second) == 2
        lab.check()

    def test_a_type_without_slots_leaves_its_places_to_others(self, lab: Lab) -> None:
        lab.declare("Limited", 1)
        first, mine = lab.instance("Limited"), lab.instance("Limited", "Free")
        for _ in range(5):
            lab.submit("Limited")
        free = [lab.submit("Free") for _ in range(2)]
        assert len(lab.claim(first, 2, "Limited", limited=True)) == 1
        wants = [Want("Limited", 2, SPAN, limited=True), Want("Free", 2, SPAN)]
        assert [run.id for run in lab.claims(mine, wants, 2)] == free
        lab.check()

    def test_counters_change_once_in_a_transaction_of_ours(self, lab: Lab) -> None:
        mine, wants = lab.instance("A", "B"), [Want(each, 9, SPAN) for each in "BA"]
        lab.submit("A"), lab.submit("B")
        runs = lab.claims(mine, wants, 9)
        lab.submit("A")
        statements: list[str] = []
        event.listen(
            lab.database.engine, "before_cursor_execute",
            lambda _c, _u, statement, *_rest: statements.append(statement),
        )  # fmt: skip
        with lab.store.write() as connection:
            for run in runs:
                lab.store.finish(connection, mine, [Ended(run, RunEnd.DONE, 0)])
            jobs = lab.store.candidates(connection, wants, 9)
            assert len(lab.store.claim(connection, mine, wants, jobs, JobPlaces(9)).runs) == 1
        assert sum("job_count" in each for each in statements) == 1
        assert "job_count" in statements[-1]
        lab.check()

    def test_what_an_instance_does_not_know_of_goes_back(self, lab: Lab) -> None:
        mine, other = lab.instance(), lab.instance()
        known, unknown = lab.submit(restartable=False), lab.submit(restartable=False)
        (run,), _ = lab.claim(mine, 1), lab.claim(mine, 1)
        theirs = lab.submit(restartable=False)
        lab.claim(other)
        with lab.store.write() as connection:
            assert lab.instances.give_back(connection, mine, {(run.id, run.token)}) == 1
        running = [each for each in (known, theirs) if lab.status(each) is JobStatus.RUNNING]
        assert running == [known, theirs]
        assert (lab.status(unknown), lab.field(unknown, "losses")) == (JobStatus.CREATED, 0)
        lab.check()

    # --- limits of types --------------------------------------------------------------------------

    def test_a_rate_is_that_of_all_instances(self, lab: Lab) -> None:
        lab.declare("A", None, rate=0.001)
        lab.submit_all([new() for _ in range(5)])
        want = Want("A", 10, SPAN, rate=0.001)
        mine, other = lab.instance(), lab.instance()
        assert len(lab.claims(mine, [want], 10)) == 1
        assert lab.claims(other, [want], 10) == []
        job = lab.jobs.operate.jobs(JobFilter(statuses=(JobStatus.CREATED,)))[0]
        assert "rate allows: 0.001/s" in lab.jobs.operate.job(job.id).why
        lab.run("UPDATE job_type SET rate_next = 0")
        assert len(lab.claims(other, [want], 10)) == 1
        lab.check()

    def test_a_stale_message_takes_nothing_of_a_rate(self, lab: Lab) -> None:
        lab.declare("A", None, rate=0.001)
        mine = lab.instance()
        with lab.store.write() as connection:
            wants, named = [Want("A", 1, SPAN, rate=0.001)], [(999, 1, "A")]
            lab.store.claim(connection, mine, wants, named, JobPlaces(1))
        lab.submit()
        assert len(lab.claims(mine, wants, 1)) == 1

    def test_an_operator_sets_limits_and_programs_leave_them(self, lab: Lab) -> None:
        lab.declare("A", 1, retries=0)
        lab.jobs.operate.set_limits("A", {"cluster_limit": "3", "priority": "low"}, who="me")
        lab.declare("A", 2, retries=1)
        (row,) = lab.jobs.operate.type_list()
        assert (row.limits.cluster_limit, row.limits.retries) == (3, 1)
        assert lab.run("SELECT count(*) FROM job_slot") == 3
        by_type, by_itself = lab.submit_all([new(chosen=False), new()])
        assert (by_type.priority, by_itself.priority) == (LOW, DEFAULT)
        assert lab.field(by_type.id, "priority") == LOW
        lab.jobs.operate.set_limits(
            "A", {"cluster_limit": "none", "priority": "declared"}, who="me"
        )
        assert lab.run("SELECT count(*) FROM job_slot") == 0
        assert lab.submit_all([new(chosen=False)])[0].priority == DEFAULT
        lab.check()

    def test_a_type_is_tried_again_as_often_as_it_says(self, lab: Lab) -> None:
        job, mine = lab.submit(), lab.instance()
        lab.declare("A", None, retries=0)
        (run,) = lab.claim(mine)
        with lab.database.write() as connection:
            retries = {"A": lab.instances.limits(connection)["A"].retries}
            ended = Ended(run, RunEnd.RAISED, 0)
            lab.store.finish(connection, mine, [ended], retries=retries)
        assert lab.status(job) is JobStatus.FAILED
        late = lab.submit()
        lab.claim(mine)
        lab.overdue(late)
        assert lab.status(late) is JobStatus.TIMED_OUT
        lab.check()

    def test_a_run_whose_time_limit_was_raised_is_not_begun_again(self, lab: Lab) -> None:
        lab.declare("A", None, time_limit=SPAN / 1_000_000)
        owner = lab.instance("A")
        job = lab.submit("A", restartable=True)
        (run,) = lab.claim(owner)
        lab.jobs.operate.set_limits("A", {"time_limit": "86400"}, who="me")
        with lab.database.write() as connection:
            lab.database.run(
                connection, "UPDATE job SET started = started - 3 * :span, deadline = 1", span=SPAN
            )
            lab.instances.end_late(connection)
            assert not lab.instances.look(connection, owner).late
        assert lab.status(job) is JobStatus.RUNNING
        assert lab.finish(owner, run)
