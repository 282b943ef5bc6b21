"""A run of the model is kept like a live one: windows, events and verdicts that agree."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
from forecasts import case, rate_of, scenario

from roq.errors import ConfigError
from roq.simulation.forecast import record
from roq.simulation.forecast.calibration import latency as latency_of
from roq.simulation.forecast.cell import play
from roq.simulation.forecast.order import RunOrder, case_of
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.run import run
from roq.simulation.forecast.windows import LEVELS, PARTS, Latency, waits_for_core
from roq.simulation.lab.archive.document import EventKind, RunKind, RunState
from roq.simulation.lab.archive.folder import read_run, read_series
from roq.simulation.scenario.draws import Topics
from roq.simulation.scenario.offered import offered_by_phase
from roq.simulation.scenario.rates import Ramp
from roq.simulation.scenario.scenario import (
    Fault,
    Phase,
    PublisherGroup,
    QueueSettings,
    Scenario,
    SubscriberGroup,
)


def ramp(**sizes: int) -> tuple[record.Case, record.Outcome]:
    unit = rate_of(1.0, 12)
    kill = Fault(at=70, kind="kill", target="exchange", index=0)
    load = scenario(Ramp(start=0.3 * unit, end=3 * unit), 2 * unit, faults=(kill,))
    played = record.detailed(msgspec.structs.replace(case(load), **sizes), seed=3)
    return played, play(played)


def test_a_run_is_kept_with_its_figures_and_verdicts(tmp_path: Path) -> None:
    folder = run(RunOrder(scenario="ramp", out=tmp_path))
    kept, series = read_run(folder), read_series(folder)
    assert (kept.kind, kept.state, kept.id) == (RunKind.MODEL, RunState.COMPLETE, folder.name)
    assert [phase.name for phase in kept.phases] == ["low", "rise", "high", "fall"]
    holds = {each.expected.what: each.holds for each in kept.verdicts}
    assert holds == {
        "lost": None, "doubled": None, "reordered": None, "failed": None, "exchanges_most": True,
        "load_reached": True,
    }  # fmt: skip
    assert len(series.windows) == 90
    assert series.window_seconds == 1.0
    assert max(window.serving for window in series.windows) == kept.figures["exchanges_most"]
    kinds = [each.kind for each in series.events]
    assert kinds.count(EventKind.SCALE_OUT) == kept.figures["scale_outs"] > 0
    assert kinds.count(EventKind.MOVE) == kept.figures["moves"] > 0


def test_what_is_kept_are_the_hosts_and_rules_that_were_played(tmp_path: Path) -> None:
    settings = {"exchanges_max": 2}
    folder = run(RunOrder(scenario="ramp", hosts=50, settings=settings, out=tmp_path))
    kept = read_run(folder).scenario
    asked = case_of(RunOrder(scenario="ramp"), "ramp").scenario
    assert asked.hosts != 50
    assert kept.hosts == 50
    assert kept.queue.rules == {**asked.queue.rules, "exchanges_max": 2}
    assert kept.phases == asked.phases


def test_a_run_that_no_scenario_could_describe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be played so"):
        run(RunOrder(scenario="ramp", publishers=10_000_000, out=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_mean_latency_is_that_of_messages_not_of_bytes() -> None:
    phase = Phase(
        name="load",
        seconds=60,
        publishers=[
            PublisherGroup(count=4, rate=2_000.0, size=100),
            PublisherGroup(count=4, rate=20.0, size=50_000),
        ],
        subscribers=[SubscriberGroup(count=2)],
    )
    load = Scenario(
        name="mixed", title="a test", queue=QueueSettings(exchanges=3), hosts=3, phases=[phase]
    )
    found = play(record.detailed(case(load), seed=1))
    wanted = sum(each.latency_messages for each in found.windows) / found.figures["messages"]
    assert found.figures["latency_mean_ms"] == pytest.approx(wanted)


def test_windows_add_up_to_the_run() -> None:
    played, found = ramp()
    series = record.series_of(played, found)
    windows, seconds = series.windows, series.window_seconds
    figures = record.figures_of(played, found)
    for name, total in (("messages_in", "messages"), ("bytes_in", "bytes")):
        added = sum(getattr(each, name) for window in windows for each in window.exchanges)
        assert added * seconds == pytest.approx(found.figures[total])
    assert figures["received"] == pytest.approx(2 * found.figures["messages"])
    offered = sum(window.offered for window in windows) * seconds
    wanted = offered_by_phase(played.scenario)
    assert offered == pytest.approx(sum(each.messages for each in wanted))
    late = sum(window.latency.count for window in windows if window.latency)
    assert late == pytest.approx(found.figures["messages"], rel=1e-3)
    assert {each.exchange for window in windows for each in window.exchanges} >= {1, 2, 3}
    assert [each.text for each in series.events if each.kind is EventKind.FAULT] == [
        "kill exchange"
    ]
    assert [each.kind for each in series.events].count(EventKind.SERVES) == 1


def test_windows_change_nothing() -> None:
    played, found = ramp()
    plain = play(msgspec.structs.replace(played, windows=0))
    assert plain.windows == []
    for name in ("bytes", "overload_minutes", "latency_mean_ms", "exchange_hours"):
        assert plain.figures[name] == pytest.approx(found.figures[name])
    assert (plain.figures["moves"], plain.events) == (found.figures["moves"], found.events)


def test_of_several_queues_all_exchanges_are_told_together() -> None:
    played, found = ramp(queues=2, cells=2)
    series = record.series_of(played, found)
    assert {each.exchange for window in series.windows for each in window.exchanges} == {0}
    assert max(window.serving for window in series.windows) == found.figures["exchanges_most"] > 2
    assert sum(window.exchanges[0].bytes_in for window in series.windows) == pytest.approx(
        found.figures["bytes"] / series.window_seconds
    )
    assert len(series.windows) == record.WINDOWS_OF_MANY


def test_a_queue_without_load_has_windows_that_say_so() -> None:
    played = record.detailed(case(scenario(0.0, seconds=10.0)), seed=1)
    series = record.series_of(played, play(played))
    assert [window.serving for window in series.windows] == [1] * 10
    assert all(window.latency is None and window.imbalance is None for window in series.windows)
    assert all(window.exchanges[0].publishers == 12 for window in series.windows)


def test_in_a_tenth_of_the_time_the_published_experiment_has_all_its_publishers(tmp_path) -> None:
    folder = run(RunOrder(scenario="eqs-2011", scale=0.1, out=tmp_path))
    kept, series = read_run(folder), read_series(folder)
    assert kept.time_scale == 0.1
    assert kept.seconds == pytest.approx(108)
    assert sum(each.publishers for each in series.windows[-1].exchanges) == 16
    assert kept.figures["exchanges_last"] == 4
    assert kept.figures["load_reached"] == pytest.approx(1.0)
    assert kept.figures["took_seconds"] > 0
    assert "took_seconds" not in kept.settings  # runs that took longer were asked for the same


def test_what_is_not_modelled_is_said() -> None:
    played, found = ramp()
    said = " ".join(record.remarks_of(played, found))
    assert "no exchange is not counted" in said
    faults = case_of(RunOrder(scenario="faults"), "faults")
    assert "left out: pause monitor" in " ".join(record.remarks_of(faults, None))


def test_what_cannot_be_played_leaves_no_folder(tmp_path: Path) -> None:
    for order, text in (
        (RunOrder(scenario="nothing", out=tmp_path), "no scenario 'nothing'"),
        (RunOrder(scenario="ramp", settings={"cooldown": 1}, out=tmp_path), "nothing called"),
        (RunOrder(scenario="ramp", queues=40, out=tmp_path), "do not fit"),
    ):
        with pytest.raises(ConfigError, match=text):
            run(order)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_interrupted_says_so(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if (done, total) == (1, 2):
            raise KeyboardInterrupt

    order = RunOrder(scenario="ramp", queues=2, cells=2, out=tmp_path)
    kept = read_run(run(order, interrupt))
    assert kept.state is RunState.INTERRUPTED
    assert kept.figures == {}


@pytest.mark.parametrize("used", [0.1, 0.6, 0.95])
def test_the_distribution_of_latencies_has_the_mean_of_the_formula(used: float) -> None:
    latency = Latency(0.001, 0.01, used)
    assert sum(parts for _, parts in LEVELS) == PARTS
    mean = sum(latency.quantile(level) * parts for level, parts in LEVELS) / PARTS
    assert mean == pytest.approx(latency.mean, rel=0.02)
    assert latency.quantile(0.5) <= latency.quantile(0.99) < latency.quantile(0.999)


@pytest.mark.parametrize(
    ("cores", "used", "probability"),
    [(1, 0.6, 0.6), (2, 0.5, 2 * 0.25 / 1.5), (2, 0.0, 0.0), (0.5, 0.3, 0.3)],
)
def test_all_cores_are_taken_as_often_as_erlang_says(
    cores: float, used: float, probability: float
) -> None:
    assert waits_for_core(cores, used) == pytest.approx(probability)


@pytest.mark.parametrize("queued", [0.05, 0.5, 0.95])
def test_the_wait_for_a_core_has_the_mean_and_the_tail_of_as_many_draws(queued: float) -> None:
    latency = Latency(0.001, 0.0001, 0.0, queued=queued, core=0.003)
    random, draws = Random(1), 20_000
    waits = sorted(
        0.0011
        + (random.expovariate(1 / 0.003) if random.random() < queued else 0.0)
        for _ in range(draws)
    )  # fmt: skip
    assert latency.mean == pytest.approx(sum(waits) / draws, rel=0.05)
    for level in (0.5, 0.9, 0.99):
        assert latency.quantile(level) == pytest.approx(waits[int(level * draws)], rel=0.08)


def busy(outcome: record.Outcome) -> float:
    return outcome.figures["busy_seconds"]


def test_messages_wait_longer_for_each_other_than_for_what_computes_all_the_time() -> None:
    phase = Phase(name="load", seconds=10, publishers=[PublisherGroup(count=4, rate=500, size=100)])
    load = Scenario(name="n", title="t", phases=[phase])

    def played(**parameters: float) -> record.Outcome:
        return play(msgspec.structs.replace(case(load, host_cores=2.0, **parameters), windows=10))

    cores = 1.2
    clients = played(client_us=1e6 * cores / 2_000)
    hogs, more_hogs = played(others_cores=cores), played(others_cores=cores + 1)
    assert latency_of(clients, 99) > 1.5 * latency_of(hogs, 99)
    assert latency_of(hogs, 99) < latency_of(more_hogs, 99) < latency_of(clients, 99)


def test_a_full_host_makes_messages_wait_and_small_batches_cost_as_much_as_large_ones() -> None:
    phase = Phase(name="load", seconds=10, publishers=[PublisherGroup(count=4, rate=100, size=100)])
    load = Scenario(name="n", title="t", phases=[phase])

    def played(**parameters: float) -> record.Outcome:
        return play(msgspec.structs.replace(case(load, **parameters), windows=10))

    calm, crowded = (played(host_cores=2.0, others_cores=others) for others in (0.2, 1.6))
    assert latency_of(crowded, 99) > 3 * latency_of(calm, 99)
    assert latency_of(crowded, 50) < latency_of(crowded, 99) / 3
    eager = played(linger_ms=0.0)
    patient = played(linger_ms=20.0)
    # Alone on its host an exchange has a turn for nearly each batch.
    alone = 1e-6 * (Parameters().turn_us + Parameters().batch_us)
    assert 0.8 * alone < busy(eager) / 4_000 < alone
    assert busy(eager) > 2 * busy(patient)
    full = played(linger_ms=0.0, host_cores=2.0, client_us=5_000.0)
    assert busy(full) < busy(eager) / 2
    many = Topics(count=50, zipf=1.0)
    apart = msgspec.structs.replace(phase.publishers[0], topics=many)
    load = msgspec.structs.replace(
        load, phases=[msgspec.structs.replace(phase, publishers=[apart])]
    )
    assert sum(share * topics for share, topics in many.shares.items()) == pytest.approx(1.0)
    assert busy(eager) > busy(played(linger_ms=20.0)) > 1.5 * busy(patient)
