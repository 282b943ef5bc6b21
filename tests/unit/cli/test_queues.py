"""What `roq queue` makes of its arguments."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

import roq
from roq.cli import queues
from roq.cli.client import ANSWER_SECONDS, CHANGE_SECONDS
from roq.cli.queues import REQUESTS_BYTES, parse_limits, queue
from roq.client.admin.board import QueueView
from roq.client.admin.views import Listing, ScalingRules, rules_document
from roq.client.operate import survey
from roq.client.operate.survey import Finding, Survey
from roq.model import Limits
from roq.protocol.public_answers import QueueDescription, QueueSummary
from roq.protocol.reports import RETENTION, Check
from roq.timing import COMMAND_SECONDS
from tests.support.described import described

VIEW = QueueView(
    queue="q", limit=0.0, publisher_count=0, subscriber_count=0, waiting=0, messages_in=0.0,
    bytes_in=0.0, messages_out=0.0, bytes_out=0.0, latency_ms=0.0, lost=0, moves=0, exchanges=[],
    publishers=[], subscribers=[], events=[],
)  # fmt: skip


def test_limits_are_names_and_numbers() -> None:
    assert parse_limits(("ring_bytes=1000000", "topics=5", "exchanges_max=1")) == {
        "ring_bytes": 1_000_000,
        "topics": 5,
        "exchanges_max": 1,
    }


def test_an_unknown_limit_names_the_known_ones() -> None:
    with pytest.raises(click.BadParameter, match="ring_bytes"):
        parse_limits(("ring=1",))


@pytest.mark.parametrize(
    "text", ["ring_bytes", "ring_bytes=", "ring_bytes=-1", "topics=1e3", "topics=٣"]
)
def test_what_is_no_whole_number_is_no_limit(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not NAME=NUMBER, with a whole number"):
        parse_limits((text,))


class PaperCluster:
    """Notes how long it is given."""

    def __init__(self) -> None:
        self.given: list[float] = []

    def connect(self, _address: str, *, timeout: float) -> PaperCluster:
        self.given.append(timeout)
        return self

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def create_queue(self, _name: str, *, timeout: float, **_: object) -> None:
        self.given.append(timeout)

    def start_queue(self, _name: str, *, timeout: float) -> None:
        self.given.append(timeout)

    remove_queue = stop_queue = start_queue


@pytest.mark.parametrize("command", ["create", "remove", "start", "stop"])
def test_a_change_gets_the_time_that_is_given(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    cluster = PaperCluster()
    monkeypatch.setattr(roq, "connect", cluster.connect)
    assert CliRunner().invoke(queue, [command, "orders", "--timeout", "3"]).exit_code == 0
    assert cluster.given == [3.0, 3.0]
    assert CliRunner().invoke(queue, [command, "orders"]).exit_code == 0
    assert cluster.given[2:] == [ANSWER_SECONDS, CHANGE_SECONDS]
    assert CHANGE_SECONDS == COMMAND_SECONDS


def test_an_ordered_queue_is_one_with_that_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    class Noting(PaperCluster):
        def create_queue(self, _name: str, *, timeout: float, **options: object) -> None:
            given.append(options["limits"])

    monkeypatch.setattr(roq, "connect", Noting().connect)
    for more in ([], ["--ordered"], ["--ordered", "--limit", "ordered=1"]):
        assert CliRunner().invoke(queue, ["create", "ledger", *more]).exit_code == 0
    assert given == [{}, {"ordered": 1}, {"ordered": 1}]
    refused = CliRunner().invoke(queue, ["create", "ledger", "--ordered", "--limit", "ordered=0"])
    assert refused.exit_code == 2
    assert "one of them" in refused.output


class TellingCluster(PaperCluster):
    """Has queues that differ in what is done for a slow subscriber."""

    def queues(self) -> Listing[QueueSummary]:
        def row(name: str, **slow: object) -> dict[str, object]:
            return {
                "Name": name, "Host": "h", "State": "stopped", "Running": False, "Exchanges": 1,
                "Durability": "none", **slow,
            }  # fmt: skip

        rows = [
            row("patient", SlowSubscriber="hold", HoldSeconds=60),
            row("quick", SlowSubscriber="drop", HoldSeconds=10),
            row("unknown"),
        ]
        return Listing(msgspec.convert(rows, list[QueueSummary]), None)

    def describe(self, name: str) -> QueueDescription:
        given = {"drop": rules_document(ScalingRules(name="r", slow_subscriber="drop"))}
        document = {
            "Name": name, "Host": "h", "State": "stopped", "Running": False, "Durability": "none",
            "Monitor": "", "Statistics": "", "Created": 0.0, "QueueId": "ab", "Exchanges": [],
            "Limits": msgspec.to_builtins(Limits()), "Rules": given.get(name, {}),
        }  # fmt: skip
        return msgspec.convert(document, QueueDescription)


def test_the_list_tells_what_is_done_for_a_slow_subscriber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roq, "connect", TellingCluster().connect)
    heading, patient, quick, unknown = CliRunner().invoke(queue, ["list"]).stdout.splitlines()
    assert heading.split()[-2:] == ["SLOW", "SUBSCRIBER"]
    assert patient.endswith("hold 60 s")
    assert quick.split()[-1] == "drop"
    assert unknown.split()[-1] == "-"
    rows = json.loads(CliRunner().invoke(queue, ["list", "--json"]).stdout)
    assert (rows[0]["slow_subscriber"], rows[0]["hold_seconds"]) == ("hold", 60)


def test_a_durable_queue_shows_for_how_long_messages_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [Limits()]

    class Durable(TellingCluster):
        def describe(self, name: str) -> QueueDescription:
            return msgspec.structs.replace(
                super().describe(name), durability="flush", limits=limits[-1]
            )

    def told() -> str:
        lines = CliRunner().invoke(queue, ["show", "without_rules"]).stdout.splitlines()
        (line,) = [line for line in lines if line.startswith("Retention")]
        return line

    monkeypatch.setattr(roq, "connect", Durable().connect)
    stays = "7 days, 10.7 GB for each exchange, whichever comes first, read or not"
    assert told().endswith(stays)
    limits.append(Limits(log_until_done=1))
    assert told().endswith(f"{stays}; what all groups have done goes before that")


def test_what_a_queue_keeps_though_groups_have_done_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = {"running": True, "limits": Limits(log_until_done=1)}
    checks = [Check(name="disks", ok=True), Check(name=RETENTION, ok=False, detail="x1: group 'a'")]
    asked: list[str] = []

    class Durable(TellingCluster):
        def describe(self, name: str) -> QueueDescription:
            return msgspec.structs.replace(
                super().describe(name), durability="flush", monitor="tcp://m:1", **described
            )

    def one(endpoint: str, _seconds: float) -> Survey:
        asked.append(endpoint)
        finding = Finding(
            role="monitor", name="q", address="m:1", state="running", ready=True,
            checks=tuple(checks),
        )  # fmt: skip
        return Survey((finding,))

    def held() -> tuple[list[str], object]:
        lines = CliRunner().invoke(queue, ["show", "q"]).stdout.splitlines()
        shown = json.loads(CliRunner().invoke(queue, ["show", "q", "--json"]).stdout)
        return [line.strip() for line in lines if line.startswith("Held")], shown["held"]

    monkeypatch.setattr(roq, "connect", Durable().connect)
    monkeypatch.setattr(survey, "one", one)
    monkeypatch.setattr(queues, "present", lambda *_: None)
    assert held() == ([], "")
    assert asked == [], "its monitor says nothing: it is not waited for again"
    monkeypatch.setattr(queues, "present", lambda *_: VIEW)
    (line,), told = held()
    assert line.endswith("x1: group 'a'")
    assert told == "x1: group 'a'"
    del checks[1]
    assert held() == ([], "")
    assert asked == ["tcp://m:1"] * 4
    described["limits"] = Limits()
    assert held() == ([], "")
    assert len(asked) == 4, "most queues are not asked"


@pytest.mark.parametrize(("name", "slow"), [("without_rules", "hold"), ("drop", "drop")])
def test_a_queue_shows_what_is_done_for_a_slow_subscriber(
    monkeypatch: pytest.MonkeyPatch, name: str, slow: str
) -> None:
    monkeypatch.setattr(roq, "connect", TellingCluster().connect)
    lines = CliRunner().invoke(queue, ["show", name]).stdout.splitlines()
    told = {line.split()[0]: line.split()[-1] for line in lines if line.strip()}
    assert (told["slow_subscriber"], told["hold_seconds"]) == (slow, "10")
    shown = json.loads(CliRunner().invoke(queue, ["show", name, "--json"]).stdout)
    assert (shown["slow_subscriber"], shown["hold_seconds"]) == (slow, 10)


class DefiningCluster(TellingCluster):
    """Notes what is defined of services."""

    def __init__(self) -> None:
        super().__init__()
        self.defined: list[object] = []

    def create_queue(self, _name: str, *, services: object, **_: object) -> None:
        self.defined.append(services)

    def define_services(self, _name: str, services: object, *, timeout: float) -> None:
        self.defined.append(services)

    def describe(self, name: str) -> QueueDescription:
        services = {"billing": {"keep_result": 60.0, "send_attempts": 9}}
        return msgspec.structs.replace(super().describe(name), services=services)


def test_settings_of_services_come_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster, file = DefiningCluster(), tmp_path / "services.json"
    monkeypatch.setattr(roq, "connect", cluster.connect)
    file.write_text('{"billing": {"keep_result": 60}, "*": {"send_attempts": 9}}')
    wanted = {"billing": {"keep_result": 60.0}, "*": {"send_attempts": 9}}
    for verb in ("create", "change"):
        done = CliRunner().invoke(queue, [verb, "work", "--requests", str(file)])
        assert done.exit_code == 0, done.output
    assert "defines settings of billing, *" in done.output
    none = CliRunner().invoke(queue, ["change", "work", "--requests", "-"], input="{}")
    assert "defines settings of no service" in none.output
    CliRunner().invoke(queue, ["create", "work"])
    assert cluster.defined == [wanted, wanted, {}, None]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "truncated"),
        (b"\xff\x00", "malformed"),
        (b"[" * 60_000, "services.json"),
        (b"[]", "not by list"),
        (b'{"s": {"keep": 1}}', "no setting of a service: keep"),
        (b'{"s": {"delay": -1}}', "service 's': Expected `float` >= 0"),
        (b'{"s": {"delay": NaN}}', "malformed"),
        (b" " * (REQUESTS_BYTES + 1), "more than 65536 bytes"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_named_and_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: bytes, problem: str
) -> None:
    cluster, file = DefiningCluster(), tmp_path / "services.json"
    monkeypatch.setattr(roq, "connect", cluster.connect)
    file.write_bytes(text)
    refused = CliRunner().invoke(queue, ["change", "work", "--requests", str(file)])
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert problem in said
    assert "services.json" in said
    assert cluster.defined == cluster.given == []


def test_a_queue_shows_what_it_defines_of_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roq, "connect", DefiningCluster().connect)
    lines = CliRunner().invoke(queue, ["show", "work"]).stdout.splitlines()
    (told,) = [line for line in lines if line.startswith("Service billing")]
    assert told.endswith("keep_result 60 s, send_attempts 9")
    shown = json.loads(CliRunner().invoke(queue, ["show", "work", "--json"]).stdout)
    assert shown["services"] == {"billing": {"keep_result": 60.0, "send_attempts": 9}}


def test_that_a_queue_keeps_other_limits_than_were_given_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Paper(PaperCluster):
        def describe(self, _name: str) -> QueueDescription:
            return msgspec.structs.replace(described(), limits=Limits(topics=7, publishers=3))

    monkeypatch.setattr(roq, "connect", Paper().connect)
    given = ["create", "orders", "--limit", "topics=8", "--limit", "publishers=3"]
    told = CliRunner().invoke(queue, [*given, "--exists-ok"])
    assert told.stderr == "  it exists already, and keeps its limits: topics is 7\n"
    for_programs = json.loads(CliRunner().invoke(queue, [*given, "--exists-ok", "--json"]).stdout)
    assert for_programs["warning"] == "it exists already, and keeps its limits: topics is 7"
    assert CliRunner().invoke(queue, given).stderr == ""
