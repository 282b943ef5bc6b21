import json
from statistics import fmean

import msgspec
from forecasts import case

from simulation import reaction
from simulation.description.scenario import Phase, PublisherGroup, QueueSettings, Scenario
from simulation.forecast.calibration import NAME, Facts, compare
from simulation.forecast.cell import play
from simulation.forecast.parameters import Parameters
from simulation.scenario.results import RESULTS

REACTION_ERROR_SECONDS = 0.4
SEEDS = range(40)


def facts() -> Facts:
    return msgspec.json.decode((RESULTS / f"{NAME}.json").read_bytes(), type=Facts)


def test_the_model_is_as_near_to_the_real_run_as_the_docs_say() -> None:
    found = compare(facts())
    assert [each.text for each in found.targets if not each.reached] == []


def test_a_model_that_is_wrong_is_noticed() -> None:
    seen = facts()
    wrong = msgspec.structs.replace(seen, exchanges=[min(3, each) for each in seen.exchanges])
    assert not all(each.reached for each in compare(wrong).targets)
    plan = msgspec.structs.replace(seen.plan, limit=2 * seen.plan.limit, policy="known")
    assert not all(
        each.reached for each in compare(msgspec.structs.replace(seen, plan=plan)).targets
    )


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
    measured += facts().serve_seconds
    assumed = Parameters()
    middle = (assumed.serve_least + assumed.serve_most) / 2
    assert abs(middle - fmean(measured)) <= 0.4
