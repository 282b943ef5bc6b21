"""Pages of jobs: what a database says, and what is done to many jobs at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from paper_console import SCRIPT, PaperConsole

from roq.console.job_pages import JOB_PAGES
from roq.jobs.jobs import Jobs
from roq.jobs.states import JobStatus
from roq.jobs.views import Action, JobFilter

PATHS = [path.format(job=1) for path in JOB_PAGES]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Jobs]:
    """Three jobs of a type that nobody runs."""
    jobs = Jobs(str(tmp_path / "jobs.db"))

    @jobs.type(SCRIPT)
    def handle(_job: object, _params: str) -> None: ...

    for number in range(3):
        handle.submit(f"{SCRIPT}{number}", tag=SCRIPT, key=SCRIPT, priority="high")
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
    assert "3 jobs as of now" in console.get(page).text
    form = {name: console.field(page, name) for name in ("form", "stamp", "number", "last")}
    database.types[SCRIPT].submit("later")
    answer = console.post("/do/delete-jobs", form | {"status": "CREATED"})
    assert answer.status == 303
    (deed,) = console.console.audit.deeds()
    assert (deed.state, deed.result) == ("done", "3 of 3 jobs: delete is done")
    left = database.operate.select(Action.DELETE, JobFilter(statuses=(JobStatus.CREATED,)))
    assert left.number == 1
    assert database.operate.audit()[0].who == "operator at 127.0.0.1"


def test_jobs_are_switched_off_and_dispatched_otherwise(
    console: PaperConsole, database: Jobs
) -> None:
    word = {"form": console.form("/do/switch-jobs"), "stamp": ""}
    console.post("/do/switch-jobs", word | {"name": "", "to": "off"})
    console.post("/do/dispatch-jobs", word | {"mechanism": "queue"})
    assert (database.operate.settings().on, database.operate.settings().dispatch) == (
        False, "queue",
    )  # fmt: skip
    console.post("/do/switch-jobs", word | {"name": "nobody's", "to": "off"})
    assert console.console.audit.deeds()[0].state == "failed"
