"""Pages of jobs: what a database says, and what is done to many jobs at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from commands import until
from paper_console import SCRIPT, PaperConsole

import roq
from roq.console.job_pages import JOB_PAGES
from roq.console.settings import MetricLink
from roq.jobs.instances import TypeFacts
from roq.jobs.jobs import Jobs
from roq.jobs.limits import TypeLimits
from roq.jobs.operate import JobOperations, Selection
from roq.jobs.room import JobPlaces
from roq.jobs.rows import Want
from roq.jobs.states import JobStatus
from roq.jobs.timetable import planned
from roq.jobs.views import Action, JobFilter, JobList

PATHS = [path.format(job=1) for path in JOB_PAGES]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Jobs]:
    """Three jobs of a type that nobody runs, and a schedule."""
    jobs = Jobs(str(tmp_path / "jobs.db"))

    @jobs.type(SCRIPT)
    def handle(_job: object, _params: str) -> None: ...

    for number in range(3):
        handle.submit(f"{SCRIPT}{number}", tag=SCRIPT, key=SCRIPT, priority="high")
    with jobs.database.write() as connection:
        jobs.instances.declare(connection, [handle.facts])
    jobs.operate.schedules.put(SCRIPT, SCRIPT, planned(every=60), None, who=SCRIPT)
    jobs.operate.schedules.fire(SCRIPT, who=SCRIPT)
    yield jobs
    jobs.close()


@pytest.fixture
def console(database: Jobs) -> Iterator[PaperConsole]:
    with PaperConsole(jobs=database.database.url.render_as_string()) as found:
        yield found


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_shown_and_what_jobs_say_is_text(console: PaperConsole, path: str) -> None:
    answer = console.get(path)
    assert answer.status == 200
    assert 'href="/jobs"' in answer.text
    assert SCRIPT not in answer.text
    assert "style=" not in answer.text


def test_a_job_says_why_it_does_not_run(console: PaperConsole) -> None:
    text = console.get("/jobs/1").text
    assert "It does not run:" in text
    assert "&lt;script&gt;" in text
    assert console.get("/jobs/999").status == 404
    assert console.get("/jobs/x").status == 400
    assert console.get("/jobs/list?status=GONE").status == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/99999999999999999999", 400),
        ("/jobs/" + "9" * 5000, 400),
        ("/jobs/%D9%A3", 400),
        ("/jobs/list?below=99999999999999999999", 400),
        ("/jobs/list?below=x", 400),
        ("/jobs/list?below=-1", 400),
        ("/jobs/list?priority=999999999999999999", 200),
        ("/jobs/list?tag=%00", 200),
        ("/jobs/list?key=%ed%a0%80", 200),
        ("/do/delete-jobs?tag=%00", 200),
        ("/do/delete-jobs?id=99999999999999999999", 400),
    ],
)
def test_nothing_in_an_address_is_a_fault(console: PaperConsole, path: str, status: int) -> None:
    assert console.get(path).status == status


def test_instances_tell_their_shares_and_what_is_lent(
    console: PaperConsole, database: Jobs
) -> None:
    with database.database.write() as connection:
        limit = TypeFacts("Limited", 1, True, TypeLimits(cluster_limit=4))
        database.instances.declare(connection, [limit])
        for name in ("one", "two"):
            owner = database.instances.register(connection, name, 1, 8, ["Limited"])
        connection.exec_driver_sql("UPDATE job_slot SET owner = ? WHERE number < 3", (owner,))
    text = console.get("/jobs/instances").text
    assert "<div>Limited 0 of 2</div>" in text
    assert "<div>Limited 3 of 2 <small>1 lent</small></div>" in text


@pytest.mark.parametrize(("path", "what"), [("/jobs", "page"), ("/jobs/instances", "true")])
def test_the_navigation_says_where_one_is(console: PaperConsole, path: str, what: str) -> None:
    navigation = console.get(path).text.partition("</nav>")[0]
    assert re.findall('<a href="([^"]*)" aria-current="([^"]*)">', navigation) == [("/jobs", what)]


def test_without_a_database_there_are_no_pages_of_jobs() -> None:
    with PaperConsole() as console:
        assert console.get("/jobs").status == 404
        assert 'href="/jobs"' not in console.get("/").text
        assert console.get("/do/delete-jobs").status == 404


def test_who_may_only_look_is_offered_nothing(database: Jobs) -> None:
    with PaperConsole(jobs=database.database.url.render_as_string(), read_only=True) as console:
        for path in PATHS:
            assert "/do/" not in console.get(path).text
        assert console.get("/do/delete-jobs").status == 403


def test_never_more_are_deleted_than_were_counted(console: PaperConsole, database: Jobs) -> None:
    page = "/do/delete-jobs?status=CREATED"
    assert "4 jobs as of now" in console.get(page).text
    form = {name: console.field(page, name) for name in ("form", "stamp", "number", "last")}
    database.types[SCRIPT].submit("later")
    answer = console.post("/do/delete-jobs", form | {"status": "CREATED"})
    assert answer.status == 303
    (deed,) = console.console.audit.deeds()
    assert (deed.state, deed.result) == ("done", "4 of 4 jobs: delete is done")
    left = database.operate.select(Action.DELETE, JobFilter(statuses=(JobStatus.CREATED,)))
    assert left.number == 1
    assert database.operate.audit()[0].who == "operator at 127.0.0.1"


def test_running_jobs_are_interrupted_and_waiting_ones_sent_again(
    console: PaperConsole, database: Jobs
) -> None:
    with database.database.write() as connection:
        owner = database.instances.register(connection, "mine", 1, 1, [SCRIPT])
        want = Want(SCRIPT, 1, 60_000_000)
        ready = database.store.candidates(connection, [want], 1)
        (run,) = database.store.claim(connection, owner, [want], ready, JobPlaces(1)).runs
        connection.exec_driver_sql("UPDATE job SET dispatched = 5")
    for verb, number in (("interrupt", 1), ("requeue", 1)):
        page = f"/do/{verb}-jobs"
        form = {name: console.field(page, name) for name in ("form", "stamp", "number", "last")}
        assert console.post(page, form).status == 303
        deed = console.console.audit.deeds()[0]
        told = f"{number} of {number} jobs: {verb} is done"
        assert (deed.state, deed.result) == ("done", told)
    with database.database.read() as connection:
        found = connection.exec_driver_sql("SELECT id, stop, dispatched FROM job").all()
    assert [row.id for row in found if row.stop] == [run.id]
    assert len([row for row in found if row.dispatched == 0]) == 1, (
        "two wait for the key of the run"
    )


def test_the_words_of_a_form_and_its_number_are_one_count(
    console: PaperConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Selection] = []
    select = JobOperations.select

    def note(operate: JobOperations, action: Action, which: JobFilter) -> Selection:
        counted.append(select(operate, action, which))
        return counted[-1]

    monkeypatch.setattr(JobOperations, "select", note)
    text = console.get("/do/delete-jobs").text
    (selection,) = counted
    assert f"{selection.number} jobs as of now" in text
    assert f'name="number" value="{selection.number}"' in text


def test_a_list_that_goes_on_behind_its_reach_offers_that(
    console: PaperConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobOperations, "page", lambda *_, **__: JobList(jobs=[], below=17))
    text = console.get("/jobs/list?type=Rare").text
    assert "No job like that from 17 on." in text
    assert "/jobs/list?type=Rare&amp;below=17" in text
    assert "/do/restart-jobs" in text


def test_jobs_are_switched_off_and_dispatched_otherwise(
    console: PaperConsole, database: Jobs
) -> None:
    word = {"form": console.form("/do/switch-jobs"), "stamp": ""}
    for odd in ({"to": "sideways"}, {}):
        console.post("/do/switch-jobs", word | odd)
        assert console.console.audit.deeds()[0].state == "failed"
    assert database.operate.settings().on
    console.post("/do/switch-jobs", word | {"name": "", "to": "off"})
    console.post("/do/dispatch-jobs", word | {"mechanism": "queue"})
    assert (database.operate.settings().on, database.operate.settings().dispatch) == (
        False, "queue",
    )  # fmt: skip
    console.post("/do/switch-jobs", word | {"name": "nobody's", "to": "off"})
    assert console.console.audit.deeds()[0].state == "failed"


def test_a_schedule_is_fired_paused_and_resumed_by_forms(
    console: PaperConsole, database: Jobs
) -> None:
    page = console.get("/jobs/schedules").text
    assert "every 60 s" in page
    assert "no instance lives" in page
    assert "/do/resume-schedule" not in page

    def act(action: str, **fields: str) -> str:
        place = {"name": SCRIPT}
        form = {"form": console.form(f"/do/{action}?{urlencode(place)}"), "stamp": ""}
        answer = console.post(f"/do/{action}", form | place | fields)
        assert answer.status == 303
        return console.get(answer.header("location")).text

    def shown(text: str) -> bool:
        return until(lambda: text in console.get("/jobs/schedules").text, 10.0)

    assert "done" in act("pause-schedule")
    assert shown("/do/resume-schedule")
    assert not database.operate.schedules.look()[0].on
    act("resume-schedule")
    assert database.operate.schedules.look()[0].on
    assert "job 4 of schedule" in act("fire-schedule"), "it has one at a time"
    delete = database.operate.select(Action.DELETE, JobFilter(ids=(4,)))
    database.operate.act(delete, who="me")
    assert "job 5 is submitted" in act("fire-schedule")
    assert shown('href="/jobs/5"')
    done = [row.action for row in database.operate.audit() if row.who.startswith("operator at")]
    assert done == ["schedule fire", "schedule resume", "schedule pause"]


def test_schedules_that_never_fired_and_whose_jobs_are_gone_are_shown(
    console: PaperConsole, database: Jobs
) -> None:
    plan = planned(cron="0 3 * * *", zone="Europe/Warsaw")
    database.operate.schedules.put("new", SCRIPT, plan, None, who="me")
    delete = database.operate.select(Action.DELETE, JobFilter(ids=(4,)))
    database.operate.act(delete, who="me")
    page = console.get("/jobs/schedules").text
    assert "Europe/Warsaw" in page
    assert "UTC, deleted" in page


def test_without_schedules_it_says_how_to_make_one(console: PaperConsole, database: Jobs) -> None:
    database.operate.schedules.delete(SCRIPT, who="me")
    assert "There is no schedule" in console.get("/jobs/schedules").text


def test_a_schedule_is_changed_by_no_form_of_others(console: PaperConsole, database: Jobs) -> None:
    for action in ("pause-schedule", "resume-schedule", "fire-schedule"):
        answer = console.post(f"/do/{action}", {"name": SCRIPT, "form": "", "stamp": ""})
        assert answer.status == 403
        assert console.get(f"/do/{action}").status == 400
    assert len(database.operate.schedules.look()[0].jobs) == 1
    form = {"form": console.form("/do/switch-jobs"), "stamp": "", "name": "none"}
    console.post("/do/fire-schedule", form)
    assert console.console.audit.deeds()[0].state == "failed"


def test_limits_are_set_and_a_stale_form_is_refused(console: PaperConsole, database: Jobs) -> None:
    page = f"/do/set-limits?{urlencode({'name': SCRIPT})}"
    assert SCRIPT not in console.get(page).text
    form = {name: console.field(page, name) for name in ("form", "stamp", "before")}
    form |= {"name": SCRIPT, "rate": "100/50", "cluster_limit": "none", "priority": "low"}
    assert console.post("/do/set-limits", form).status == 303
    (row,) = database.operate.type_list()
    assert (row.limits.rate, row.limits.cluster_limit) == (2.0, None)
    assert (row.changes["cluster_limit"], row.changes["threads"]) == ("none", "declared")
    console.post("/do/set-limits", form | {"rate": "9"})
    assert database.operate.type_list() == [row]
    assert "have changed since" in console.console.audit.deeds()[0].result


def test_test_jobs_are_submitted(console: PaperConsole, database: Jobs) -> None:
    form = {name: console.field("/do/test-jobs", name) for name in ("form", "stamp")}
    form |= {"seconds": "0.5", "end": "fails", "number": "2", "priority": "high"}
    assert console.post("/do/test-jobs", form).status == 303
    jobs = database.operate.jobs(JobFilter(types=("roq.test",)))
    assert [(job.items, job.tag, job.priority) for job in jobs] == [(5, "test", 10)] * 2
    for wrong in ({"seconds": "x"}, {"number": "0"}, {"seconds": "-1"}):
        console.post("/do/test-jobs", form | wrong)
        assert console.console.audit.deeds()[0].state == "failed"
    assert len(database.operate.jobs(JobFilter(types=("roq.test",)))) == 2


def test_metric_links_are_of_a_type_or_hidden(database: Jobs) -> None:
    url = database.database.url.render_as_string()
    link = MetricLink.of("Grafana=https://grafana.example/?t={type}")
    for links in ((), (link,)):
        with PaperConsole(jobs=url, links=links) as console:
            assert ("grafana.example/?t=%3Cscript" in console.get("/jobs").text) == bool(links)


def test_jobs_that_nobody_runs_are_on_the_overview(console: PaperConsole, database: Jobs) -> None:
    assert "no living instance runs them" in console.get("/").text
    database.operate.switch(False, who="me", type=SCRIPT)
    stall, schedule = database.operate.stalls()
    assert (stall.reason, stall.number) == ("off", 4)
    assert schedule.reason == "schedule"
    assert "does not fire" in console.get("/").text
    assert "type is switched off" in stall.why


def test_a_database_that_is_away_is_on_the_overview(
    console: PaperConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalls(_operate: object) -> object:
        raise roq.Unavailable("the database of jobs cannot be reached")

    monkeypatch.setattr(JobOperations, "stalls", stalls)
    assert "the database of jobs cannot be reached" in console.get("/").text


def test_a_batch_is_shown_with_what_it_lacks(database: Jobs) -> None:
    kind = database.types[SCRIPT]
    batch = database.batch(SCRIPT)
    for number in range(4):
        batch.add(kind, str(number))
    last = batch.then(kind, "last")
    with database.database.write() as connection:
        change = "UPDATE job SET status = ?, waits = ? WHERE id = ?"
        done, failed, *_ = batch.handles
        for values in (("COMPLETE", 0, done.id), ("FAILED", 0, failed.id), ("CREATED", 3, last.id)):
            connection.exec_driver_sql(change, values)
    with PaperConsole(jobs=database.database.url.render_as_string()) as console:
        listed, shown = console.get("/jobs/batches").text, console.get(f"/jobs/{last.id}").text
    assert "25 %" in listed
    assert f'<a class="bad" href="/jobs/{last.id}">1</a>' in listed
    assert "Restart failed" in listed
    assert "1<small> of 4</small>" in shown
    assert "1 failed" in shown
    assert SCRIPT not in listed + shown
