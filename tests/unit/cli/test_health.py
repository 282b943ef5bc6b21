"""What `roq health` says, and the code it ends with."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from roq.cli import health
from roq.cli.commands import cli
from roq.client.operate.survey import Finding, Survey
from roq.protocol.reports import Check

Run = Callable[..., Result]

GCM = Finding(role="gcm", name="a:5000", address="a:5000", state="leading", ready=True)
HOST = Finding(role="host", name="b", address="b:5100", state="serving", ready=True)
GONE = Finding(
    role="host", name="c", address="c:5100", state="silent", ready=False, trouble="no answer"
)
FULL = Finding(
    role="host",
    name="d",
    address="d:5100",
    state="serving",
    ready=True,
    checks=(
        Check(name="leader", ok=True),
        Check(name="disk", ok=False, detail="12 MB are left", essential=False),
    ),
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def invoke(*arguments: str, surveys: list[Survey]) -> Result:
        left = list(surveys)

        def ask(*_: object) -> Survey:
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(health, "everybody", ask)
        monkeypatch.setattr(health, "one", ask)
        monkeypatch.setattr(health, "AGAIN_SECONDS", 0.001)
        return CliRunner().invoke(cli, ["health", *arguments])

    return invoke


def test_all_well_is_a_table_and_exit_code_0(run: Run) -> None:
    result = run(surveys=[Survey((GCM, HOST))])
    assert result.exit_code == 0
    assert [line.split()[:4] for line in result.stdout.splitlines()] == [
        ["ROLE", "NAME", "STATE", "READY"],
        ["gcm", "a:5000", "leading", "yes"],
        ["host", "b", "serving", "yes"],
    ]
    assert result.stderr == ""


def test_who_does_not_answer_is_named_and_the_exit_code_is_1(run: Run) -> None:
    result = run(surveys=[Survey((GCM, HOST, GONE))])
    assert result.exit_code == 1
    assert "no answer" in result.stdout
    assert "1 of 3 daemons are not ready" in result.stderr


def test_a_lost_host_of_which_nothing_is_missing_is_no_reason_for_1_unless_it_is_asked_for(
    run: Run,
) -> None:
    check = Check(
        name="hosts", ok=False, detail="c is lost, nothing is missing of it", essential=False
    )
    survey = Survey((replace(GCM, checks=(check,)), HOST))
    result = run(surveys=[survey])
    assert result.exit_code == 0
    assert "c is lost, nothing is missing of it" in result.stdout
    assert run("--hosts", "2", surveys=[survey]).exit_code == 1


def test_a_warning_is_shown_and_changes_no_exit_code(run: Run) -> None:
    result = run(surveys=[Survey((GCM, FULL))])
    assert result.exit_code == 0
    assert "disk: 12 MB are left" in result.stdout


def test_a_cluster_without_hosts_is_not_ready(run: Run) -> None:
    result = run(surveys=[Survey((GCM,))])
    assert result.exit_code == 1
    assert "0 of 1 host managers" in result.stderr
    assert run("--hosts", "0", surveys=[Survey((GCM,))]).exit_code == 0


def test_waiting_ends_when_all_is_well(run: Run) -> None:
    surveys = [Survey((), ("nobody leads",)), Survey((GCM,)), Survey((GCM, HOST))]
    result = run("--wait", "60", surveys=surveys)
    assert result.exit_code == 0
    assert "waiting: nobody leads" in result.stderr
    assert "waiting: 0 of 1 host managers" in result.stderr


def test_waiting_ends_when_the_time_is_up(run: Run) -> None:
    assert run("--wait", "0.01", surveys=[Survey((GCM, GONE))]).exit_code == 1


def test_one_daemon_shows_all_of_its_checks(run: Run) -> None:
    result = run("--at", "d:5100", surveys=[Survey((FULL,))])
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()[-2:]] == [
        ["leader", "yes"],
        ["disk", "warning"],
    ]


def test_json_has_every_check(run: Run) -> None:
    result = run("--json", surveys=[Survey((GCM, FULL, GONE))])
    document = json.loads(result.stdout)
    assert document["ready"] is False
    assert [each["ready"] for each in document["daemons"]] == [True, True, False]
    assert document["daemons"][1]["checks"][1]["detail"] == "12 MB are left"
    assert document["daemons"][2]["wrong"] == ["no answer"]


@pytest.mark.parametrize("address", ["a:x", "a:1,b:2", " "])
def test_what_is_no_single_address_is_wrong_usage(run: Run, address: str) -> None:
    assert run("--at", address, surveys=[Survey(())]).exit_code == 2


def test_an_address_at_which_nothing_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    done = CliRunner().invoke(cli, ["health", "--cluster", address, "--timeout", "0.2"])
    assert done.exit_code == 1
    assert f"nothing listens at {address}" in done.output
