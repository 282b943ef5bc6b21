"""What `roq consume` prints, and what it acknowledges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import roq
from roq.cli.commands import cli
from roq.cli.consume import HELD_MAX, PREFETCH
from roq.client.consume.holding import ACKED, RETURNED, Holding
from roq.client.consume.message import ConsumedBatch, Settlement
from roq.model import LogId, PublisherId
from roq.read.message import Batch


class PaperCluster:
    """A cluster with one consumer, who gets these batches."""

    def __init__(self, *batches: list[bytes]) -> None:
        self.holdings = [
            Holding(
                LogId(1, 3), offset, 1, 0, 2,
                Batch(payloads, "eu", PublisherId(b"p" * 16), 5, 0, 1, None),
            )
            for offset, payloads in enumerate(batches)
        ]  # fmt: skip
        self.options: dict[str, Any] = {}
        self.acked: list[bytes] = []
        self.flushed = False

    def connect(self, _address: str, *, timeout: float) -> PaperCluster:
        del timeout
        return self

    def consumer(self, queue: str, group: str, **options: Any) -> PaperCluster:
        self.options = {"queue": queue, "group": group, **options}
        return self

    def batches(self, most: int, wait: float | None) -> Iterator[ConsumedBatch]:
        self.options |= {"most": most, "wait": wait}
        for holding in self.holdings:
            yield ConsumedBatch(holding, 0, len(holding.batch), self.settle)

    def settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        holding.settle(index, count, ACKED if verdict.acked else RETURNED)
        self.acked += holding.batch.payloads[index : index + count]

    def flush(self) -> None:
        self.flushed = True

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...


def run(
    monkeypatch: pytest.MonkeyPatch, cluster: PaperCluster, *arguments: str
) -> tuple[list[str], str]:
    monkeypatch.setattr(roq, "connect", cluster.connect)
    result = CliRunner().invoke(cli, ["consume", "orders", "--group", "g", *arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines(), result.stderr


def test_what_is_printed_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster([b"a", b"b"], [b"c"])
    lines, said = run(monkeypatch, cluster, "--wait", "1", "--topic", "eu", "--topic", "us")
    assert lines == ["a", "b", "c"]
    assert cluster.acked == [b"a", b"b", b"c"]
    assert cluster.flushed
    assert said == "Consuming orders in group g.\n"
    assert cluster.options["topic"] == ("eu", "us")
    assert (cluster.options["prefetch"], cluster.options["wait"]) == (PREFETCH, 1.0)
    assert (cluster.options["mode"], cluster.options["start"]) == ("shared", "earliest")


def test_no_more_is_acknowledged_than_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster([b"a", b"b"], [b"c", b"d"], [b"e"])
    lines, said = run(monkeypatch, cluster, "--count", "3", "-q")
    assert lines == ["a", "b", "c"]
    assert cluster.acked == [b"a", b"b", b"c"]
    assert cluster.options["prefetch"] == 3
    assert said == ""


def test_without_ack_everything_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster([b"a"])
    assert run(monkeypatch, cluster, "--no-ack")[0] == ["a"]
    assert cluster.acked == []
    assert not cluster.flushed
    assert cluster.options["prefetch"] == HELD_MAX, "all of it is held to the end"


def test_json_tells_id_and_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = run(monkeypatch, PaperCluster([b"a", b"\xff"]), "--json")
    first, second = map(json.loads, lines)
    assert (first["id"], first["attempt"], first["payload"]) == ("x1-3-0-0", 2, "a")
    assert (second["id"], second["sequence"], second["payload_base64"]) == ("x1-3-0-1", 6, "/w==")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--group", "g", "--follow", "--wait", "1"], ["--group", "g", "--mode", "some"],
     ["--group", "g", "--start", "noon"], ["--group", "g", "--count", "0"]],
    ids=" ".join,
)  # fmt: skip
def test_wrong_arguments_end_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["consume", "orders", *arguments])
    assert result.exit_code == 2
    assert "Error: " in result.stderr
