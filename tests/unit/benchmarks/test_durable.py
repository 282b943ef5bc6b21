"""What the benchmark of durable queues makes of what it has measured."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from roq.benchmarks import durable
from roq.benchmarks.contenders import jetstream, kafka
from roq.benchmarks.durable import BATCHES, DurableResults, Store
from roq.benchmarks.results import environment


@pytest.fixture
def results() -> DurableResults:
    return DurableResults(
        environment=environment(),
        rounds=3,
        stores=[
            Store("bare", "bare", "on the disk"), Store("roq_none", "RoQ none", "in memory"),
            Store("roq_flush", "RoQ flush", "on the disk"), Store("peer", "a peer", "somewhere"),
        ],
        skipped={"gone": "it is not installed"},
        failures=["a peer, 1 in a batch: it broke"],
        rates={
            "bare": {batch: [2_000.0, 4_000.0, 1_000.0] for batch in BATCHES},
            "roq_none": {batch: [3_000.0, 3_000.0, 3_000.0] for batch in BATCHES},
            "roq_flush": {batch: [1_000.0, 3_000.0, 900.0] for batch in BATCHES},
            "peer": {500: [10.0, 10.0, 10.0]},
        },
        acks_us={"bare": [100.0, 110.0], "roq_flush": [400.0, 390.0]},
        end_to_end={"roq_flush": [800.0]},
        drain_rate=5_000.0, drain_bytes=10**9,
        cold={
            "batches": 7.0, "bytes": 9.0, "empty_seconds": 0.2, "empty_mib": 20.0,
            "log_seconds": 0.9, "log_mib": 30.0, "again_seconds": 0.8, "again_mib": 30.0,
        },
    )  # fmt: skip


def test_a_ratio_is_the_median_of_those_within_the_rounds(results: DurableResults) -> None:
    told = dict(durable.comparisons(results))
    assert told["roq_flush by bare, 500 in a batch"] == "0.75 (0.50 – 0.90)"
    assert told["roq_flush by peer, 500 in a batch"] == "100.00 (90.00 – 300.00)"
    assert "roq_flush by peer, 100 in a batch" not in told
    assert told["roq_flush: ack p50 above one write and fdatasync"] == "290 µs"
    assert durable.ratio([], [1.0]) == ""


def test_everything_is_shown_also_what_is_missing(results: DurableResults) -> None:
    text = io.StringIO()
    durable.show(results, Console(file=text, width=200))
    shown = text.getvalue()
    for part in (
        "on the disk", "somewhere", "it is not installed", "it broke", "drain of a backlog",
        "cold start over 7 batches", "+10 MiB",
    ):  # fmt: skip
        assert part in shown


def test_it_is_written_as_a_document_and_a_picture(results: DurableResults, tmp_path: Path) -> None:
    document, picture = durable.write(results, tmp_path)
    assert msgspec.json.decode(document.read_bytes(), type=DurableResults).rates == results.rates
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_peer_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kafka.JARS, raising=False)
    monkeypatch.setattr(kafka.shutil, "which", lambda _: "/usr/bin/java")
    assert "ROQ_KAFKA_JARS" in str(kafka.missing())
    monkeypatch.setattr(jetstream.nats_core, "missing", lambda: "no server")
    assert jetstream.missing(always=True) == "no server"
