import json
from functools import cache
from statistics import fmean

import msgspec
import pytest
from forecasts import case
from runs import run_of, series_of

from roq.errors import ConfigError
from roq.simulation.experiments import reaction
from roq.simulation.forecast.calibration import (
    FITTED,
    FULL_PERCENT,
    STATED,
    Comparison,
    compare,
    error_of,
    facts_of,
    known,
)
from roq.simulation.forecast.cell import play
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.record import remarks_of
from roq.simulation.lab.archive.document import RunKind
from roq.simulation.real.results import RESULTS
from roq.simulation.scenario.scenario import Phase, PublisherGroup, QueueSettings, Scenario

REACTION_ERROR_SECONDS = 0.4
SEEDS = range(40)


@cache
def compared(run: str) -> Comparison:
    (facts,) = [each for each in known() if each.run == run]
    return compare(facts)


@pytest.mark.parametrize("facts", known(), ids=lambda facts: facts.run)
def test_the_model_is_as_near_to_the_real_run_as_the_docs_say(facts) -> None:
    assert [each.text for each in compared(facts.run).targets if not each.reached] == []


def test_forecasts_state_the_error_of_runs_that_the_model_had_not_seen() -> None:
    unseen = [compared(each.run) for each in known() if each.scenario.name not in FITTED]
    assert unseen
    errors = [error_of(each.facts, each.played) for each in unseen]
    for name in STATED.__struct_fields__:
        worst, stated = max(getattr(each, name) for each in errors), getattr(STATED, name)
        assert worst <= stated < worst + 0.02, name
    said = " ".join(remarks_of(case(unseen[0].facts.scenario), None))
    assert f"off by up to {STATED.hours:.0%} in exchange-hours" in said


def test_latency_is_held_where_the_machine_was_not_full() -> None:
    (facts,) = [each for each in known() if each.scenario.name == "step"]
    crowded = msgspec.structs.replace(facts.machine, busy_percent=FULL_PERCENT)
    full = {each.text for each in compare(msgspec.structs.replace(facts, machine=crowded)).targets}
    calm = msgspec.structs.replace(facts.machine, busy_percent=40.0)
    figures = {**facts.figures, "cpu_seconds": 0.1, "latency_p50_ms": 0.5, "latency_p99_ms": 500.0}
    found = {
        each.text: each
        for each in compare(msgspec.structs.replace(facts, machine=calm, figures=figures)).targets
    }
    p50, p99 = (found[f"latency {name}, factor either way"] for name in ("p50", "p99"))
    assert p50.reached
    assert not p99.reached
    assert {p50.text, p99.text} & full == set()


@pytest.mark.parametrize("facts", known(), ids=lambda facts: facts.run)
def test_a_model_that_is_wrong_is_noticed(facts) -> None:
    most = max(facts.serving)
    others = [min(most - 1, each) if most > 1 else 2 for each in facts.serving]
    wrong = msgspec.structs.replace(facts, serving=others)
    assert not all(each.reached for each in compare(wrong).targets)
    queue = facts.scenario.queue
    times = 2.0 if facts.moves[-1] else 0.25
    limit = {
        "exchange_bytes_per_minute": int(
            times * float(queue.rules.get("exchange_bytes_per_minute", 4e6))
        )
    }
    other = msgspec.structs.replace(queue, rules={**queue.rules, **limit})
    scenario = msgspec.structs.replace(facts.scenario, queue=other)
    found = compare(msgspec.structs.replace(facts, scenario=scenario))
    assert not all(each.reached for each in found.targets)


def test_facts_are_taken_from_a_live_run_and_from_no_other() -> None:
    facts = facts_of(run_of("a"), series_of(10))
    assert facts.serving == [1] * 5 + [2] * 5
    assert facts.moves == [0] * 4 + [1] * 6
    assert (facts.scale_outs, facts.scale_ins) == (1, 0)
    with pytest.raises(ConfigError, match="no complete live run"):
        facts_of(run_of("a", RunKind.MODEL), series_of(10))
    with pytest.raises(ConfigError, match="no traces"):
        facts_of(run_of("a"), series_of(0))


def overloaded(seed: int) -> float:
    """Seconds until somebody has left an exchange that gets twice what it may take."""
    light, heavy = 0.4 * reaction.UNIT / 16, 2.0 * reaction.UNIT / 8
    groups = [PublisherGroup(count=8, rate=light, size=reaction.PAYLOAD)] * 2
    busy = [PublisherGroup(count=8, rate=heavy, size=reaction.PAYLOAD), groups[1]]
    played = Scenario(
        name="overload",
        title="one of two exchanges",
        queue=QueueSettings(
            exchanges=2,
            rules={
                "exchange_bytes_per_minute": reaction.LIMIT,
                "exchanges_max": 2,
                "cooldown_seconds": 1,
            },
        ),
        phases=[
            Phase(name="light", seconds=8, publishers=groups),
            Phase(name="heavy", seconds=10, publishers=busy),
        ],
    )
    outcome = play(case(played, seed=seed, spread=0.0))
    return min(when for when, what, _ in outcome.events if what == "move") - 8


def test_it_reacts_to_an_overload_as_fast_as_real_processes() -> None:
    measured = json.loads((RESULTS / "reaction.json").read_text())["overload_seconds"]
    modelled = [overloaded(seed) for seed in SEEDS]
    assert abs(fmean(modelled) - fmean(measured)) <= REACTION_ERROR_SECONDS
    assert min(modelled) - 0.5 <= min(measured)
    assert max(measured) <= max(modelled) + 0.5


def test_new_exchanges_serve_as_soon_as_in_the_real_runs() -> None:
    measured = json.loads((RESULTS / "reaction.json").read_text())["serve_seconds"]
    measured += [
        each.figures["serve_seconds"] for each in known() if "serve_seconds" in each.figures
    ]
    assumed = Parameters()
    middle = (assumed.serve_least + assumed.serve_most) / 2
    assert abs(middle - fmean(measured)) <= 0.4
