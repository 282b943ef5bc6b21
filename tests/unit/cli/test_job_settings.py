"""`roq jobs set` and `roq jobs test`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from job_lab import Lab

from roq.cli.commands import cli


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def roq_jobs(lab: Lab, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["jobs", *arguments], env={"ROQ_JOBS": lab.database.name})


def test_limits_are_set_and_shown(lab: Lab) -> None:
    lab.declare("A", 5)
    assert "cluster limit" in roq_jobs(lab, "set", "A").output
    told = json.loads(
        roq_jobs(lab, "set", "A", "--rate", "100/50", "--threads", "3", "--json").output
    )
    assert (told["limits"]["rate"], told["limits"]["threads"]) == (2.0, 3)
    assert (told["limits"]["cluster_limit"], told["changes"]["cluster_limit"]) == (5, "declared")
    assert "2 (set)" in roq_jobs(lab, "set", "A", "--cluster-limit", "none").output
    assert "2 (set)" not in roq_jobs(lab, "set", "A", "--rate", "declared").output
    assert "none" not in roq_jobs(lab, "types").output
    assert "rate=100/50" in roq_jobs(lab, "audit").output


@pytest.mark.parametrize(
    "given", [["A", "--rate", "-1"], ["A", "--threads", "x"], ["Nope", "--retries", "1"], ["Nope"]]
)
def test_what_cannot_be_is_refused(lab: Lab, given: list[str]) -> None:
    lab.declare("A", None)
    answer = roq_jobs(lab, "set", *given)
    assert (answer.exit_code, "Traceback" in answer.output) == (1, False)
    assert lab.jobs.operate.audit() == []


def test_test_jobs_are_run_and_waited_for(lab: Lab) -> None:
    assert "roq jobs show" not in roq_jobs(lab, "test", "--no-wait").output
    lab.jobs.type("Other")(lambda job: None)
    lab.declare("roq.test", None)
    lab.jobs.operate.set_limits("roq.test", {"retries": "0"}, who="me")
    lab.jobs.start(threads=4)
    told = json.loads(roq_jobs(lab, "test", "--seconds", "0", "--number", "3", "--json").output)
    assert told == {"ok": True, "jobs": [2, 3, 4]}
    assert "1 of 1 test jobs: FAILED" in roq_jobs(lab, "test", "--seconds", "0", "--fail").output
