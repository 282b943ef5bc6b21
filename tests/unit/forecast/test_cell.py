from random import Random

import pytest
from forecasts import LIMIT, case, rate_of, scenario
from monitor_queue import Queue

from roq.errors import ConfigError
from roq.policy.balanced import Balanced
from roq.policy.catalogue import POLICIES
from roq.policy.snapshot import Grow, Memory, Move, QueueView
from roq.simulation.forecast.account import Account
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.cell import Cell, play
from roq.simulation.forecast.exchange import Exchange, id_of
from roq.simulation.forecast.host import Hosts
from roq.simulation.forecast.load import Load
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.reports import Reports
from roq.simulation.scenario.rates import Step
from roq.simulation.scenario.reading import find, read
from roq.simulation.scenario.scenario import Fault


def test_the_policy_of_the_monitor_decides(monkeypatch) -> None:
    shown: list[QueueView] = []

    class Spy(Balanced):
        def decide(self, view, memory):
            shown.append(view)
            return super().decide(view, memory)

    monkeypatch.setitem(POLICIES, "balanced", Spy())
    outcome = play(case(scenario(rate_of(2.5, 12))))
    assert len(shown) == outcome.figures["asked"] + outcome.figures["asked_ahead"]
    assert outcome.figures["scale_outs"] > 0


def test_a_broken_policy_is_noticed(monkeypatch) -> None:
    class Broken:
        def decide(self, view, memory):
            return [Move(id_of(0), 1, 99, "nonsense")], memory

    class Lazy:
        def decide(self, view, memory):
            return [], memory

    played = case(scenario(rate_of(2.5, 12)))
    usual = play(played)
    monkeypatch.setitem(POLICIES, "balanced", Lazy())
    lazy = play(played)
    assert (lazy.figures["moves"], lazy.figures["scale_outs"]) == (0, 0)
    assert lazy.figures["overload_minutes"] > 5 * usual.figures["overload_minutes"]
    monkeypatch.setitem(POLICIES, "balanced", Broken())
    assert play(played).figures["policy_errors"] > 50


def test_a_policy_that_waits_for_its_time_is_asked_when_it_has_come(monkeypatch) -> None:
    class Patient:
        def decide(self, view, memory):
            since = memory.marks.get("since", view.now)
            if view.now - since >= 100 and len(view.exchanges) == 1:
                return [Grow("enough")], Memory({"since": since})
            return [], Memory({"since": since})

    monkeypatch.setitem(POLICIES, "balanced", Patient())
    outcome = play(case(scenario(rate_of(0.5, 12), seconds=600.0)))
    (when, what, number), *others = outcome.events
    assert (what, number, others) == ("out", 2, [])
    assert 100 < when < 104
    assert outcome.figures["asked"] < 30


def test_a_quiet_queue_costs_next_to_nothing() -> None:
    outcome = play(case(scenario(rate_of(0.5, 12), seconds=86_400.0)))
    assert outcome.figures["asked"] < 20
    assert outcome.figures["rounds"] < 40


def test_the_published_experiment_grows_with_the_5th_9th_and_13th_publisher() -> None:
    played = Case(scenario=read(find("eqs-2011")), parameters=Parameters(spread=0.0))
    outcome = play(played)
    grown = [when for when, what, _ in outcome.events if what == "out"]
    assert [when // 60 for when in grown] == [4, 8, 12]
    assert outcome.figures["exchanges_last"] == 4
    assert outcome.figures["imbalance_last"] <= 1.25
    assert played.parameters.latency_base_ms < outcome.figures["latency_mean_ms"] < 16


def test_publishers_of_an_exchange_that_dies_are_served_again_and_it_is_made_anew() -> None:
    kill = Fault(at=30, kind="kill", target="exchange", index=0)
    outcome = play(case(scenario(rate_of(1.2, 12), exchanges=2, faults=(kill,))))
    assert outcome.figures["deaths"] == 1
    assert 0 < outcome.figures["unserved_minutes"] < 12 * 2 / 60
    assert outcome.figures["exchanges_last"] == 2


def test_a_host_that_dies_takes_its_exchanges_along_and_they_come_elsewhere() -> None:
    kill = Fault(at=30, kind="kill", target="host", index=0)
    played = case(scenario(rate_of(1.2, 12), exchanges=4, faults=(kill,)), queues=2)
    outcome = play(played)
    assert outcome.figures["deaths"] == 2
    assert outcome.figures["exchanges_last"] == 8


def test_exchanges_that_are_being_healed_count_so_a_queue_never_has_more_than_it_may() -> None:
    twice = tuple(Fault(at=1.0, kind="kill", target="exchange", index=0) for _ in range(2))
    load = scenario(
        rate_of(2.0, 1), rate_of(1.0, 1), publishers=1, faults=twice,
        exchanges_max=3, cooldown_seconds=1,
    )  # fmt: skip
    cell = Cell(case(load, seed=6, spread=0.0))
    counts = [len(cell.queues[0].population.living()) for _ in cell.steps()]
    assert max(counts) == 3
    assert cell.sums().tally.scale_failed > 0


def test_where_no_host_has_room_growth_is_refused_and_tried_again_with_pauses() -> None:
    played = case(scenario(rate_of(3.0, 12), hosts=1, seconds=120.0), host_slots=1)
    outcome = play(played)
    assert outcome.figures["scale_outs"] == 0
    assert 2 < outcome.figures["scale_failed"] < 30
    assert outcome.figures["overload_minutes"] > 1.5


def test_queues_that_do_not_fit_are_refused_before_anything_is_played() -> None:
    with pytest.raises(ConfigError, match="3 queues do not fit on 1 hosts"):
        play(case(scenario(1.0, hosts=1), queues=3, host_slots=2))


def test_other_rules_are_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="no rule 'cooldown'"):
        case(scenario(1.0, cooldown=3))


