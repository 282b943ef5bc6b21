"""What `roq transaction` prints, and what it asks of a cluster."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

import roq
from roq.cli.commands import cli
from roq.client.transact.commands import TransactionListing, TransactionSummary
from roq.client.transact.publisher import TransactionMessage

NAME = "ab" * 8


class PaperCluster:
    """Has one transaction, or none."""

    rows = 1

    def __init__(self) -> None:
        self.settled: list[tuple[str, str]] = []

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def transactions(
        self, queue: str, group: str, *, most: int, timeout: float
    ) -> TransactionListing:
        assert (queue, group, most, timeout) == ("orders", "checkout", 3, 10.0)
        kept = TransactionSummary(
            id=NAME, exchange="x1", state="kept", group="checkout", seconds=3_700.0, attempts=16,
            size=2_000,
        )  # fmt: skip
        return TransactionListing(
            transactions=[kept] * self.rows, open=7, kept=1, producers=2, prepared=9, committed=3,
            rolled_back=2, checked=20, by_policy=1, missing={"x2": "it is away"},
        )  # fmt: skip

    def transaction(self, queue: str, name: str, *, timeout: float) -> TransactionSummary:
        if name != NAME:
            raise roq.TransactionNotFound("no exchange knows it")
        messages = [TransactionMessage(b"paid", "eu", "k", ["t"], {"p": "v"}, 2),
                    TransactionMessage(b"\xff"), TransactionMessage(b"\x07")]  # fmt: skip
        return TransactionSummary(
            id=NAME, exchange="x1", state="open", group="checkout\x07", messages=messages
        )

    def commit_transaction(self, queue: str, name: str, *, timeout: float) -> None:
        self.settled.append(("commit", name))

    def rollback_transaction(self, queue: str, name: str, *, timeout: float) -> None:
        self.settled.append(("rollback", name))


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    made = PaperCluster()
    monkeypatch.setattr(roq, "connect", lambda *_, **__: made)
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["transaction", *arguments])


def test_transactions_are_listed(paper: PaperCluster) -> None:
    words = ("list", "orders", "--group", "checkout", "--most", "3")
    told = run(*words).output
    for text in (NAME, "kept", "1:01:40", "7 open", "1 are left", "20 checks", "x2: it is away"):
        assert text in told
    document = json.loads(run(*words, "--json").stdout)
    assert (document["by_policy"], document["transactions"][0]["attempts"]) == (1, 16)
    paper.rows = 0
    assert "No transaction is open" in run(*words).output


@pytest.mark.usefixtures("paper")
def test_one_is_shown_with_its_messages() -> None:
    told = run("show", "orders", NAME).output
    for text in ("open", "group checkout", "topic eu", "payload paid", "payload_base64 /w=="):
        assert text in told
    assert "\x07" not in told, "what others have written does nothing to the terminal"
    document = json.loads(run("show", "orders", NAME, "--json").stdout)
    assert document["messages"] == [
        {"topic": "eu", "payload": "paid", "key": "k", "tags": ["t"], "properties": {"p": "v"},
         "priority": 2},
        {"topic": "", "payload_base64": "/w=="},
        {"topic": "", "payload": "\x07"},
    ]  # fmt: skip
    missing = run("show", "orders", "cd" * 8)
    assert missing.exit_code == 1


def test_one_is_ended_by_hand(paper: PaperCluster) -> None:
    assert "is committed" in run("commit", "orders", NAME).output
    assert "is rolled back" in run("rollback", "orders", NAME).output
    assert paper.settled == [("commit", NAME), ("rollback", NAME)]
