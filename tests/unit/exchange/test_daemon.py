"""The sockets of an exchange; what it does with them is tested where others use it."""

from __future__ import annotations

import pytest

from roq.exchange.daemon import ExchangeServer
from roq.model import Limits
from roq.protocol.spec import ExchangeSpec

SPEC = ExchangeSpec(
    child="q.x1", queue="q", queue_id=b"q" * 16, epoch=5, bind="127.0.0.1",
    advertise="127.0.0.1", ports=(0, 0), manager="", monitor="", number=1, host="127.0.0.1",
    limits=Limits(),
)  # fmt: skip


def test_what_a_turn_publishes_itself_is_handed_out_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delayed message that is due when something else is read: no timer looks for it any more."""
    server, published = ExchangeServer(SPEC), list[int]()
    monkeypatch.setattr(server.core.later, "run", lambda: published.append(1) or [])
    monkeypatch.setattr(server.core.consumers, "runnable", lambda: bool(published))
    try:
        server._data_readable()
        assert published == [1]
        assert server._readers._serving
    finally:
        server.close()
