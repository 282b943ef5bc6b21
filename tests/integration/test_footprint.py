"""What idle queues cost is measured, and nothing of them is left."""

from __future__ import annotations

import pytest

from roq.simulation.experiments import footprint

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_idle_queues_are_made_measured_by_kind_of_process_and_removed() -> None:
    outcome = footprint.measure(queues=2, seconds=2.0)
    assert outcome.failed == []
    assert outcome.left == 0
    assert outcome.reached
    counted = {kind.name: kind.processes for kind in outcome.kinds}
    assert counted == {"monitor": 1, "exchange": 2, "hcm": 1, "gcm": 1}
    assert all(0 < kind.megabytes < 200 for kind in outcome.kinds)
    assert [target.text for target in outcome.targets][:1] == ["memory of a queue"]
