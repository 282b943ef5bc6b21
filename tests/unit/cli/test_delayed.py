"""What `roq message` prints, and what it asks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

from roq.cli.commands import cli
from roq.client.consume.delayed import PendingMessage, PendingMessages
from roq.client.consume.lookup import FoundMessage, FoundMessages

DUE = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
FOUND = FoundMessage(
    id="x1-7-3-0", topic="eu", payload=b"tea", key="k", tags=("a",), properties={"p": "v"},
    priority=2, publisher="ab" * 16, sequence=9, published=DUE, appended=DUE,
)  # fmt: skip


class PaperCluster:
    """Has one delayed message, and says that so many wait."""

    pending = 7

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def delayed_messages(self, queue: str, *, most: int, timeout: float) -> PendingMessages:
        assert (queue, most, timeout) == ("orders", 3, 10.0)
        rows = [PendingMessage(id="ab" * 8, due=DUE, exchange="x1")] if self.pending else []
        return PendingMessages(
            pending=self.pending, size=100, messages=rows, missing={"x2": "it is away"}
        )

    def cancel_message(self, queue: str, message: str, *, timeout: float) -> bool:
        assert (queue, timeout) == ("orders", 10.0)
        return message == "ab" * 8

    def find_messages(self, queue: str, key: str, *, most: int, timeout: float) -> FoundMessages:
        assert (queue, timeout) == ("orders", 10.0)
        messages = [FOUND] * most if key == "k" else []
        return FoundMessages(messages=messages, more=most == 1, missing=self.missing)

    def find_message(self, queue: str, message: str, *, timeout: float) -> FoundMessage | None:
        assert (queue, timeout) == ("orders", 10.0)
        return FOUND if message == FOUND.id else None

    missing: ClassVar[dict[str, str]] = {}


@pytest.fixture
def paper(use: Callable[[PaperCluster], PaperCluster]) -> PaperCluster:
    return use(PaperCluster())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["message", *arguments])


@pytest.mark.usefixtures("paper")
def test_messages_are_listed() -> None:
    told = run("list", "orders", "--most", "3")
    for text in ("ab" * 8, "2030-01-02 03:04:05.000+00:00", "x1", "7 wait", "x2: it is away"):
        assert text in told.output
    document = json.loads(run("list", "orders", "--most", "3", "--json").stdout)
    assert (document["pending"], document["missing"]) == (7, {"x2": "it is away"})
    assert document["messages"][0]["due"] == DUE.isoformat()


def test_that_none_waits_is_said(paper: PaperCluster) -> None:
    paper.pending = 0
    assert "No delayed message waits" in run("list", "orders", "--most", "3").output


@pytest.mark.usefixtures("paper")
def test_a_message_is_cancelled_or_was_not_there() -> None:
    assert run("cancel", "orders", "ab" * 8).exit_code == 0
    told = run("cancel", "orders", "cd" * 8)
    assert told.exit_code == 1
    assert "published or cancelled before" in told.output


def test_messages_of_a_key_are_found(paper: PaperCluster) -> None:
    told = run("find", "orders", "--key", "k", "--most", "1")
    assert told.exit_code == 0
    for text in ("x1-7-3-0", "2030-01-02 03:04:05.000+00:00", "eu", "tea", "older ones"):
        assert text in told.output
    document = json.loads(run("find", "orders", "--key", "k", "--json", "--most", "2").stdout)
    assert [each["payload"] for each in document["messages"]] == ["tea", "tea"]
    assert not document["more"]
    paper.missing = {"x2": "it is away"}  # type: ignore[misc]
    told = run("find", "orders", "--key", "other")
    assert told.exit_code == 1
    assert "x2: it is away" in told.output
    assert "no message of key 'other'" in told.output


@pytest.mark.usefixtures("paper")
def test_a_message_is_shown() -> None:
    told = run("show", "orders", "x1-7-3-0")
    for text in ("x1-7-3-0", "eu", "k", "['a']", "{'p': 'v'}", "2", "ab" * 16, "tea"):
        assert text in told.output
    assert json.loads(run("show", "orders", "x1-7-3-0", "--json").stdout)["sequence"] == 9
    told = run("show", "orders", "x1-7-4-0")
    assert told.exit_code == 1
    assert "has left the log" in told.output
