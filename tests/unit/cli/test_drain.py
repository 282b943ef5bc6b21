"""`roq host drain --wait`, against a cluster of paper."""

from __future__ import annotations

import pytest
from paper_hosts import PaperCluster, run, summary

from roq.cli import drain as module
from roq.client.admin.views import Listing
from roq.errors import Unavailable
from roq.protocol.public_answers import FromMemory


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)


def test_what_is_left_is_told_until_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while another manager begins to lead."""
    cluster = PaperCluster(
        summary("draining", "x1 of q", "the monitor of q"),
        Unavailable("nobody answers"),
        summary("draining", state="awaited"),
        summary("draining", "the monitor of q"),
        summary("draining"),
    )
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code == 0
    assert "left on h1: x1 of q, the monitor of q\n" in text
    assert text.endswith("host h1 holds nothing\n")


def test_no_room_elsewhere_ends_the_wait_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.01)
    cluster = PaperCluster(summary("draining", "x1 of q", stuck="no host can take it: h2 is full"))
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code == 1
    assert "h2 is full" in text
    assert "roq host uncordon h1" in text


def test_a_drain_that_takes_too_long_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q (1 subscriber not at its end yet)"))
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait", "--within", "1")
    assert code == 1
    assert "1 subscriber not at its end yet" in text


def test_a_drain_that_is_taken_back_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q"), summary("active"))
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code == 1
    assert "not being drained any more" in text


def test_a_list_from_memory_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining"))
    memory = Listing([summary("draining")], FromMemory(seconds=1, reason="away"))
    monkeypatch.setattr(cluster, "hosts", lambda: memory)
    assert run(monkeypatch, cluster, "drain", "h1", "--wait", "--within", "1")[0] == 1
