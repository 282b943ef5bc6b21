"""What a server of JetStream is told, and when it cannot be asked for a sync after each write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roq.benchmarks.contenders import jetstream
from roq.benchmarks.contenders.jetstream import JetStreamServer


def test_a_server_has_a_store_and_syncs_when_it_is_to() -> None:
    assert "sync_interval: always" in JetStreamServer(always=True).settings(Path("/home"))
    assert "sync_interval" not in JetStreamServer(always=False).settings(Path("/home"))
    assert '"/home/store"' in JetStreamServer(always=False).settings(Path("/home"))


@pytest.mark.parametrize(
    ("version", "cannot"), [("v2.9.10", True), ("v2.10.27", False), ("v3.0.0", False)]
)
def test_an_earlier_server_cannot_sync_after_each_write(
    monkeypatch: pytest.MonkeyPatch, version: str, cannot: bool
) -> None:
    told = subprocess.CompletedProcess([], 0, stdout=f"nats-server: {version}\n", stderr="")
    monkeypatch.setattr(jetstream.subprocess, "run", lambda *_, **__: told)
    monkeypatch.setattr(jetstream.nats_core, "missing", lambda: None)
    assert (jetstream.missing(always=True) is not None) is cannot
    assert jetstream.missing(always=False) is None
