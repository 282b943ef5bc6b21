"""What `roq jobs` prints and does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from job_lab import TROUBLE, Lab, new

from roq.cli.commands import cli
from roq.cli.jobs import loaded
from roq.errors import ConfigError
from roq.jobs.jobs import Jobs
from roq.jobs.rows import Body, Ended, Trouble
from roq.jobs.states import RunEnd


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def roq_jobs(lab: Lab, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["jobs", *arguments], env={"ROQ_JOBS": lab.database.name})


def failed(lab: Lab) -> int:
    job = lab.submit(restartable=False, params=Body("json", 1, b'"<b>"'), tag="t", items=3)
    mine = lab.instance()
    lab.finish(mine, lab.claim(mine)[0], RunEnd.RAISED)
    return job


def test_tables_for_people(lab: Lab) -> None:
    job = failed(lab)
    lab.submit(due=2**60)
    lab.declare("A", 2)
    assert "FAILED" in roq_jobs(lab, "list").output.upper()
    assert "failed" in roq_jobs(lab, "counts").output
    shown = roq_jobs(lab, "show", str(job)).output
    assert '"<b>"' in shown
    assert TROUBLE.text in shown
    assert TROUBLE.fingerprint in roq_jobs(lab, "failures").output
    assert "live" in roq_jobs(lab, "instances").output
    assert "600" in roq_jobs(lab, "types").output
    assert "No job runs" in roq_jobs(lab, "running").output + roq_jobs(lab, "running").stderr


@pytest.mark.parametrize(
    "command", ["list", "counts", "running", "failures", "instances", "types", "audit", "stalls"]
)
def test_json_for_programs(lab: Lab, command: str) -> None:
    failed(lab)
    assert isinstance(json.loads(roq_jobs(lab, command, "--json").output), list)


def test_one_job_as_json(lab: Lab) -> None:
    page = json.loads(roq_jobs(lab, "show", str(failed(lab)), "--json").output)
    assert (page["job"]["status"], page["params"]["text"]) == ("FAILED", '"<b>"')
    assert page["actions"] == ["restart", "delete"]


def test_many_are_counted_before_anything_is_done(lab: Lab) -> None:
    lab.submit_all([new() for _ in range(3)])
    asked = roq_jobs(lab, "delete", "--type", "A")
    assert (asked.exit_code, "3 jobs fit" in asked.output) == (2, True)
    told = json.loads(roq_jobs(lab, "delete", "--type", "A", "--yes", "--json").output)
    assert told == {"ok": True, "number": 3}
    assert "No job fits" in roq_jobs(lab, "delete", "--yes", "--all").output
    assert "delete" in roq_jobs(lab, "audit").output


@pytest.mark.parametrize("action", ["delete", "restart", "interrupt"])
def test_who_names_no_job_and_is_not_asked_does_not_mean_all(lab: Lab, action: str) -> None:
    lab.submit_all([new() for _ in range(3)])
    refused = roq_jobs(lab, action, "--yes")
    assert (refused.exit_code, "no job is named" in refused.output) == (2, True)
    assert "3 jobs fit" in roq_jobs(lab, "delete").output, "who is asked hears how many there are"
    assert roq_jobs(lab, action, "--yes", "--all", "--type", "A").exit_code == 2
    assert roq_jobs(lab, action, "--yes", "--all").exit_code == 0
    assert roq_jobs(lab, "requeue", "--yes").exit_code == 0, "that is always safe"


def test_a_filter_by_everything(lab: Lab) -> None:
    job = failed(lab)
    by = ["--type", "A", "--status", "failed", "--priority", "default", "--tag", "t"]
    listed = roq_jobs(lab, "list", str(job), *by, "--failure", TROUBLE.fingerprint, "--json")
    assert [row["id"] for row in json.loads(listed.output)] == [job]
    assert roq_jobs(lab, "restart", *by, "-y").output == "1 of 1 jobs: restart\n"


def test_what_jobs_say_moves_no_cursor(lab: Lab) -> None:
    hostile = "\x1b[2J\u202e\x9b"
    job = lab.submit(restartable=False, params=Body("json", 1, hostile.encode()))
    mine = lab.instance()
    run = lab.claim(mine)[0]
    trouble = Trouble(hostile, trace=f"Traceback\n{hostile}\nend", fingerprint="f")
    with lab.database.write() as connection:
        ended = Ended(run, RunEnd.RAISED, 0, trouble=trouble)
        lab.store.finish(connection, mine, [ended], hostile)
    for command in (["show", str(job)], ["list"], ["failures"], ["instances"]):
        shown = roq_jobs(lab, *command).output
        assert shown.replace("\n", "").isprintable(), command
    assert "\nend\n" in roq_jobs(lab, "show", str(job)).output


def test_switches(lab: Lab) -> None:
    lab.declare("A", None)
    assert roq_jobs(lab, "off", "A").output == "A: off\n"
    assert roq_jobs(lab, "on").output == "All jobs: on\n"
    refused = roq_jobs(lab, "off", "B")
    assert refused.exit_code == 1


def test_a_file_that_is_no_database_is_said_without_a_word_of_clusters(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import roq\n" * 100)
    done = CliRunner().invoke(cli, ["jobs", "counts", "--database", str(tmp_path / "shop.py")])
    assert (done.exit_code, "not a database" in done.output) == (1, True)
    assert "cluster" not in done.output


def test_a_program_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="MODULE:NAME"):
        loaded("no.such.module:jobs")
    with pytest.raises(ConfigError, match="but function"):
        loaded("json:dumps")


def test_a_program_for_asyncio_runs_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aio_program.py").write_text("import roq.aio\njobs = roq.aio.Jobs('never.db')\n")
    assert loaded("aio_program:jobs").cluster is None


def test_batches_are_listed(tmp_path: Path) -> None:
    url = str(tmp_path / "jobs.db")
    with Jobs(url) as jobs:
        kind = jobs.type("Part")(lambda job: None)
        batch = jobs.batch("import 7")
        batch.add(kind)
        last = batch.then(kind)
    listed = CliRunner().invoke(cli, ["jobs", "batches", "--database", url, "--json"])
    (row,) = json.loads(listed.output)
    assert (row["name"], row["number"], row["complete"], row["job"]) == ("import 7", 1, 0, last.id)
    shown = CliRunner().invoke(cli, ["jobs", "show", str(last.id), "--database", url])
    assert "import 7: 0 of 1 complete" in shown.output
    assert "import 7" in CliRunner().invoke(cli, ["jobs", "batches", "--database", url]).output
