"""The connection of a reader; what comes by it is tested with the subscriber."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from roq.client.subscribe.log_connection import BURST, LogConnection


def test_a_burst_ends_though_a_large_message_goes_on_coming() -> None:
    asked: list[int] = []

    def receive(most: int) -> list[list[bytes]]:
        asked.append(most)
        assert len(asked) <= BURST
        return []

    connection = SimpleNamespace(
        _live=SimpleNamespace(receive=receive, more=True), _clock=lambda: 0.0,
        reader=SimpleNamespace(live=None),
    )  # fmt: skip
    assert LogConnection.take_burst(cast("LogConnection", connection))
    assert asked


def test_a_fan_out_that_brings_a_large_message_is_not_silent() -> None:
    now, heard = 100.0, []

    def lost(_now: float, live_at: float, _answered: float | None, *, stands: bool) -> bool:
        heard.append(live_at)
        return not stands

    connection = SimpleNamespace(
        _questions=SimpleNamespace(up=False), _liveness=SimpleNamespace(lost=lost, doubted=False),
        _reactor=SimpleNamespace(now=lambda: 1_000.0), _stands=True,
        _live=SimpleNamespace(heard_at=999.5), reader=SimpleNamespace(live_at=80.0),
    )  # fmt: skip
    LogConnection._is_lost(cast("LogConnection", connection), now)
    assert heard == [99.5]
