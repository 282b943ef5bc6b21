"""What `roq response` prints, and what it asks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from click.testing import CliRunner, Result
from paper_requests import ID, ROW, PaperCluster

from roq.cli.commands import cli


@pytest.fixture
def paper(use: Callable[[PaperCluster], PaperCluster]) -> PaperCluster:
    return use(PaperCluster())


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["response", *words])


def test_a_response_is_fetched_by_the_id_of_its_request(paper: PaperCluster) -> None:
    assert json.loads(run("get", "billing.create", ID).stdout) == {"total": 847}
    assert paper.asked == [("billing.create", ID)]


def test_a_response_that_is_no_json_says_so(paper: PaperCluster) -> None:
    paper.pending.value = {(1, 2): 3}
    result = run("get", "billing.create", ID)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the response of billing.create cannot be said in JSON" in result.stderr


def test_only_what_has_ended_waits_to_be_fetched(paper: PaperCluster) -> None:
    done = msgspec.structs.replace(ROW, id="work/x1-7-3-2", state="done", text="", bytes=7)
    open_ = [
        msgspec.structs.replace(ROW, id=f"work/x1-7-4-{number}", state=state)
        for number, state in enumerate(("accepted", "retrying", "delayed", "offered", "running"))
    ]
    paper.rows = [ROW, *open_, done]
    paper.missing = {"x2": "it is away"}
    result = run("list", "work", "billing")
    lines = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [(line[0], line[1]) for line in lines] == [(ID, "failed"), ("work/x1-7-3-2", "done")]
    assert "without exchange x2: it is away" in result.stderr
    told = json.loads(run("list", "work", "billing", "--json").stdout)
    assert [each["id"] for each in told] == [ID, "work/x1-7-3-2"]
    paper.rows = open_
    assert "keeps no response" in run("list", "work", "billing").stderr


@pytest.mark.parametrize(
    ("more", "missing", "noted"),
    [(True, {}, "an exchange tells of 1,000 requests at most, and there are more"),
     (False, {"x2": "it is away"}, "without exchange x2: it is away")],
)  # fmt: skip
def test_what_could_not_be_looked_at_is_not_said_to_be_nothing(
    more: bool, missing: dict[str, str], noted: str, paper: PaperCluster
) -> None:
    paper.rows = []
    nothing = "Service billing of queue work keeps no response"
    result = run("list", "work", "billing")
    assert (result.stdout, result.stderr) == ("", f"{nothing}.\n")
    paper.more, paper.missing = more, missing
    result = run("list", "work", "billing")
    assert (result.stdout, result.stderr) == (
        "", f"{nothing} among those that could be looked at.\n{noted}\n",
    )  # fmt: skip
    result = run("list", "work", "billing", "--json")
    assert (result.stdout, result.stderr) == ("[]\n", f"{noted}\n")
