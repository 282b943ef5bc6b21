"""Everything that does not go on is told, with its reason."""

from __future__ import annotations

from time import monotonic
from typing import Any

import kpi_samples
from paper_console import group, host, summary

from roq.client.admin.board import Board
from roq.client.consume.groups import GroupListing
from roq.client.operate.followers import QueueReport
from roq.client.operate.survey import Finding, Survey
from roq.console.stalls import Stall, stalls


def report(*, reason: str = "", **fields: Any) -> QueueReport:
    board, now = Board("load"), monotonic()
    board.take(kpi_samples.exchange(now, 1, **fields).document, now)
    return QueueReport(state="running", reason=reason, view=board.view(now))


def told(**parts: Any) -> list[tuple[str, str, bool]]:
    given: dict[str, Any] = {
        "queues": [], "hosts": [], "health": None, "reports": {}, "groups": {}, **parts,
    }  # fmt: skip
    return [(each.what, each.reason, each.stands) for each in stalls(**given)]


def test_a_cluster_in_which_everything_goes_on_has_none() -> None:
    ready = Survey((Finding(role="gcm", name="a", address="", state="leading", ready=True),))
    assert not told(queues=[summary()], hosts=[host()], health=ready, reports={"load": report()},
                    groups={"load": GroupListing([group()], {})})  # fmt: skip


def test_queues_say_why() -> None:
    assert told(queues=[summary(Reasons=["its host is lost"])]) == [
        ("queue", "its host is lost", True)
    ]
    assert told(queues=[summary(Running=False, State="stopped")]) == [
        ("queue", "it is stopped: publishers wait", True)
    ]
    silent = {"load": report(reason="the monitor of queue load is silent")}
    assert told(queues=[summary()], reports=silent) == [
        ("queue", "the monitor of queue load is silent", True)
    ]


def test_exchanges_say_who_waits() -> None:
    found = told(reports={"load": report(holding=1, behind=2)})
    assert [each[0] for each in found] == ["exchange", "subscriber"]
    assert "2 subscribers read too slowly" in found[1][1]


def test_groups_hosts_and_daemons_say_why() -> None:
    stalled = GroupListing([group(stalled=["exchange x1: it has no member here"])], {})
    paused = GroupListing([group(paused=True, behind=0)], {})
    assert told(groups={"load": stalled}) == [("group", "exchange x1: it has no member here", True)]
    assert told(groups={"load": paused}) == [("group", "it is paused", False)]
    assert told(hosts=[host(State="silent", Reason="no report for 9 s", Stuck="no room")]) == [
        ("host", "it is silent: no report for 9 s", True),
        ("host", "it cannot be drained: no room", True),
    ]
    child = {"Child": "load.x1", "Role": "exchange", "Queue": "load", "Number": 1,
             "State": "failed", "Reason": "it ended", "Restarts": 3, "Epoch": 1, "Pid": 0,
             }  # fmt: skip
    assert told(hosts=[host(Children=[child])]) == [("process", "it is failed: it ended", True)]
    gone = Finding(role="host", name="b", address="", state="silent", ready=False, trouble="away")
    assert told(health=Survey((gone,), ("nobody leads",))) == [
        ("cluster", "nobody leads", True), ("host", "away", True),
    ]  # fmt: skip


def test_each_is_told_once_and_what_stands_comes_first() -> None:
    same = Stall("queue", "load", "/queues/load", "x")
    assert same == Stall("queue", "load", "/queues/load", "x")
    twice = [summary(Reasons=["x", "x"])]
    found = told(queues=twice, groups={"a": GroupListing([group(paused=True, behind=0)], {})})
    assert found == [("queue", "x", True), ("group", "it is paused", False)]
