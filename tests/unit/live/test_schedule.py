"""When messages are due."""

from __future__ import annotations

import pytest

from roq.simulation.lab.live.plan import PublisherStay, Stretch
from roq.simulation.lab.live.schedule import FlatOut, Schedule
from roq.simulation.scenario.draws import Topics
from roq.simulation.scenario.rates import NEVER, Burst, Diurnal, Ramp, Rate, Step, Trace, sent_by

PHASE = 10.0


def stay_of(
    *rates: Rate, begins: float = 0.0, stagger: float = 0.0, phase: float = PHASE
) -> PublisherStay:
    stretches = [
        Stretch(
            begins=begins if not number else number * phase,
            ends=(number + 1) * phase,
            phase_begins=number * phase,
            phase_seconds=phase,
            rate=rate,
            size=100,
            topics=Topics(),
        )
        for number, rate in enumerate(rates)
    ]
    return PublisherStay(name="p", source=0, stagger=stagger, stretches=stretches)


def all_of(schedule: Schedule, until: float, step: float = 0.0371) -> list[float]:
    found: list[float] = []
    now = 0.0
    while now < until:
        now += step
        while more := schedule.take(now, 7):
            assert all(moment <= now + 1e-9 for moment in more)
            found += more
    return found


RATES = [
    50.0,
    Ramp(10, 200),
    Ramp(200, 0),
    Step([100, 0, 300]),
    Burst(base=20, peak=400, every=3, width=0.5),
    Diurnal(low=5, high=100, period=10),
    Trace([(0, 10), (2, 100), (5, 0), (6, 60)]),
]


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("stagger", [0.0, 0.6])
def test_message_n_is_due_when_the_integral_of_the_rate_says_so(rate: Rate, stagger: float) -> None:
    moments = all_of(Schedule(stay_of(rate, stagger=stagger)), PHASE + 1)

    assert len(moments) == int(sent_by(rate, PHASE, PHASE) + stagger + 1e-6)
    assert moments == sorted(moments)
    for number, moment in enumerate(moments):
        whole = sent_by(rate, moment, PHASE) + stagger
        assert whole == pytest.approx(number + 1, abs=0.02)


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_who_was_away_gets_everything_with_the_moments_at_which_it_was_due(rate: Rate) -> None:
    prompt = all_of(Schedule(stay_of(rate)), PHASE + 1, step=0.001)
    late = Schedule(stay_of(rate)).take(PHASE + 60, 100_000)

    assert late == pytest.approx(prompt, abs=0.002)


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_next_moment_is_known_in_advance(rate: Rate) -> None:
    schedule = Schedule(stay_of(rate, stagger=0.3))
    count = 0
    while (when := schedule.next_due()) is not NEVER:
        (found,) = schedule.take(when + 1e-5, 1)
        assert found == pytest.approx(when, abs=2e-3)
        count += 1
    assert count == int(sent_by(rate, PHASE, PHASE) + 0.3 + 1e-6)


def test_parts_of_messages_go_over_into_the_next_phase() -> None:
    schedule = Schedule(stay_of(0.15, 0.25, 0.1))

    moments = all_of(schedule, 31.0)

    assert len(moments) == 5
    assert moments == pytest.approx([20 / 3, 12, 16, 20, 30], abs=0.01)


def test_one_call_gives_messages_of_one_phase() -> None:
    schedule = Schedule(stay_of(2.0, 4.0))

    assert len(schedule.take(20.0, 1_000)) == 20
    assert schedule.stretch().rate == 2.0
    assert len(schedule.take(20.0, 1_000)) == 40
    assert schedule.stretch().rate == 4.0
    assert schedule.take(20.0, 1_000) == []


def test_who_comes_later_brings_what_the_rate_says_from_then_on() -> None:
    schedule = Schedule(stay_of(Ramp(0, 100), begins=5.0))

    assert len(all_of(schedule, 11.0)) == 375
    assert schedule.next_due() is NEVER


def test_nothing_is_due_before_its_time() -> None:
    schedule = Schedule(stay_of(1.0, begins=4.0))

    assert schedule.take(4.5, 10) == []
    assert schedule.next_due() == pytest.approx(5.0, abs=1e-4)


def test_a_long_pause_is_given_in_pieces() -> None:
    schedule = Schedule(stay_of(1000.0))

    first = schedule.take(5.0, 300)
    second = schedule.take(5.0, 300)

    assert (len(first), len(second)) == (300, 300)
    assert second[0] == pytest.approx(first[-1] + 0.001, abs=1e-6)


def test_flat_out_there_is_always_something_to_do() -> None:
    schedule = FlatOut(stay_of(1.0))

    assert schedule.take(3.0, 4) == [3.0] * 4
    assert schedule.next_due() == 3.0
    assert schedule.take(PHASE, 4) == []
