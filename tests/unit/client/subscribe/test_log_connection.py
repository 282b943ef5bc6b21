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
