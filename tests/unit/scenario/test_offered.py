"""What a scenario wants to be sent, second by second, is what it wants in all."""

from __future__ import annotations

import pytest

from roq.simulation.forecast.load import Load
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.lab.live.plan import Plan, plan
from roq.simulation.scenario.draws import LogNormal
from roq.simulation.scenario.offered import Offered, offered, offered_by_phase
from roq.simulation.scenario.rates import Burst, Ramp, sent_by
from roq.simulation.scenario.reading import known, read
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario

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


def growing(*counts: int, rate: float = 10.0, spawn_rate: float = 1.0) -> Scenario:
    """A group that is as large as this, phase after phase of four seconds."""
    phases = [
        Phase(
            name=f"phase-{number}",
            seconds=4,
            publishers=[PublisherGroup(count=count, rate=rate, spawn_rate=spawn_rate)],
        )
        for number, count in enumerate(counts)
    ]
    return Scenario(name="growing", title="a test", phases=phases)


@pytest.mark.parametrize("width", [22.5, 1.0, 0.3, 7.0])
def test_windows_add_up_to_the_whole(width: float) -> None:
    count = int(22.5 / width) + 1
    parts = sum(offered(SCENARIO, i * width, (i + 1) * width).messages for i in range(count))
    assert parts == pytest.approx(sum(each.messages for each in offered_by_phase(SCENARIO)))


def test_rates_are_those_of_the_moment() -> None:
    assert offered(SCENARIO, 4.5, 5.5).messages == pytest.approx(3 * 10)
    assert offered(SCENARIO, 18.0, 20.0) == Offered(0, 0)
    assert offered(SCENARIO, -5.0, 0.0) == Offered(0, 0)
    assert offered(SCENARIO, 9.0, 8.0) == Offered(0, 0)


def test_who_begins_later_sends_less() -> None:
    assert offered_by_phase(growing(5)) == [Offered(10 * (4 + 3 + 2 + 1), 1_000 * (4 + 3 + 2 + 1))]


def test_who_was_there_before_goes_on_and_newcomers_take_their_turn() -> None:
    # Three come in the first phase. In the second they go on; the fourth comes after three seconds.
    assert [each.messages for each in offered_by_phase(growing(3, 4))] == [
        10 * (4 + 3 + 2),
        10 * (4 + 4 + 4 + 1),
    ]


def test_whose_turn_did_not_come_has_another_one() -> None:
    first, second = offered_by_phase(growing(8, 8, spawn_rate=0.5))
    assert first.messages == 10 * (4 + 2)
    assert second.messages == 10 * (4 + 4), "two are there; the third would begin after the end"


def test_bytes_are_those_of_what_is_drawn() -> None:
    scenario = Scenario(
        name="a-test",
        title="a test",
        phases=[
            Phase(
                name="one",
                seconds=10,
                publishers=[PublisherGroup(size=LogNormal(median=100, sigma=3, most=100))],
            )
        ],
    )
    messages, size = offered(scenario, 0, 10)
    assert messages == 10
    assert size <= 10 * 100, "no payload is larger than the largest"


@pytest.mark.parametrize(
    "scenario",
    [SCENARIO, growing(3, 4), growing(8, 8, spawn_rate=0.5), growing(2, 6, 1, 4, spawn_rate=2.0),
     *map(read, known())],
    ids=lambda scenario: scenario.name,
)  # fmt: skip
def test_live_runs_and_the_model_offer_as_much(scenario: Scenario) -> None:
    wanted = offered(scenario, 0, scenario.seconds).messages
    assert sum(_comings(scenario)) == pytest.approx(wanted, rel=2e-3)
    live = scenario.scaled(min(1.0, 60 / scenario.seconds))
    wanted = offered(live, 0, live.seconds).messages
    planned = plan(live)
    assert planned.offered == pytest.approx(wanted)
    assert _planned(planned, 1, 2) == pytest.approx(offered(live, 1, 2).messages)


def _planned(made: Plan, begin: float, end: float) -> float:
    """Messages of all stays of a live run between two moments."""
    return sum(
        sent_by(each.rate, last - each.phase_begins, each.phase_seconds)
        - sent_by(each.rate, first - each.phase_begins, each.phase_seconds)
        for stay in made.publishers
        for each in stay.stretches
        if (first := max(begin, each.begins)) < (last := min(end, each.ends))
    )


def _comings(scenario: Scenario) -> list[float]:
    """Messages of each stay of a publisher in the model."""
    load = Load(scenario, Parameters(step_seconds=1))
    came: dict[tuple[int, int], float] = {}
    found = []

    def ends(group: int, number: int, when: float) -> None:
        timeline = load.groups[group].messages
        found.append((timeline.until(when) - timeline.until(came.pop((group, number)))) / 60)

    for each in load.comings(0, 1):
        if not each.comes:
            ends(each.group, each.number, each.when)
            continue
        assert (each.group, each.number) not in came, "who is there does not come"
        came[each.group, each.number] = each.when
    for group, number in list(came):
        ends(group, number, scenario.seconds)
    return found
