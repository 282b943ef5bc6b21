"""What people see of a load grows micro-batch by micro-batch."""

from __future__ import annotations

import pytest

from roq.demo.latency import Histogram
from roq.simulation.lab.traces.view import Seen, later


def client(role: str, messages: int, **more: int) -> dict[str, object]:
    return {"what": role, "messages": messages, "failed": 0, "late": 0, **more}


def histogram(*seconds: float) -> Histogram:
    found = Histogram()
    for each in seconds:
        found.add(each)
    return found


def exchange(number: int, rate: float) -> dict[str, object]:
    return {
        "what": "exchange", "exchange": number, "messages_in_per_second": rate,
        "bytes_in_per_second": 10 * rate, "messages_out_per_second": 2 * rate, "moves": 0,
    }  # fmt: skip


QUEUE = {"what": "queue", "exchange": None, "exchanges": 2, "moving": 1, "moves": 0}
MOVES = {"what": "move", "exchange": None, "moves": 3}


def test_counts_add_up_and_what_was_told_last_stands() -> None:
    told = [
        client("publisher", 100, failed=1, late=5), client("subscriber", 200), exchange(1, 50.0),
        exchange(2, 30.0), QUEUE, MOVES,
    ]  # fmt: skip
    seen = later(Seen(), told, histogram(*[0.001] * 90, *[0.02] * 10))
    assert seen.p99 == pytest.approx(0.02, rel=0.02)
    assert seen._replace(p99=None) == Seen(
        sent=100, failed=1, late=5, received=200, messages_in=80.0, bytes_in=800.0,
        messages_out=160.0, exchanges=2, moves=3, moving=1,
    )  # fmt: skip
    again = later(seen, [client("publisher", 10), client("subscriber", 7), MOVES], histogram())
    assert again == seen._replace(sent=110, received=207, moves=6)
    assert later(seen, [], histogram()) == seen
