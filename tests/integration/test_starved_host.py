"""A host that gets hardly any processor kills nothing, and is whole soon when it gets some."""

from __future__ import annotations

import pytest

from roq.simulation import starved
from roq.simulation.quota import missing

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(autouse=True)
def _needs_a_quota() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("percent", [8.0, 4.0])
def test_nothing_is_killed_with_little_processor_and_the_host_is_whole_soon_after(
    percent: float,
) -> None:
    row = starved.starve(percent, queues=10, seconds=30.0)
    assert row.killed == 0
    assert row.restarts == 0
    assert row.whole_seconds is not None
    assert row.whole_seconds <= starved.WHOLE_SECONDS
    # Whether eight percent are too little depends on the machine.
    assert row.told or percent > 4.0
