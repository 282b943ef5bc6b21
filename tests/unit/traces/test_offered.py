"""What a scenario wants to be sent, second by second, is what it wants in all."""

from __future__ import annotations

import pytest

from simulation.description.rates import Burst, Ramp
from simulation.description.scenario import Phase, PublisherGroup, Scenario
from simulation.traces.offered import offered

SCENARIO = Scenario(
    name="a-test",
    title="a test",
    phases=[
        Phase(name="one", seconds=10, publishers=[PublisherGroup(count=3, rate=Ramp(0, 20))]),
        Phase(
            name="two",
            seconds=7.5,
            publishers=[
                PublisherGroup(count=8, rate=10.0, spawn_rate=2.0),
                PublisherGroup(count=40, rate=Burst(1, 9, 2, 1), spawn_rate=3.0),
            ],
        ),
        Phase(name="silence", seconds=5),
    ],
)


@pytest.mark.parametrize("width", [22.5, 1.0, 0.3, 7.0])
def test_windows_add_up_to_the_whole(width: float) -> None:
    count = int(22.5 / width) + 1
    parts = sum(offered(SCENARIO, i * width, (i + 1) * width) for i in range(count))
    assert parts == pytest.approx(sum(phase.offered()[0] for phase in SCENARIO.phases))


def test_rates_are_those_of_the_moment() -> None:
    assert offered(SCENARIO, 4.5, 5.5) == pytest.approx(3 * 10)
    assert offered(SCENARIO, 18.0, 20.0) == 0
    assert offered(SCENARIO, -5.0, 0.0) == 0
    assert offered(SCENARIO, 9.0, 8.0) == 0
