"""What the benchmark of requests makes of what it has measured."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from roq.benchmarks import requests
from roq.benchmarks.durable import Store
from roq.benchmarks.requests import RequestResults
from roq.benchmarks.results import environment


@pytest.fixture
def results() -> RequestResults:
    return RequestResults(
        environment=environment(),
        rounds=3,
        askers=[
            Store("roq_none", "RoQ none", "kept"),
            Store("nats", "a peer", "not kept"),
        ],
        skipped={"gone": "it is not installed"},
        failures=["a peer: it broke"],
        rates={
            "roq_none": [1_000.0, 3_000.0, 900.0],
            "nats": [2_000.0, 4_000.0, 1_000.0],
            "celery": [50.0, 100.0, 90.0],
        },
        p50_us={"roq_none": [500.0, 600.0, 700.0], "nats": [250.0, 300.0, 350.0]},
        accepted_us={"roq_none": [120.0, 110.0, 130.0]},
        published_us={"roq_none": [100.0, 100.0, 100.0]},
    )


def test_requests_are_compared_within_each_round(results: RequestResults) -> None:
    told = dict(requests.comparisons(results))
    assert told["responses/s, roq_none by nats"] == "0.75 (0.50 – 0.90)"
    assert told["responses/s, roq_none by celery"] == "20.00 (10.00 – 30.00), wanted 15"
    assert told["p50, roq_none by nats"] == "2.00 (2.00 – 2.00)"
    assert told["roq_none: accepted by published"] == "1.20 (1.10 – 1.30)"
    assert not any("flush" in title or "p99" in title for title in told)


def test_everything_is_shown_also_what_is_missing(results: RequestResults) -> None:
    text = io.StringIO()
    requests.show(results, Console(file=text, width=200))
    shown = text.getvalue()
    for part in ("not kept", "600 µs", "it is not installed", "it broke", "0.75"):
        assert part in shown


def test_it_is_written_as_a_document(results: RequestResults, tmp_path: Path) -> None:
    (document,) = requests.write(results, tmp_path)
    assert msgspec.json.decode(document.read_bytes(), type=RequestResults).rates == results.rates
