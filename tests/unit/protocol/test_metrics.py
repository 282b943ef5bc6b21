"""Figures that are counted by state."""

from __future__ import annotations

from roq.protocol.metrics import Sample, by_state, gauge

HOSTS = gauge("roq_hosts", "Hosts.", "state")


def test_every_known_state_has_a_sample_and_unknown_ones_have_none() -> None:
    found = by_state(HOSTS, ["live", "live", "dancing"], ["live", "lost"])
    assert list(found) == [Sample(HOSTS, 2, ("live",)), Sample(HOSTS, 0, ("lost",))]
