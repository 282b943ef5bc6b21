"""What `roq group` prints of groups, and what it asks of a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

import roq
from roq.cli.commands import cli
from roq.cli.groups import OLDEST_SHOWN, parse_place
from roq.client.consume.groups import (
    GroupListing,
    GroupMember,
    GroupPart,
    GroupSummary,
    OldestMessage,
)


def part(**given: Any) -> GroupPart:
    fields = {
        "exchange": "x1", "base": 2, "end": 9, "out": 3, "waiting": 1, "oldest_seconds": 30.0,
        "members": 1, "paused": False, "acknowledged": 4, "failed": 0, "lapsed": 0, "expired": 0,
        "stalled": "",
    }  # fmt: skip
    return GroupPart(**{**fields, **given})


def summary(**given: Any) -> GroupSummary:
    fields = {
        "name": "billing", "mode": "shared", "topics": [""], "lease_seconds": 30.0, "attempts": 16,
        "created": 0.0, "members": 1, "behind": 7, "out": 3, "waiting": 1, "oldest_seconds": 30.0,
        "paused": False, "acknowledged": 4, "failed": 0, "lapsed": 0, "expired": 0, "stalled": [],
        "parts": [part()],
    }  # fmt: skip
    return GroupSummary(**{**fields, **given})


MEMBER = GroupMember(
    id="ab" * 16, name="worker-1", exchanges=["x1"], held=3, credit=97, acknowledged=4,
    silent_seconds=0.25,
)  # fmt: skip


class PaperCluster:
    """Has these groups, and notes what it is asked for."""

    def __init__(self, *rows: GroupSummary, missing: dict[str, str] | None = None) -> None:
        self.rows = GroupListing(list(rows), missing or {})
        self.asked: list[tuple[Any, ...]] = []

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def groups(self, *names: str, timeout: float) -> GroupListing:
        del timeout
        if len(names) > 1 and not self.rows:
            raise roq.GroupNotFound(f"queue orders has no group {names[1]}")
        return self.rows

    def seek_group(self, queue: str, group: str, to: object, *, timeout: float) -> list[str]:
        self.asked.append(("seek", queue, group, to, timeout))
        return ["x1", "x2"]

    def pause_group(self, queue: str, group: str, *, timeout: float) -> list[str]:
        self.asked.append((queue, group, timeout))
        return ["x1"]

    resume_group = delete_group = pause_group


def test_groups_are_listed_with_what_holds_them_up(use: Any) -> None:
    use(
        PaperCluster(
            summary(),
            summary(name="idle", stalled=["exchange x1: it has no member here"], members=0),
            summary(name="night", paused=True, oldest_seconds=None),
        )
    )
    lines = CliRunner().invoke(cli, ["group", "list", "orders"]).stdout.splitlines()
    assert lines[0].split() == [
        "GROUP", "STATE", "MODE", "MEMBERS", "BEHIND", "OUT", "WAITING", "OLDEST", "DONE", "FAILED",
        "LAPSED",
    ]  # fmt: skip
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["billing", "running"], ["idle", "stalled"], ["night", "paused"],
    ]  # fmt: skip
    assert lines[4] == "idle: exchange x1: it has no member here"


def test_the_oldest_of_each_topic_and_priority_is_shown(use: Any) -> None:
    oldest = [
        OldestMessage(topic=topic, priority=5, seconds=90.0, exchange="x1")
        for topic in ("eu.be", "", None, *["t"] * OLDEST_SHOWN)
    ]
    use(PaperCluster(summary(oldest=oldest, unseen_seconds=60.0)))
    result = CliRunner().invoke(cli, ["group", "show", "orders", "billing"])
    lines = [line.split() for line in result.stdout.splitlines()]
    at = lines.index(["TOPIC", "PRIORITY", "OLDEST", "EXCHANGE"])
    assert [line[:-4] for line in lines[at + 1 : at + 4]] == [
        ["eu.be"], ["(empty)"], ["(all", "others)"],
    ]  # fmt: skip
    assert "and 3 that are younger (--json)" in result.stderr
    assert "Not all was looked at that is as old as 60 s" in result.stderr
    told = json.loads(
        CliRunner().invoke(cli, ["group", "show", "orders", "billing", "--json"]).stdout
    )
    assert len(told["oldest"]) == len(oldest)
    assert told["oldest"][0] == {
        "topic": "eu.be", "priority": 5, "seconds": 90.0, "exchange": "x1",
    }  # fmt: skip
    assert told["unseen_seconds"] == 60.0


def test_a_partial_answer_is_said_to_be_one(use: Any) -> None:
    use(PaperCluster(summary(), missing={"x2": "it has not answered within 10 s"}))
    lines = CliRunner().invoke(cli, ["group", "list", "orders"]).stdout.splitlines()
    assert lines[-1] == "without exchange x2: it has not answered within 10 s"
    (row,) = json.loads(CliRunner().invoke(cli, ["group", "list", "orders", "--json"]).stdout)
    assert row["missing"] == {"x2": "it has not answered within 10 s"}
    assert (row["name"], row["parts"][0]["exchange"]) == ("billing", "x1")


def test_a_queue_without_groups_says_how_one_is_made(use: Any) -> None:
    use(PaperCluster())
    result = CliRunner().invoke(cli, ["group", "list", "orders"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "roq consume orders --group NAME" in result.stderr
    assert CliRunner().invoke(cli, ["group", "list", "orders", "--json"]).stdout == "[]\n"


def test_a_group_is_shown_with_exchanges_and_members(use: Any) -> None:
    use(
        PaperCluster(summary(who=[MEMBER], attempts=0, tags=["eu", "paid"], malformed=12, stale=34))
    )
    result = CliRunner().invoke(cli, ["group", "show", "orders", "billing"])
    assert result.exit_code == 0
    texts = (
        "billing",
        "without an end",
        "worker-1",
        "x1",
        "0.2 s",
        "7 batches",
        "eu, paid",
        "12 b",
        "34 m",
    )
    for text in texts:
        assert text in result.stdout
    shown = json.loads(CliRunner().invoke(cli, ["group", "show", "orders", "b", "--json"]).stdout)
    assert shown["who"][0]["name"] == "worker-1"
    assert shown["tags"] == ["eu", "paid"]


def test_a_group_that_is_not_there_is_one_line_and_a_hint(use: Any) -> None:
    use(PaperCluster())
    result = CliRunner().invoke(cli, ["group", "show", "orders", "none"])
    assert result.exit_code == 1
    assert "no group none" in result.stderr
    assert "roq group list QUEUE" in result.stderr


@pytest.mark.parametrize("command", ["pause", "resume", "delete"])
def test_an_order_is_passed_on(use: Any, command: str) -> None:
    cluster = use(PaperCluster())
    result = CliRunner().invoke(cli, ["group", command, "orders", "billing", "--json"])
    assert json.loads(result.stdout) == {
        "ok": True, "queue": "orders", "group": "billing", "exchanges": ["x1"],
    }  # fmt: skip
    assert cluster.asked == [("orders", "billing", 10.0)]


def test_seek_takes_places_and_times(use: Any) -> None:
    cluster = use(PaperCluster())
    place = "2026-11-25T08:00:00+01:00"
    result = CliRunner().invoke(cli, ["group", "seek", "orders", "billing", "--to", place])
    assert result.stdout == f"group billing of queue orders goes on from {place}\n"
    assert cluster.asked[0][3] == datetime(2026, 11, 25, 7, tzinfo=UTC)
    assert (parse_place("earliest"), parse_place("latest")) == ("earliest", "latest")


@pytest.mark.parametrize(
    ("place", "text"), [("noon", "neither earliest"), ("2026-11-25T08:00:00", "no time zone")]
)
def test_a_place_that_is_none_is_a_usage_error(use: Any, place: str, text: str) -> None:
    cluster = use(PaperCluster())
    result = CliRunner().invoke(cli, ["group", "seek", "orders", "billing", "--to", place])
    assert result.exit_code == 2
    assert text in result.stderr
    assert cluster.asked == []
