"""What `roq message` prints, and what it asks of a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result

import roq
from roq.cli.commands import cli
from roq.client.consume.delayed import PendingMessage, PendingMessages

DUE = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


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


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    made = PaperCluster()
    monkeypatch.setattr(roq, "connect", lambda *_, **__: made)
    return made


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
