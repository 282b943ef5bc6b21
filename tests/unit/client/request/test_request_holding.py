"""How far requests are that an instance holds together."""

from __future__ import annotations

from roq.client.consume.holding import ACKED
from roq.client.request.request_holding import RUNS, WAITING, RequestHolding
from roq.model import LogId, PublisherId
from roq.read.message import Batch


def test_those_at_one_stage_come_in_runs_without_what_has_ended() -> None:
    batch = Batch([b"x"] * 6, "s/do", PublisherId(bytes(16)), 0, 0, 0, None)
    holding = RequestHolding(LogId(1, 1), 5, 1, 10, 1, batch)
    assert holding.open_at(0) == [(0, 6)]
    holding.stages[:] = bytes((WAITING, WAITING, RUNS, WAITING, RUNS, 0))
    holding.states[4] = ACKED
    assert holding.open_at(WAITING) == [(0, 2), (3, 1)]
    assert holding.open_at(RUNS) == [(2, 1)]
    assert holding.open_at(0) == [(5, 1)]
