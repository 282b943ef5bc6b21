"""What `roq service` prints of services and their instances."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from roq.cli.commands import cli
from roq.cli.services import DRAINED_STATUS
from roq.client.consume.groups import GroupMember
from roq.client.request.service import Service
from roq.client.request.views import ServiceView
from roq.errors import InvalidRequest
from roq.protocol.requesting import Durations, Figures, ServiceSettings


def instance(name: str, figures: Figures | None) -> GroupMember:
    return GroupMember(
        id="ab" * 16, name=name, exchanges=["x1"], held=3, credit=0, acknowledged=4,
        silent_seconds=0.25, figures=figures,
    )  # fmt: skip


BUSY = Figures(busy=2, threads=4, response_ms=12.5, endpoints=["billing.create"])
AWAY = Figures(available=False, rule="response_ms < 100")
VIEW = ServiceView(
    name="billing", queue="work", settings=ServiceSettings(), open=2, stored=1, stored_bytes=2_000,
    oldest_seconds=30.0, requests=[],
    accepted=9, retried=2, waiting=Durations([0, 3, 1], 0.008),
    running=Durations([0] * 16 + [2], 800.0),
    counts={"done": 5, "failed": 1, "late": 1, "discarded": 1, "all busy": 1, "expired": 3},
    instances=[instance("one", BUSY), instance("two", AWAY), instance("new", None)],
    stalled=["exchange x1: it is paused"], missing={"x2": "it is away"},
)  # fmt: skip


class PaperCluster:
    """Has one service, or none."""

    names = ("billing",)

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def services(self, queue: str, *, timeout: float) -> list[str]:
        assert (queue, timeout) == ("work", 10.0)
        return list(self.names)

    def describe_service(self, queue: str, name: str, *, timeout: float) -> ServiceView:
        assert (queue, name, timeout) == ("work", "billing", 10.0)
        return VIEW

    def flag_service(self, *given: object, **more: object) -> list[str]:
        self.told.append((*given, more))
        return ["one", "two"]

    drain_service = flag_service


@pytest.fixture
def paper(use: Callable[[PaperCluster], PaperCluster]) -> PaperCluster:
    return use(PaperCluster())


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["service", *words])


def test_services_are_listed_with_what_they_lack(paper: PaperCluster) -> None:
    result = run("list", "work")
    assert result.stdout.splitlines()[1].split() == [
        "billing", "3", "2", "30", "s", "1", "2.0", "kB", "5", "1", "2",
    ]  # fmt: skip
    assert "billing: exchange x1: it is paused" in result.stderr
    assert "billing: without exchange x2: it is away" in result.stderr
    [told] = json.loads(run("list", "work", "--json").stdout)
    assert (told["name"], told["counts"]["late"]) == ("billing", 1)
    assert told["instances"][0]["figures"]["threads"] == 4
    paper.names = ()
    assert "has no service" in run("list", "work").stderr


@pytest.mark.usefixtures("paper")
def test_a_service_is_shown_with_settings_ends_and_instances() -> None:
    lines = run("show", "work", "billing").stdout.splitlines()
    fields = dict(line.split("  ", 1) for line in lines if "  " in line)
    assert fields["keep_result"].strip() == "30 s"
    assert fields["send_attempts"].strip() == "4"
    assert fields["store_bytes"].strip() == "67.1 MB"
    assert (fields["Accepted"].strip(), fields["Retried"].strip()) == ("9", "2")
    assert fields["Waiting"].strip() == "mean 0.002 s, half ≤ 0.002 s, 99 % ≤ 0.005 s"
    assert fields["Running"].strip() == "mean 400 s, half above 300 s, 99 % above 300 s"
    assert fields["Until fetched"].strip() == "-"
    assert fields["Ended: late"].strip() == "1"
    assert fields["Discarded: all busy"].strip() == "1"
    assert fields["Of these never fetched"].strip() == "3"
    one, two, new = lines[-3:]
    assert one.split()[:5] == ["one", "available", "2", "4", "12.5"]
    assert "unavailable: response_ms < 100" in two
    assert new.split()[:2] == ["new", "-"]
    assert json.loads(run("show", "work", "billing", "--json").stdout)["open"] == 2


class PaperService(Service):
    """Notes that it was run."""

    runs = 0
    drains = False
    refused: InvalidRequest | None = None

    def __init__(self) -> None:
        self.name, self.queue, self.instance = "billing", "work", "here"
        self.drained = PaperService.drains

    def __del__(self) -> None: ...

    def start(self, loop: object = None) -> None:
        if PaperService.refused is not None:
            raise PaperService.refused

    def run(self) -> None:
        PaperService.runs += 1


def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("paper_programs")
    module.__dict__.update(
        service=lambda _cluster: PaperService(), wrong=lambda _cluster: 7, number=7
    )
    monkeypatch.setitem(sys.modules, "paper_programs", module)


@pytest.mark.usefixtures("paper")
def test_an_instance_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch)
    PaperService.runs = 0
    result = run("run", "paper_programs:service")
    assert (result.exit_code, PaperService.runs) == (0, 1), result.output
    monkeypatch.setattr(PaperService, "drains", True)
    assert run("run", "paper_programs:service").exit_code == 0
    one_of_many = run("run", "paper_programs:service", "--one-of-many")
    assert one_of_many.exit_code == DRAINED_STATUS, "so it is not started again"
    assert "here answers requests to service billing of queue work" in result.stderr
    assert run("run", "paper_programs").exit_code == 0, "the function is named service"


@pytest.mark.usefixtures("paper")
def test_an_instance_that_cannot_start_does_not_say_that_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs(monkeypatch)
    monkeypatch.setattr(PaperService, "refused", InvalidRequest("it has no handler"))
    result = run("run", "paper_programs:service")
    assert result.exit_code == 1
    assert result.stderr == "Error: it has no handler\n"


@pytest.mark.usefixtures("paper")
@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("paper_programs:wrong", "has given no roq.Service, but int"),
        ("paper_programs:number", "is no function, but int"),
        ("paper_programs:nothing", "give MODULE:FUNCTION"),
        ("no_such_module_here:service", "give MODULE:FUNCTION"),
    ],
)
def test_programs_that_cannot_be_run(
    monkeypatch: pytest.MonkeyPatch, program: str, told: str
) -> None:
    programs(monkeypatch)
    result = run("run", program)
    assert result.exit_code == 2
    assert told in result.stderr
    assert run("run", program, "--processes", "0").exit_code == 2


def test_instances_are_flagged_and_drained(paper: PaperCluster) -> None:
    assert run("flag", "work", "billing", "--off").stdout == "off: one, two\n"
    told = json.loads(run("flag", "work", "billing", "--instance", "one", "--json").stdout)
    assert told == {"ok": True, "flag": True, "instances": ["one", "two"]}
    assert run("drain", "work", "billing").stdout == "told to end: one, two\n"
    told = json.loads(run("drain", "work", "billing", "--instance", "one", "--json").stdout)
    assert told == {"ok": True, "instances": ["one", "two"]}
    common = {"timeout": 10.0}
    assert paper.told == [
        ("work", "billing", {"available": False, "instance": None, **common}),
        ("work", "billing", {"available": True, "instance": "one", **common}),
        ("work", "billing", {"instance": None, **common}),
        ("work", "billing", {"instance": "one", **common}),
    ]
