"""The last page of the demo says what was measured, and whether every byte arrived."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from roq.cli.demo_result import show
from roq.demo.latency import Histogram
from roq.demo.report import Comparison, Row, StreamDigest
from roq.demo.run import DemoOutcome


def histogram(*seconds: float) -> Histogram:
    made = Histogram()
    for each in seconds:
        made.add(each)
    return made


SENT = StreamDigest(publisher="abcdefghij", topic="t", messages=1_000, bytes=8, sha256="f" * 64)
OUTCOME = DemoOutcome(
    verdict=Comparison((Row(SENT, (True, True)),), 0), messages=1_000, bytes=2_000_000,
    subscribers=2, seconds=2.0, calm=histogram(0.001), full=histogram(0.01), lost=0, duplicates=0,
)  # fmt: skip


def page(outcome: DemoOutcome) -> str:
    out = io.StringIO()
    show(Console(file=out, width=160), outcome)
    return out.getvalue()


def test_rates_are_of_what_was_published_and_of_what_all_subscribers_got() -> None:
    lines = [line.split() for line in page(OUTCOME).splitlines()]
    (published,) = [line for line in lines if line[:1] == ["published"]]
    (received,) = [line for line in lines if line[:3] == ["received", "by", "2"]]
    assert (published[1], published[-2:]) == ("1,000", ["500", "1.0"])
    assert (received[3], received[-2:]) == ("2,000", ["1,000", "2.0"])


def test_that_all_has_arrived_is_said_in_a_sentence() -> None:
    text = page(OUTCOME)
    assert "1 streams, 2 subscribers: every byte arrived at each of them" in text
    assert text.count("✔ equal") == 2
    assert "abcdefgh " in text


def test_what_differs_is_marked_and_counted() -> None:
    verdict = Comparison((Row(SENT, (True, False)),), 3)
    text = page(replace(OUTCOME, verdict=verdict, lost=1_200))
    assert (text.count("✔ equal"), text.count("✘ differs")) == (1, 1)
    assert "Something differs: 1,200 messages lost, 3 streams that no publisher sent." in text
