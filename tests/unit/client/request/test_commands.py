"""What a client does with services: with which defaults, whom it asks, and what it opens once."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import roq
from roq.client.request import commands
from roq.client.request.commands import RequestCommands
from roq.errors import GroupNotFound, InvalidName, InvalidRequest
from roq.model import LogId

ENDPOINT = roq.endpoint("billing.create", request=object, response=object)
REQUEST = "work/x1-7-3-1"


class PaperPublisher:
    id = b"p" * 16
    aborted = False

    def abort(self) -> None:
        self.aborted = True


class Paper(RequestCommands):
    """A client with a queue `work`; notes what it asks and adopts."""

    def __init__(self) -> None:
        self._engine: Any = SimpleNamespace(check_process=lambda: None)
        self._timeout = 7.0
        self._lock = threading.RLock()
        self.asked: list[dict[str, Any]] = []
        self.adopted: list[Any] = []
        self.listed: list[Any] = []
        self.publishers: list[dict[str, Any]] = []
        self.paper = PaperPublisher()

    addresses = ["tcp://h:1"]  # noqa: RUF012 - in the place of a property

    def publisher(self, queue: str, **given: Any) -> Any:
        self.publishers.append({"queue": queue, **given})
        return self.paper

    def describe(self, queue: str) -> Any:
        assert queue == "work"
        return "described"

    def groups(self, queue: str, group: str | None = None, *, timeout: float | None = None) -> Any:
        assert queue == "work"
        if group is not None and group not in {each.name for each in self.listed}:
            raise GroupNotFound("no such group")
        return [each for each in self.listed if group in {None, each.name}]

    def _ask(self, document: Any, timeout: float | None = None) -> Any:
        self.asked.append({**document, "timeout": timeout})
        return {}

    def _seconds(self, timeout: float | None) -> float:
        return 7.0 if timeout is None else timeout

    def _adopt(self, child: Any) -> Any:
        self.adopted.append(child)
        return child


class Made:
    """In the place of what is made: notes with what."""

    ended = False

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named
        self.calls: list[Any] = []

    def need_exchanges(self, timeout: float) -> None:
        self.calls.append(("need", timeout))

    def find(self, pending: Any) -> None:
        self.calls.append(("find", len(pending.calls)))

    def place(self, *where: Any) -> None:
        self.calls.append(where)


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    for name in ("Requester", "Service", "Collector", "Pending"):
        monkeypatch.setattr(commands, name, type(name, (Made,), {}))
    return Paper()


def group(name: str, *, service: bool) -> SimpleNamespace:
    return SimpleNamespace(name=name, service=service)


def test_a_requester_publishes_with_offsets_and_collects_its_own(paper: Paper) -> None:
    requester: Any = paper.requester("work", linger=0.5, block=False)
    assert paper.publishers == [
        {"queue": "work", "offsets": True, "linger": 0.5, "block": False, "receipt": roq.Receipt}
    ]
    assert paper.adopted == [requester]
    assert (requester.named["timeout"], requester.named["block"]) == (7.0, False)
    publisher, make = requester.given
    assert publisher is paper.paper
    assert make(None).given[2:4] == ("work", b"p" * 16)


def test_one_that_collects_nothing_waits_under_nobodys_name(paper: Paper) -> None:
    requester: Any = paper.requester("work", collect=False, timeout=2.0)
    assert requester.given[1](None).given[3] == b""
    assert (requester.named["collect"], requester.named["timeout"]) == (False, 2.0)


def test_a_requester_that_cannot_be_leaves_no_publisher_open(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        paper.requester("work", settings={"beauty": 1.0})
    assert paper.paper.aborted
    paper.paper.aborted = False
    monkeypatch.setattr(commands, "Requester", refuse)
    with pytest.raises(InvalidRequest):
        paper.requester("work")
    assert paper.paper.aborted
    assert paper.adopted == []


def test_a_service_has_a_name_that_endpoints_can_begin_with(paper: Paper) -> None:
    for name in (".a", "a."):
        with pytest.raises(InvalidRequest, match="does not begin or end with a dot"):
            paper.service(name, "work")
    for name, queue in (("a b", "work"), ("a", "w/k")):
        with pytest.raises(InvalidName):
            paper.service(name, queue)
    assert paper.adopted == []
    service: Any = paper.service("a.b", "work", retries=3, version="2")
    assert service.given[2:] == ("a.b", "work")
    assert (service.named["retries"], service.named["version"]) == (3, "2")
    assert (service.named["timeout"], service.named["threads"]) == (7.0, commands.THREADS)
    assert paper.adopted == [service]


def test_settings_that_cannot_be_are_defined_nowhere(paper: Paper) -> None:
    with pytest.raises(InvalidRequest):
        paper.define_services("work", {"billing": {"beauty": 1.0}})
    with pytest.raises(InvalidName):
        paper.define_services("w/k", {})
    assert paper.asked == []
    paper.define_services("work", {})
    (asked,) = paper.asked
    assert (asked["CMD"], asked["QName"], asked["Services"]) == (2105, "work", {})
    assert asked["timeout"] == commands.DEFINE_SECONDS


def test_services_are_the_groups_that_are_some(paper: Paper) -> None:
    paper.listed = [group("a", service=True), group("b", service=False), group("c", service=True)]
    assert paper.services("work") == ["a", "c"]


def test_a_group_that_is_no_service_is_none_and_one_that_is_not_there_neither(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper.listed = [group("a", service=True), group("b", service=False)]
    for name in ("b", "c"):
        with pytest.raises(GroupNotFound, match=f"queue work has no service {name}; `roq service"):
            paper.describe_service("work", name)
    seen: list[Any] = []
    monkeypatch.setattr(commands, "describe_service", lambda *given: seen.append(given[1:]))
    paper.describe_service("work", "a")
    assert seen == [("described", paper.listed[0], 7.0)]


def test_orders_are_words_for_one_instance_or_for_all(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered: list[Any] = []

    def order(_engine: Any, *given: Any) -> list[str]:
        ordered.append(given)
        return ["i"]

    monkeypatch.setattr(commands, "order_instances", order)
    assert paper.flag_service("work", "s", available=True) == ["i"]
    assert paper.flag_service("work", "s", available=False, instance="i", timeout=2.0) == ["i"]
    assert paper.drain_service("work", "s") == ["i"]
    with pytest.raises(InvalidRequest, match="instance is empty"):  # it would be all of them
        paper.drain_service("work", "s", instance="")
    assert ordered == [
        ("described", "s", "flag", "", 7.0),
        ("described", "s", "unflag", "i", 2.0),
        ("described", "s", "drain", "", 7.0),
    ]
    with pytest.raises(InvalidName):
        paper.drain_service("work", "a b")


def test_a_request_is_asked_for_at_the_queue_and_the_log_of_its_id(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(commands, "run_again", lambda *given: seen.append(given[1:]))
    monkeypatch.setattr(commands, "describe_request", lambda *given: seen.append(given[1:5]))
    paper.retry_request(ENDPOINT, REQUEST)
    paper.describe_request(ENDPOINT, REQUEST, timeout=1.0)
    first, second = seen
    assert (first[:2], first[2].log, first[3]) == (("described", "billing"), LogId(1, 7), 7.0)
    assert (second[:2], second[3]) == (("described", "billing"), 1.0)
    for ask in (paper.retry_request, paper.describe_request, paper.response):
        with pytest.raises(InvalidRequest, match="is no id of a request"):
            ask(ENDPOINT, "work")  # type: ignore[operator]


def test_responses_of_one_queue_are_waited_for_by_one_collector_until_it_has_ended(
    paper: Paper,
) -> None:
    first: Any = paper.response(ENDPOINT, REQUEST)
    second: Any = paper.response(ENDPOINT, "work/x2-7-3-1")
    (collector,) = paper.adopted
    assert first.given[0] is second.given[0] is collector
    assert first.calls[0][0] == LogId(1, 7)
    assert [each[0] for each in collector.calls] == ["need", "find"] * 2
    assert collector.calls[0] == ("need", 7.0)
    assert collector.calls[1] == ("find", 1), "it is placed before it is looked for"
    collector.ended = True
    third: Any = paper.response(ENDPOINT, REQUEST)
    assert third.given[0] is paper.adopted[1]
