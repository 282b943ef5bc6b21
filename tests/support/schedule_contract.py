"""What the SQL of schedules must do; run against SQLite and against a real PostgreSQL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from job_lab import Lab
from sqlalchemy import text
from waiting import eventually

from roq.cli.output import fields_of, print_json
from roq.errors import InvalidRequest, JobExists
from roq.jobs import schedules as module
from roq.jobs.rows import Body
from roq.jobs.schedules import JobSchedules, NewSchedule
from roq.jobs.states import HIGH, JobStatus, RunEnd
from roq.jobs.timetable import CATCH_UP_MAX, SECOND, planned
from roq.jobs.views import JobFilter, ScheduleRow

MINUTE = 60 * SECOND
TEST_US = 5 * SECOND
"""No test takes longer."""


def schedule(name: str = "s", kind: str = "A", **given: Any) -> NewSchedule:
    params = given.pop("params", None)
    return NewSchedule(name, kind, planned(**(given or {"every": 60})), True, params)


class ScheduleContract:
    """Each test has a `lab` without jobs."""

    @pytest.fixture(autouse=True)
    def types(self, lab: Lab) -> None:
        self.types_of(lab)

    @pytest.fixture(autouse=True)
    def _no_minute_begins(self, lab: Lab) -> None:
        """Schedules of each minute are not due once more in the middle of a test."""
        eventually(lambda: self.left(lab) > TEST_US)

    def left(self, lab: Lab) -> int:
        """µs until the next minute begins."""
        with lab.database.read() as connection:
            return MINUTE - lab.database.now(connection) % MINUTE

    def types_of(self, lab: Lab) -> None:
        lab.declare("A", None)
        lab.declare("B", None)

    def declare(self, lab: Lab, *new: NewSchedule, by: str = "program") -> list[str]:
        with lab.database.write() as connection:
            return lab.jobs.operate.schedules.declare(connection, new, by)

    def fire(self, lab: Lab) -> int:
        with lab.database.write() as connection:
            return lab.jobs.operate.schedules.fire_due(connection)

    def shown(self, lab: Lab, name: str = "s") -> ScheduleRow:
        return {row.name: row for row in lab.jobs.operate.schedules.look()}[name]

    def missed(self, lab: Lab, times: int, name: str = "s") -> None:
        """As if the last so many times of a schedule of every minute had been missed."""
        with lab.database.write() as connection:
            now = lab.database.now(connection)
            due = (now // MINUTE - times + 1) * MINUTE
            connection.execute(
                text("UPDATE job_schedule SET next = :due WHERE name = :name"),
                {"due": due, "name": name},
            )

    def fires(self, lab: Lab) -> bool:
        with lab.database.read() as connection:
            return lab.instances.look(connection, 0).fires

    def test_a_time_has_one_job_and_the_next_one_is_ahead(self, lab: Lab) -> None:
        body = Body("json", 3, b"[1]")
        new = schedule(every=60, priority=HIGH, items=7, params=body)
        assert self.declare(lab, new) == []
        assert (self.fires(lab), self.fire(lab)) == (False, 0)
        self.missed(lab, 1)
        assert self.fires(lab)
        assert (self.fire(lab), self.fire(lab)) == (1, 0)
        assert not self.fires(lab)
        row = self.shown(lab)
        (fired,) = row.jobs
        assert fired.status is JobStatus.CREATED
        assert (row.last, row.next) == (fired.time, fired.time + MINUTE)
        (run,) = lab.claim(lab.instance())
        assert (run.id, run.priority, run.items, run.tag) == (fired.job, HIGH, 7, "s")
        assert (run.params, run.restartable) == (body, True)
        lab.check()

    def test_a_job_knows_its_time(self, lab: Lab) -> None:
        self.declare(lab, schedule(every=60, catch_up="all", overlap="allow"))
        self.missed(lab, 3)
        self.fire(lab)
        lab.submit(tag="s")
        runs = sorted(lab.claim(lab.instance()), key=lambda run: run.id)
        told = [lab.jobs.operate.schedules.time_of(run) for run in runs]
        last = self.shown(lab).last
        assert last is not None
        assert told == [last - 2 * MINUTE, last - MINUTE, last, None]

    def test_one_without_params_has_jobs_without(self, lab: Lab) -> None:
        self.declare(lab, schedule())
        self.missed(lab, 1)
        self.fire(lab)
        assert lab.claim(lab.instance())[0].params is None

    def test_a_time_that_was_written_down_has_no_second_job(self, lab: Lab) -> None:
        self.declare(lab, schedule(every=60, overlap="allow"))
        self.missed(lab, 1)
        self.fire(lab)
        self.missed(lab, 1)  # as if `next` had been set back
        assert self.fire(lab) == 1
        assert lab.jobs.operate.counts()[0].number == 1
        lab.check()

    def test_what_was_missed_is_caught_up_with_as_it_says(self, lab: Lab) -> None:
        for policy, number in (("none", 1), ("last", 1), ("all", 5)):
            self.declare(lab, schedule(policy, every=60, catch_up=policy, overlap="allow"))
            self.missed(lab, 5, policy)
            assert self.fire(lab) == number
        for row in lab.jobs.operate.schedules.look():
            times = [fired.time for fired in row.jobs]
            assert times == [times[0] - n * MINUTE for n in range(len(times))]

    def test_more_than_a_hundred_are_not_caught_up_with(self, lab: Lab) -> None:
        self.declare(lab, schedule(every=60, catch_up="all", overlap="queue"))
        self.missed(lab, 50_000)
        assert self.fire(lab) == CATCH_UP_MAX
        (run,) = lab.claim(lab.instance(), 500)
        assert run.id == min(row.id for row in lab.jobs.operate.jobs(JobFilter()))
        lab.check()

    def test_overlap(self, lab: Lab) -> None:
        for policy in ("allow", "skip", "queue"):
            self.declare(lab, schedule(policy, every=60, overlap=policy, catch_up="all"))
            self.missed(lab, 3, policy)
        self.fire(lab)
        mine = lab.instance()
        runs = lab.claim(mine)
        assert sorted(run.tag for run in runs) == ["allow"] * 3 + ["queue", "skip"]
        skips = self.shown(lab, "skip")
        (only,) = skips.jobs
        assert skips.last == only.time + 2 * MINUTE, "the later ones have no job"
        queued = [each.job for each in self.shown(lab, "queue").jobs]
        for run in runs:
            lab.finish(mine, run)
        (second,) = lab.claim(mine)
        assert second.id == queued[1], "the oldest goes first"
        self.missed(lab, 1, "skip")
        with lab.database.write() as connection:
            connection.execute(text("DELETE FROM job_fired WHERE schedule = 'skip'"))
        self.fire(lab)
        assert len(self.shown(lab, "skip").jobs) == 1, "the earlier one has ended"
        lab.check()

    def test_a_failed_job_holds_up_nothing(self, lab: Lab) -> None:
        self.declare(lab, schedule())
        self.missed(lab, 2)
        self.fire(lab)
        mine = lab.instance()
        for _ in range(3):
            lab.let_due()
            lab.finish(mine, lab.claim(mine)[0], RunEnd.RAISED)
        lab.jobs.operate.schedules.fire("s", who="me")
        assert len(lab.claim(mine)) == 1

    def test_open_jobs_of_a_schedule_are_bounded(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "OPEN_MAX", 3)
        self.declare(lab, schedule(every=60, overlap="allow", catch_up="all"))
        self.missed(lab, 5)
        assert self.fire(lab) == 5
        assert lab.jobs.operate.counts()[0].number == 3
        row = self.shown(lab)
        assert (len(row.jobs), row.last) == (3, row.jobs[0].time + 2 * MINUTE)

    def test_many_are_fired_in_blocks(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "BLOCK", 10)
        names = [f"s{n}" for n in range(4)]
        for name in names:
            self.declare(lab, schedule(name, every=60, catch_up="all", overlap="allow"))
            self.missed(lab, 4, name)
        assert [self.fire(lab) for _ in range(3)] == [8, 8, 0]

    def test_paused_and_switched_off_ones_rest_and_catch_up(self, lab: Lab) -> None:
        operate = lab.jobs.operate
        lab.instance()
        self.declare(lab, schedule(every=60, catch_up="all", overlap="allow"))
        for rest, go_on, why in (
            (
                lambda: operate.schedules.switch("s", False, who="me"),
                lambda: operate.schedules.switch("s", True, who="me"),
                "paused",
            ),
            (
                lambda: operate.switch(False, who="me", type="A"),
                lambda: operate.switch(True, who="me", type="A"),
                "type A is switched off",
            ),
        ):
            with lab.database.write() as connection:
                connection.execute(text("DELETE FROM job_fired"))
            rest()
            self.missed(lab, 3)
            assert (self.fires(lab), self.fire(lab)) == (False, 0)
            assert why in self.shown(lab).why
            self.declare(lab, schedule(every=60, catch_up="all", overlap="allow"))
            assert self.fire(lab) == 0, "a start of a program does not let it go on"
            go_on()
            assert (self.fires(lab), self.fire(lab)) == (True, 3)
            assert self.shown(lab).why == ""

    def test_the_last_one_that_declares_it_is_right(self, lab: Lab) -> None:
        first = schedule(cron="0 3 * * *", zone="Europe/Warsaw")
        self.declare(lab, first, by="one")
        self.missed(lab, 1)
        assert self.declare(lab, first, by="one again") == []
        assert self.fires(lab), "what was missed is not forgotten at a start"
        assert self.shown(lab).by == "one again"
        other = schedule("s", "B", cron="0 3 * * *", zone="Europe/Warsaw", overlap="queue")
        assert self.declare(lab, other, by="two") == ["s"]
        assert self.fires(lab), "the times are the same"
        assert self.declare(lab, schedule("s", "B", cron="0 4 * * *"), by="two") == ["s"]
        assert not self.fires(lab), "other times begin now"
        row = self.shown(lab)
        assert (row.type, row.times, row.zone, row.by) == ("B", "0 4 * * *", "UTC", "two")
        assert [(each.who, each.action, each.subject) for each in lab.jobs.operate.audit()] == [
            ("two", "schedule set", "s")
        ] * 2

    def test_operators_make_fire_and_delete_them(self, lab: Lab) -> None:
        operate = lab.jobs.operate.schedules
        plan = planned(cron="0 0 1 1 *")
        operate.put("night ly", "A", plan, b'{"a": 1}', who="me")
        job = operate.fire("night ly", who="me")
        with pytest.raises(JobExists, match=f"job {job}"):
            operate.fire("night ly", who="me")
        (run,) = lab.claim(lab.instance())
        assert (run.id, run.params) == (job, Body("json", 1, b'{"a": 1}'))
        (fired,) = self.shown(lab, "night ly").jobs
        assert (fired.job, fired.status) == (job, JobStatus.RUNNING)
        operate.delete("night ly", who="me")
        assert operate.look() == []
        assert lab.status(job) is JobStatus.RUNNING, "its jobs stay"
        with lab.database.read() as connection:
            assert connection.execute(text("SELECT count(*) FROM job_fired")).scalar_one() == 0
        assert [each.action for each in lab.jobs.operate.audit()] == [
            "schedule delete", "schedule fire", "schedule set",
        ]  # fmt: skip
        lab.check()

    def test_one_that_allows_it_is_fired_as_often_as_one_likes(self, lab: Lab) -> None:
        self.declare(lab, schedule(every=60, overlap="allow"))
        jobs = [lab.jobs.operate.schedules.fire("s", who="me") for _ in range(3)]
        assert [each.job for each in self.shown(lab).jobs] == jobs[::-1]

    def test_what_there_is_not_cannot_be_operated(self, lab: Lab) -> None:
        operate = lab.jobs.operate.schedules
        for act in (
            lambda: operate.fire("none", who="me"),
            lambda: operate.delete("none", who="me"),
            lambda: operate.switch("none", True, who="me"),
        ):
            with pytest.raises(InvalidRequest, match="no schedule 'none'"):
                act()
        for name, kind, params, why in (
            ("s", "Gone", None, "no program has declared type 'Gone'"),
            ("", "A", None, "name of a schedule"),
            ("a\nb", "A", None, "cannot be printed"),
            ("s", "A", b"{", "no JSON"),
            ("s", "A", b"\xff", "no JSON"),
            ("s", "A", b"[" * 100_000, "no JSON"),
        ):
            with pytest.raises(InvalidRequest, match=why):
                operate.put(name, kind, planned(every=60), params, who="me")
        assert operate.look() == []
        assert lab.jobs.operate.audit() == []

    def test_there_are_not_too_many(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "SCHEDULES_MAX", 2)
        self.declare(lab, schedule("a"), schedule("b"))
        with pytest.raises(InvalidRequest, match="cannot be more"):
            self.declare(lab, schedule("c"))
        self.declare(lab, schedule("a"), schedule("b"))

    def test_a_row_that_somebody_has_spoilt_holds_up_no_other_one(self, lab: Lab) -> None:
        self.declare(lab, *(schedule(name) for name in "abc"))
        for name in "abc":
            self.missed(lab, 1, name)
        with lab.database.write() as connection:
            for name, spoilt in (("a", "{"), ("b", '{"plan": {"cron": "* * * * *", "zone": "x"}}')):
                connection.execute(
                    text("UPDATE job_schedule SET definition = :spoilt WHERE name = :name"),
                    {"spoilt": spoilt, "name": name},
                )
        assert self.fire(lab) == 1
        rows = {row.name: row for row in lab.jobs.operate.schedules.look()}
        assert "cannot be read" in rows["a"].why
        assert "time zone 'x'" in rows["b"].why
        with pytest.raises(InvalidRequest):
            lab.jobs.operate.schedules.fire("a", who="me")
        assert self.declare(lab, schedule("a")) == ["a"]
        self.missed(lab, 1, "a")
        assert self.fire(lab) == 1

    def spoilt(self, lab: Lab, column: str, value: object) -> None:
        """A row is spoilt: others fire, all that may be done to it is done, and it is made good."""
        operate = lab.jobs.operate
        lab.empty()
        self.types_of(lab)
        lab.instance()
        self.declare(lab, *(schedule(name, every=60, catch_up="all") for name in "abc"))
        for name in "abc":
            self.missed(lab, 2, name)
        with lab.database.write() as connection:
            changed = f"UPDATE job_schedule SET {column} = :value WHERE name = 'b'"  # noqa: S608
            lab.database.run(connection, changed, value=value)
        assert self.fire(lab) >= 4
        for on in (False, True):
            for name in "ac":
                operate.schedules.switch(name, on, who="me")
            self.fires(lab)
        rows = {row.name: row for row in operate.schedules.look()}
        assert [len(rows[name].jobs) for name in "ac"] == [1, 1], rows
        with lab.database.write() as connection:
            operate.schedules.tidy(connection)
        with suppress(InvalidRequest, JobExists):
            operate.schedules.fire("b", who="me")
        print_json([fields_of(row) for row in operate.schedules.look()])
        operate.stalls()
        self.declare(lab, schedule("b"))
        self.missed(lab, 1, "b")
        lab.jobs.operate.switch(True, who="me")
        assert self.fire(lab) == 1, "a program has made it good"
        lab.check()

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("definition", '{"plan": {"every": 60000000, "priority": 1000000000000}}'),
            ("definition", '{"plan": {"every": 60000000, "priority": 7}}'),
            ("definition", '{"plan": {"every": 60000000, "items": -1}}'),
            ("definition", '{"plan": {"every": 60000000, "items": 1%s}}' % ("0" * 18)),
            ("definition", '{"plan": {"every": 60000000, "items": 1%s}}' % ("0" * 30)),
            ("definition", '{"plan": {"every": -60000000}}'),
            ("definition", '{"plan": {"every": 60000000}, "at": -1%s}' % ("0" * 30)),
            ("definition", '{"plan": {"every": 60000000}, "at": -1%s}' % ("0" * 18)),
            ("definition", '{"plan": {"every": 1}}'),
            ("definition", '{"plan": {"every": 1%s}}' % ("0" * 30)),
            ("definition", '{"plan": {"cron": "* * *"}}'),
            ("definition", '{"plan": {"cron": "*/0 * * * *"}}'),
            ("definition", '{"plan": {"cron": "\\ud800 * * * *"}}'),
            ("definition", '{"plan": {"cron": "* * * * *", "zone": "../../etc/passwd"}}'),
            ("definition", '{"plan": {"cron": "* * * * *", "zone": "\\u0000"}}'),
            ("definition", '{"plan": {"cron": "* * * * *", "zone": ""}}'),
            ("definition", "null"),
            ("definition", ""),
            ("definition", "[" * 100_000),
            ("version", -1),
            ("codec", "pickle"),
            ("codec", ""),
            ("body", b"\xff"),
            ("body", None),
            ("restartable", 7),
        ],
    )
    def test_whatever_a_row_says_others_fire(self, lab: Lab, column: str, value: object) -> None:
        self.spoilt(lab, column, value)

    @pytest.mark.parametrize("value", [-(2**63), -1, 2**63 - 1])
    def test_whatever_a_row_says_of_its_next_time_others_fire(self, lab: Lab, value: int) -> None:
        self.spoilt(lab, "next", value)

    def test_old_times_are_forgotten_but_those_of_open_jobs(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "FIRED_KEPT", 2)
        self.declare(lab, schedule(every=60, catch_up="all", overlap="allow"), schedule("t"))
        self.missed(lab, 6)
        self.missed(lab, 1, "t")
        self.fire(lab)
        mine = lab.instance()
        runs = lab.claim(mine)
        for run in runs[1:]:
            lab.finish(mine, run)
        with lab.database.write() as connection:
            assert lab.jobs.operate.schedules.tidy(connection) == 3
            assert lab.jobs.operate.schedules.tidy(connection) == 0
        last = self.shown(lab).jobs
        assert [each.status for each in last] == [JobStatus.COMPLETE] * 2 + [JobStatus.RUNNING]
        assert len(self.shown(lab, "t").jobs) == 1

    def test_nobody_fires_when_no_instance_lives_and_that_is_told(self, lab: Lab) -> None:
        self.declare(lab, schedule())
        assert "no instance lives" in self.shown(lab).why
        lab.instance()
        assert self.shown(lab).why == ""
        lab.jobs.operate.switch(False, who="me")
        assert "all jobs are switched off" in self.shown(lab).why
        lab.jobs.operate.switch(True, who="me")
        with lab.database.write() as connection:
            connection.execute(text("UPDATE job_schedule SET next = NULL"))
        assert "its last time is over" in self.shown(lab).why
        assert not self.fires(lab)

    def test_what_is_not_committed_has_not_fired(self, lab: Lab) -> None:
        self.declare(lab, schedule())
        self.missed(lab, 1)
        with lab.database.write() as connection:
            assert JobSchedules(lab.store, lab.instances).fire_due(connection) == 1
            connection.rollback()
        assert lab.jobs.operate.counts() == []
        assert self.fire(lab) == 1
        assert lab.jobs.operate.counts()[0].number == 1
        lab.check()