def test_a_group_that_ends_is_gone_and_the_queue_shrinks() -> None:
    unit = rate_of(1.0, 12)
    played = scenario(Step(rates=[3 * unit, 0.2 * unit, 0.2 * unit]), seconds=120.0)
    outcome = play(case(played))
    assert outcome.figures["exchanges_most"] >= 3
    assert outcome.figures["exchanges_last"] == 1
    assert outcome.figures["scale_ins"] == outcome.figures["scale_outs"]


@pytest.mark.parametrize("share", [0.6, 1.5, 2.4, 3.3])
def test_it_comes_to_the_same_end_as_the_machine_of_the_monitor(share) -> None:
    publishers = 16
    outcome = play(case(scenario(rate_of(share, publishers), publishers=publishers), spread=0.0))
    real = Queue(1, limit=LIMIT // 60, exchanges_max=4, cooldown_seconds=2)
    for number in range(publishers):
        real.add_publisher(f"p{number:02d}", share * LIMIT / 60 / publishers)
    real.add_subscriber("s")
    real.run(60)
    moves = sum(state == "accepted" for _, state, *_ in real.moves())
    assert outcome.figures["exchanges_last"] == len(real.exchanges)
    grown = sum(each[:2] == ("out", "done") for each in real.scales())
    assert outcome.figures["scale_outs"] == grown
    assert outcome.figures["moves"] <= 2 * moves
    assert moves <= 2 * outcome.figures["moves"]


@pytest.mark.parametrize("others", [0.0, 1.6])
def test_how_busy_a_host_is_depends_on_no_order_and_no_past(others: float) -> None:
    parameters = Parameters(host_cores=2.0, others_cores=others)
    groups = Load(scenario(rate_of(20.0, 12)), parameters).groups
    hosts = Hosts(["host"], parameters)
    account = Account(groups, hosts, LIMIT, parameters)
    reports = Reports(parameters, Random(1))
    four = {each: Exchange(each, "host", 0.0, reports, [3.0], [3.0]) for each in range(4)}
    seen = []
    for moment in (0.0, 1.0, 2.0):
        account.renew(moment, moment, four)
        assert len(set(account.present.busy.values())) == 1
        seen.append(hosts["host"].busy)
    assert seen == pytest.approx([seen[0]] * 3, abs=0.002)


def test_the_clients_of_an_exchange_that_is_gone_need_its_host_no_more() -> None:
    parameters = Parameters(host_cores=2.0, client_us=100.0)
    hosts = Hosts(["host"], parameters)
    groups = Load(scenario(rate_of(20.0, 12)), parameters).groups
    account = Account(groups, hosts, LIMIT, parameters)
    reports = Reports(parameters, Random(1))
    two = {each: Exchange(each, "host", 0.0, reports, [6.0], [6.0]) for each in range(2)}
    account.renew(0.0, 0.0, two)
    both = hosts["host"].clients
    assert both == pytest.approx(100e-6 * sum(account.present.messages.values()) / 60)
    account.gone(two.pop(1))
    account.renew(1.0, 1.0, two)
    assert hosts["host"].clients == pytest.approx(both / 2)
