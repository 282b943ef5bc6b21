"""What `roq jobs schedules` and `roq jobs schedule` print and do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from job_lab import Lab

from roq.cli.commands import cli

NIGHTLY = ("set", "nightly", "--type", "A", "--cron", "0 3 * * *", "--zone", "Europe/Warsaw")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    made.declare("A", None)
    yield made
    made.close()


def roq_jobs(lab: Lab, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["jobs", *arguments], env={"ROQ_JOBS": lab.database.name})


def schedule(lab: Lab, *arguments: str) -> Result:
    return roq_jobs(lab, "schedule", *arguments)


def listed(lab: Lab) -> Any:
    return json.loads(roq_jobs(lab, "schedules", "--json").output)


def test_one_is_set_fired_paused_resumed_and_deleted(lab: Lab) -> None:
    lab.instance()
    assert "There is no schedule" in roq_jobs(lab, "schedules").output
    assert "nightly fires next at 20" in schedule(lab, *NIGHTLY).output
    table = roq_jobs(lab, "schedules").output
    assert all(word in table for word in ("nightly", "0 3 * * *", "Europe/Warsaw", " 03:00:00+0"))
    assert schedule(lab, "fire", "nightly").output == "job 1\n"
    assert " created " in roq_jobs(lab, "schedules").output
    again = schedule(lab, "fire", "nightly")
    assert (again.exit_code, "job 1 of schedule nightly" in again.output) == (1, True)
    assert schedule(lab, "pause", "nightly").output == "nightly: paused\n"
    (row,) = listed(lab)
    assert (row["on"], row["jobs"][0]["job"], row["catch_up"]) == (False, 1, "last")
    assert "paused" in roq_jobs(lab, "schedules").output
    assert schedule(lab, "resume", "nightly").output == "nightly: resumed\n"
    refused = schedule(lab, "delete", "nightly")
    assert (refused.exit_code, "add --yes" in refused.output) == (2, True)
    assert schedule(lab, "delete", "nightly", "--yes").output == "nightly: deleted\n"
    assert listed(lab) == []
    audit = roq_jobs(lab, "audit").output
    assert all(f"schedule {word}" in audit for word in ("set", "fire", "pause", "resume", "delete"))


def test_a_period_with_params(lab: Lab) -> None:
    told = schedule(
        lab, "set", "beat", "--type", "A", "--every", "10", "--params", '{"to": "é"}',
        "--overlap", "queue", "--catch-up", "none", "--priority", "high", "--json",
    )  # fmt: skip
    (row,) = listed(lab)
    assert json.loads(told.output) == {"ok": True, "next": row["next"]}
    assert (row["times"], row["overlap"], row["priority"]) == ("every 10 s", "queue", 10)
    assert "no instance lives" in row["why"]
    job = json.loads(schedule(lab, "fire", "beat", "--json").output)["job"]
    page = json.loads(roq_jobs(lab, "show", str(job), "--json").output)
    assert page["params"]["text"] == '{"to": "é"}'


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("set", "s", "--type", "A"), "either `cron` or `every`"),
        (("set", "s", "--type", "A", "--cron", "0 0 30 2 *"), "Bad day-of-month"),
        (("set", "s", "--type", "A", "--cron", "0 0 * * *", "--zone", "x"), "time zone 'x'"),
        (("set", "s", "--type", "A", "--every", "-1"), "number of seconds"),
        (("set", "s", "--type", "Gone", "--every", "5"), "no program has declared type 'Gone'"),
        (("set", "s", "--type", "A", "--every", "5", "--params", "{"), "no JSON"),
        (("fire", "none"), "no schedule 'none'"),
        (("pause", "none"), "no schedule 'none'"),
        (("delete", "none", "-y"), "no schedule 'none'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    lab: Lab, arguments: tuple[str, ...], why: str
) -> None:
    told = schedule(lab, *arguments)
    assert told.exit_code == 1
    assert why in told.output
    assert "Traceback" not in told.output
    assert listed(lab) == []
