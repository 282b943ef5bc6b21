"""What `roq request` prints, and what it asks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from click.testing import CliRunner, Result
from paper_requests import ID, ROW, PaperCluster

import roq
from roq.cli.commands import cli


@pytest.fixture
def paper(use: Callable[[PaperCluster], PaperCluster]) -> PaperCluster:
    return use(PaperCluster())


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["request", *words])


def test_a_request_is_made_of_json_and_so_is_its_response(paper: PaperCluster) -> None:
    result = run("send", "work", "billing.create", '{"order": 7}', "--wait", "5")
    assert json.loads(result.stdout) == {"total": 847}
    assert f"Request {ID} is accepted" in result.stderr
    assert paper.asked == [("work", True), ("billing.create", False, {"order": 7})]
    assert paper.pending.waited == [10.0, 5.0]


def test_a_request_that_is_not_waited_for_tells_its_id_alone(paper: PaperCluster) -> None:
    result = run("send", "work", "billing.create", "--wait", "0", "--idempotent")
    assert result.stdout.split() == [ID]
    assert paper.asked == [("work", False), ("billing.create", True, None)]


@pytest.mark.parametrize(
    "words",
    [
        ("request", "send", "work", "billing.create"), ("response", "get", "billing.create", ID),
        ("request", "cancel", "billing.create", ID),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("options", "data"), [((), b"\x81\xa1a\x01"), (("--codec", "json"), b'{"a":1}')]
)
def test_the_codec_is_that_of_the_endpoint(
    paper: PaperCluster, words: tuple[str, ...], options: tuple[str, ...], data: bytes
) -> None:
    CliRunner().invoke(cli, [*words, *options])
    (endpoint,) = paper.endpoints
    assert endpoint.encode_request({"a": 1}) == data
    assert endpoint.decode_response(data) == {"a": 1}


@pytest.mark.usefixtures("paper")
def test_what_is_no_json_and_no_endpoint_is_refused() -> None:
    for words, why in (
        (("billing.create", "{"), "is no JSON"),
        (("billing.create", "[" * 100_000), "is no JSON"),
        (("billing", "1"), "billing.billing"),
    ):
        result = run("send", "work", *words)
        assert result.exit_code != 0
        assert result.stdout == ""
        assert why in result.stderr


def test_requests_are_listed_each_on_a_line(paper: PaperCluster) -> None:
    paper.missing, paper.more = {"x2": "it is away"}, True
    result = run("list", "work", "billing")
    assert result.stdout.splitlines()[1].split() == [
        ID, "failed", "30", "s", "2", "one", "0", "B", "ValueError:", "no",
    ]  # fmt: skip
    assert "without exchange x2: it is away" in result.stderr
    assert "1,000 requests at most, and there are more" in result.stderr
    listed = run("list", "work", "billing", "--json")
    assert json.loads(listed.stdout)[0]["text"] == ROW.text
    assert listed.stderr == result.stderr
    paper.rows = []
    nothing = "no request that is open or kept"
    assert f"{nothing} among those that" in run("list", "work", "billing").stderr
    paper.missing, paper.more = {}, False
    assert f"{nothing}.\n" in run("list", "work", "billing").stderr


def test_a_cancelled_request_says_how_it_has_ended(paper: PaperCluster) -> None:
    paper.pending.ends = roq.RequestCancelled("it was cancelled")
    result = run("cancel", "billing.create", ID)
    assert (paper.pending.cancelled, result.stdout) == (True, f"request {ID}: cancelled\n")
    paper.pending.ends = roq.RequestFailed("ValueError: no")
    assert run("cancel", "billing.create", ID).stdout == f"request {ID}: failed\nValueError: no\n"
    told = json.loads(run("cancel", "billing.create", ID, "--json").stdout)
    assert told == {"ok": True, "id": ID, "state": "failed", "text": "ValueError: no"}
    paper.pending.ends = None
    lines = run("cancel", "billing.create", ID).stdout.splitlines()
    assert (lines[0], json.loads(lines[1])) == (f"request {ID}: done", {"total": 847})
    told = json.loads(run("cancel", "billing.create", ID, "--json").stdout)
    assert told == {"ok": True, "id": ID, "state": "done", "response": {"total": 847}}


@pytest.mark.parametrize(
    "error",
    [
        roq.NeverRequested("no such request"), roq.ResponseLost("its exchange is gone"),
        roq.ResponseRetrieved("fetched already"), roq.Unavailable("no response in time"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_is_not_known_cannot_be_cancelled(
    paper: PaperCluster, error: roq.RoQError, words: tuple[str, ...]
) -> None:
    paper.pending.ends = error
    result = run("cancel", "billing.create", ID, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(error) in result.stderr


def test_a_response_that_does_not_come_says_how_to_ask_again(paper: PaperCluster) -> None:
    paper.pending.ends = roq.Unavailable("no response of billing.create within 5 s")
    result = run("send", "work", "billing.create", "--wait", "5")
    assert result.exit_code == 1
    assert f"`roq response get billing.create {ID}` asks for it again" in result.stderr


def test_a_request_may_have_a_priority_and_headers(paper: PaperCluster) -> None:
    send = "send", "work", "billing.create", "--wait", "0"
    assert run(*send, "--priority", "9", "--header", "a=b=c", "--header", "by=").exit_code == 0
    assert run(*send).exit_code == 0
    assert paper.beside == [({"a": "b=c", "by": ""}, 9), ({}, 0)]
    for wrong, why in (
        (("--priority", "10"), "0<=x<=9"), (("--header", "a"), "not of the form NAME=TEXT"),
    ):  # fmt: skip
        refused = run(*send, *wrong)
        assert (refused.exit_code, why in refused.stderr) == (2, True)


def test_a_request_may_be_delayed(paper: PaperCluster) -> None:
    run("send", "work", "billing.create", "--wait", "0", "--delay", "3600")
    run("send", "work", "billing.create", "--wait", "0")
    assert paper.delays == [3600.0, None]
    assert run("send", "work", "billing.create", "--delay", "-1").exit_code == 2


def test_a_request_that_has_ended_runs_again(paper: PaperCluster) -> None:
    assert run("retry", "billing.create", ID).stdout == f"request {ID} runs again\n"
    assert json.loads(run("retry", "billing.create", ID, "--json").stdout) == {"ok": True, "id": ID}
    assert paper.asked == [("billing", ID, 10.0)] * 2


def test_a_request_is_shown(paper: PaperCluster) -> None:
    lines = run("show", "billing.create", ID).stdout.splitlines()
    shown = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1].strip() for line in lines[:8]}
    assert (shown["request"], shown["state"], shown["outcome"]) == (ID, "failed", "kept")
    assert (shown["attempts"], shown["instance"]) == ("2", "one")
    assert "2001-09-" in shown["since"]
    assert shown["since"].endswith("30 s ago")
    assert shown["why"] == "ValueError: no"
    assert paper.asked == [("billing", ID, 10.0)]
    told = json.loads(run("show", "billing.create", ID, "--json").stdout)
    assert told == msgspec.to_builtins(paper.described)
    paper.described = msgspec.structs.replace(paper.described, since=None)
    assert "ago" not in run("show", "billing.create", ID).stdout
