"""The model of whole clusters: whatever is played, nothing is made up and nothing gets lost."""

from __future__ import annotations

import msgspec
from forecasts import LIMIT, case, rate_of, scenario
from hypothesis import given, settings
from hypothesis import strategies as st

from roq.simulation.forecast.case import Case
from roq.simulation.forecast.cell import Cell, play
from roq.simulation.forecast.outcome import Outcome
from roq.simulation.scenario.rates import Burst, Diurnal, Ramp, Step
from roq.simulation.scenario.scenario import Fault

SHARES = st.floats(0.05, 4.5)


@st.composite
def cases(draw: st.DrawFn, *, faults: bool = True) -> Case:
    publishers = draw(st.integers(1, 90))
    unit = rate_of(1.0, publishers)
    low, high = draw(SHARES) * unit, draw(SHARES) * unit
    rate = draw(
        st.sampled_from([
            low,
            Ramp(start=low, end=high),
            Step(rates=[low, high, low]),
            Burst(base=min(low, high), peak=max(low, high), every=12, width=5),
            Diurnal(low=min(low, high), high=max(low, high), period=50),
        ])
    )  # fmt: skip
    broken = [
        Fault(at=at, kind="kill", target=target, index=index)
        for at, target, index in draw(
            st.lists(
                st.tuples(
                    st.floats(1, 110),
                    st.sampled_from(["exchange", "host", "monitor"]),
                    st.integers(0, 9),
                ),
                max_size=2 if faults else 0,
            )
        )
    ]
    played = scenario(
        rate,
        high,
        publishers=publishers,
        exchanges=draw(st.integers(1, 3)),
        faults=tuple(broken),
        policy=draw(st.sampled_from(["balanced", "balanced", "known", "spread"])),
        exchanges_max=draw(st.integers(3, 5)),
        cooldown_seconds=draw(st.sampled_from([1, 5, 20])),
        queue_publishers_per_exchange=draw(st.sampled_from([0, 20])),
    )
    return case(
        played,
        seed=draw(st.integers(0, 1_000)),
        queues=draw(st.integers(1, 3)),
        spread=draw(st.sampled_from([0.0, 0.5, 1.2])),
        move_failures=draw(st.sampled_from([0.0, 0.0, 0.2])),
    )


def without(outcome: Outcome, *names: str) -> Outcome:
    others = {name: each for name, each in outcome.figures.items() if name not in names}
    return msgspec.structs.replace(outcome, figures=others)


def without_time(outcome: Outcome) -> Outcome:
    return without(outcome, "cpu_seconds", "asked", "asked_ahead", "rounds")


@settings(max_examples=25, deadline=None)
@given(cases())
def test_the_same_case_has_the_same_outcome(case: Case) -> None:
    first, second = play(case), play(case)
    assert without(first, "cpu_seconds") == without(second, "cpu_seconds")


@settings(max_examples=40, deadline=None)
@given(cases())
def test_who_is_not_asked_would_have_decided_nothing(case: Case) -> None:
    asked_always = play(msgspec.structs.replace(case, eager=True))
    assert without_time(play(case)) == without_time(asked_always)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_what_is_offered_is_carried_by_somebody_and_rules_are_kept(case: Case) -> None:
    cell = Cell(case)
    rules = case.elastic_rules()
    slots = case.parameters.host_slots
    for now in cell.steps():
        for queue in cell.queues:
            population = queue.population
            publishers = population.publishers
            population.check()
            assert len(population.exchanges) <= max(
                rules.exchanges_max, case.scenario.queue.exchanges
            )
            offered = sum(
                publishers.weight[each] * cell.load.groups[publishers.group[each]].bytes.at(now)
                for each in range(len(publishers))
                if publishers.there[each] and publishers.place[each]
            )
            queue.account.pass_until(now, population.exchanges)
            queue.account.renew(now, now, population.exchanges)
            assert abs(queue.account.present.total - offered) <= 1e-6 * LIMIT
            nowhere = sum(
                publishers.there[each] and not publishers.place[each]
                for each in range(len(publishers))
            )
            assert queue.account.unserved == nowhere
        for name in cell.hosts.names:
            assert 0 <= cell.hosts[name].exchanges <= slots
    there = sum(cell.hosts[name].exchanges for name in cell.hosts.names)
    assert there == sum(len(queue.population.living()) for queue in cell.queues)
    assert all(queue.tally.policy_errors == 0 for queue in cell.queues)


@settings(max_examples=25, deadline=None)
@given(share=SHARES, publishers=st.integers(1, 80), seed=st.integers(0, 1_000))
def test_by_steady_load_nobody_moves_in_the_long_run(share, publishers, seed) -> None:
    played = scenario(rate_of(share, publishers), seconds=1_200.0, publishers=publishers)
    outcome = play(case(played, seed=seed))
    late = [what for when, what, _ in outcome.events if when > 120]
    assert late == []


@settings(max_examples=25, deadline=None)
@given(cases(faults=False))
def test_cells_of_a_cluster_add_up(case: Case) -> None:
    case = msgspec.structs.replace(case, queues=4, cells=2)
    every = (play(msgspec.structs.replace(case, cells=1)), play(case))
    whole, parts = (each.figures for each in every)
    # Queues do not know of each other as long as there is room for all of them.
    for name in ("hosts", "queues", "publishers", "moves", "scale_outs"):
        assert parts[name] == whole[name]
    assert abs(parts["bytes"] - whole["bytes"]) <= 1e-6 * whole["bytes"]
