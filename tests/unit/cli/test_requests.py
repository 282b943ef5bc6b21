"""What `roq request` prints, and what it asks of a cluster."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

import roq
from roq.cli.commands import cli
from roq.client.request.views import RequestDescription, RequestRow

ID = "work/x1-7-3-1"
ROW = RequestRow(
    id=ID, state="failed", text="ValueError: no\nmore", instance="one", attempts=2,
    age_seconds=30.0, bytes=0,
)  # fmt: skip


class PaperPending:
    """Is accepted, and has a response."""

    id = ID
    state = "done"
    endpoint = roq.endpoint("billing.create", request=object, response=object)
    ends: Exception | None = None

    def __init__(self, value: object) -> None:
        self.value = value
        self.waited: list[float] = []
        self.cancelled = False
        self.accepted = SimpleNamespace(wait=self.waited.append)

    def result(self, timeout: float) -> object:
        self.waited.append(timeout)
        if self.ends is not None:
            raise self.ends
        return self.value

    def cancel(self) -> None:
        self.cancelled = True


class PaperCluster:
    """Notes what is requested, and answers with it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.delays: list[float | None] = []
        self.endpoints: list[roq.Endpoint[Any, Any]] = []
        self.pending = PaperPending({"total": 847})
        self.rows = [ROW]
        self.described = RequestDescription(
            **msgspec.structs.asdict(ROW), outcome="kept", since=1_000_000_000.0
        )
        self.missing: dict[str, str] = {}
        self.more = False

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def requester(self, queue: str, *, collect: bool) -> PaperCluster:
        self.asked.append((queue, collect))
        return self

    def request(
        self, endpoint: roq.Endpoint[Any, Any], value: object, *, delay: float | None
    ) -> PaperPending:
        self.delays.append(delay)
        self.asked.append((endpoint.name, endpoint.idempotent, value))
        self.endpoints.append(endpoint)
        return self.pending

    def response(self, endpoint: roq.Endpoint[Any, Any], request_id: str) -> PaperPending:
        self.asked.append((endpoint.name, request_id))
        self.endpoints.append(endpoint)
        return self.pending

    def retry_request(
        self, endpoint: roq.Endpoint[Any, Any], request_id: str, *, timeout: float
    ) -> None:
        self.asked.append((endpoint.service, request_id, timeout))

    def describe_request(
        self, endpoint: roq.Endpoint[Any, Any], request_id: str, *, timeout: float
    ) -> RequestDescription:
        self.asked.append((endpoint.service, request_id, timeout))
        return self.described

    def describe_service(self, queue: str, name: str, *, timeout: float) -> SimpleNamespace:
        self.asked.append((queue, name, timeout))
        return SimpleNamespace(requests=self.rows, missing=self.missing, more=self.more)


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    made = PaperCluster()
    monkeypatch.setattr(roq, "connect", lambda *_args, **_given: made)
    return made


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
        ("send", "work", "billing.create"), ("response", "billing.create", ID),
        ("cancel", "billing.create", ID),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("options", "data"), [((), b"\x81\xa1a\x01"), (("--codec", "json"), b'{"a":1}')]
)
def test_the_codec_is_that_of_the_endpoint(
    paper: PaperCluster, words: tuple[str, ...], options: tuple[str, ...], data: bytes
) -> None:
    run(*words, *options)
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
    assert "there are more than these" in result.stderr
    assert json.loads(run("list", "work", "billing", "--json").stdout)[0]["text"] == ROW.text
    paper.rows = []
    assert "no request that is open or kept" in run("list", "work", "billing").stderr


def test_a_response_is_fetched_by_the_id_of_its_request(paper: PaperCluster) -> None:
    assert json.loads(run("response", "billing.create", ID).stdout) == {"total": 847}
    assert paper.asked == [("billing.create", ID)]


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
    assert f"`roq request response billing.create {ID}` asks for it again" in result.stderr


def test_a_response_that_is_no_json_says_so(paper: PaperCluster) -> None:
    paper.pending.value = {(1, 2): 3}
    result = run("response", "billing.create", ID)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the response of billing.create cannot be said in JSON" in result.stderr


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
