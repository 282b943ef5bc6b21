"""A host that gets hardly any processor kills nothing, and is whole soon when it gets some."""

from __future__ import annotations

import pytest

from roq.simulation.experiments import starved
from roq.simulation.experiments.quota import missing

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(autouse=True)
def _needs_a_quota() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)


def test_nothing_is_killed_with_hardly_any_processor_and_the_host_is_whole_soon_after() -> None:
    row = starved.starve(3.0, queues=10, seconds=18.0)
    assert row.told
    assert row.killed == 0
    assert row.restarts == 0
    assert row.whole_seconds is not None
    assert row.whole_seconds <= starved.WHOLE_SECONDS
