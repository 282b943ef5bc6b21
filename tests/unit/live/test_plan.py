"""Who does what in a live run, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roq.errors import ConfigError
from roq.simulation.forecast.load import Load
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.lab.live.plan import CLIENTS_MAX, Plan, plan
from roq.simulation.scenario.draws import LogNormal, Topics, Uniform
from roq.simulation.scenario.offered import offered
from roq.simulation.scenario.rates import Ramp
from roq.simulation.scenario.reading import find, known, read
from roq.simulation.scenario.scenario import (
    ConsumerGroup,
    Phase,
    PublisherGroup,
    QueueSettings,
    Scenario,
    SubscriberGroup,
)
from roq.simulation.scenario.settings import queue_rules


def scenario_of(*phases: Phase, **settings: Any) -> Scenario:
    return Scenario(name="a-test", title="A test", phases=list(phases), **settings)


def phase(
    name: str,
    *publishers: PublisherGroup,
    subscribers: list[SubscriberGroup] | None = None,
    seconds: float = 10.0,
) -> Phase:
    return Phase(
        name=name, seconds=seconds, publishers=list(publishers), subscribers=subscribers or []
    )


def group(count: int = 1, rate: Any = 10.0, **more: Any) -> PublisherGroup:
    return PublisherGroup(count=count, rate=rate, **more)


def stays(made: Plan) -> list[tuple[str, float, float]]:
    return sorted((each.name, each.begins, each.ends) for each in made.publishers)


def test_a_publisher_is_the_same_one_in_all_phases_that_have_it() -> None:
    made = plan(scenario_of(phase("a", group(2)), phase("b", group(1)), phase("c", group(2))))

    assert stays(made) == [
        ("publisher-0-0", 0.0, 30.0),
        ("publisher-0-1", 0.0, 10.0),
        ("publisher-0-1", 20.0, 30.0),
    ]
    assert len({each.source for each in made.publishers}) == 3


def test_newcomers_take_their_turn_and_who_is_there_goes_on() -> None:
    made = plan(scenario_of(phase("a", group(1)), phase("b", group(3, spawn_rate=0.5))))

    assert stays(made) == [
        ("publisher-0-0", 0.0, 20.0),
        ("publisher-0-1", 12.0, 20.0),
        ("publisher-0-2", 14.0, 20.0),
    ]


def test_who_would_come_after_the_phase_comes_in_the_next_one_or_never() -> None:
    made = plan(scenario_of(phase("a", group(4, spawn_rate=0.2)), phase("b", group(3))))

    assert stays(made) == [
        ("publisher-0-0", 0.0, 20.0),
        ("publisher-0-1", 5.0, 20.0),
        ("publisher-0-2", 10.0, 20.0),
    ]


@pytest.mark.parametrize("name", [path.stem for path in known()])
def test_a_live_run_has_the_same_publishers_as_a_forecast(name: str) -> None:
    scenario = read(find(name)).scaled(0.1)

    coming = [each for each in Load(scenario, Parameters()).comings(0, 1) if each.comes]

    found = sorted((each.name, each.begins) for each in plan(scenario).publishers)
    wanted = sorted((f"publisher-{each.group}-{each.number}", each.when) for each in coming)
    assert [name for name, _ in found] == [name for name, _ in wanted]
    assert [when for _, when in found] == pytest.approx([when for _, when in wanted])


def test_subscribers_stay_until_a_phase_names_others() -> None:
    two = [SubscriberGroup(count=2)]
    other = [SubscriberGroup(count=1), SubscriberGroup(count=1, topic="a.")]
    made = plan(
        scenario_of(
            phase("a", group(), subscribers=two), phase("b", group()),
            phase("c", group(), subscribers=other),
        )
    )  # fmt: skip

    found = {each.name: (each.begins, each.ends, each.last) for each in made.subscribers}
    assert found == {
        "subscriber-0-0": (0.0, 30.0, True),
        "subscriber-0-1": (0.0, 20.0, False),
        "subscriber-1-0": (20.0, 30.0, True),
    }
    assert made.marks == [17.0, 23.0]
    assert made.prefixes == ["", "a."]
    assert "owed" in made.remarks[0]


def test_a_million_clients_are_refused_before_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roq.simulation.lab.live.plan.PublisherStay", None)
    monkeypatch.setattr("roq.simulation.lab.live.plan.SubscriberStay", None)
    crowd = scenario_of(phase("a", group(1_000_000, 0.1), group(3)))
    with pytest.raises(ConfigError, match=r"1000003 publishers and 0 .* 2501 tasks .* the 1000"):
        plan(crowd)
    listeners = [SubscriberGroup(count=1_000_000)]
    with pytest.raises(ConfigError, match="1 publishers and 1000000 subscribers need"):
        plan(scenario_of(phase("a", group(), subscribers=listeners)))
    with pytest.raises(ConfigError, match=r"need 3 to 1000 tasks .*, not 2"):
        plan(scenario_of(phase("a", group(801))), tasks=2)


def test_of_a_million_only_those_count_that_come_in_time() -> None:
    made = plan(scenario_of(phase("a", group(1_000_000, spawn_rate=0.25))))
    assert [each.begins for each in made.publishers] == [0.0, 4.0, 8.0]


def test_what_is_offered_is_the_integral_of_all_rates() -> None:
    scenario = scenario_of(phase("a", group(2, Ramp(0, 100))), phase("b", group(1, 50.0)))
    made = plan(scenario)

    assert made.offered == pytest.approx(2 * 500 + 500)
    assert offered(scenario, 0, 20).messages == pytest.approx(made.offered)
    assert offered(scenario, 10, 12).messages / 2 == pytest.approx(50)


def test_publishers_and_subscribers_have_tasks_of_their_own() -> None:
    made = plan(scenario_of(phase("a", group(4), subscribers=[SubscriberGroup(count=2)])))

    assert [(len(each.publishers), len(each.subscribers)) for each in made.shares] == [
        (4, 0), (0, 2),
    ]  # fmt: skip
    assert made.senders == [0]


def test_one_task_does_all_of_it_if_wanted() -> None:
    one = scenario_of(phase("a", group(4), subscribers=[SubscriberGroup(count=2)]))

    (share,) = plan(one, tasks=1).shares

    assert (len(share.publishers), len(share.subscribers)) == (4, 2)


def test_much_load_needs_many_tasks_and_clients_are_dealt_evenly() -> None:
    much = scenario_of(phase("a", group(40, 2_000.0), subscribers=[SubscriberGroup(count=3)]))

    made = plan(much)

    sending = [len(each.publishers) for each in made.shares if each.publishers]
    receiving = [len(each.subscribers) for each in made.shares if each.subscribers]
    assert sum(sending) == 40
    assert max(sending) - min(sending) <= 1
    assert len(sending) == 6
    assert receiving == [1, 1, 1]


def test_too_many_clients_for_the_tasks_are_refused() -> None:
    crowd = scenario_of(phase("a", group(CLIENTS_MAX + 1, 0.1)))

    with pytest.raises(ConfigError, match="need 2 to"):
        plan(crowd, tasks=1)
    assert len(plan(crowd).shares) == 2


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (phase("a", group(size=23)), r"f\.yaml: phases\[0\]\.publishers\[0\]\.size: .*24 bytes"),
        (phase("a", group(size=Uniform(10, 90))), r"phases\[0\]\.publishers\[0\]\.size"),
        (
            phase("a", group(topics=Topics(names=["x" * 300]))),
            r"phases\[0\]\.publishers\[0\]\.topics: .*255 bytes",
        ),
        (phase("a"), "no publisher"),
        (
            Phase(name="a", seconds=1, publishers=[group()], consumers=[ConsumerGroup(group="g")]),
            r"phases\[0\]\.consumers: .*no consumer groups",
        ),
        (
            phase("a", group(), subscribers=[SubscriberGroup(topic="x" * 300)]),
            r"phases\[0\]\.subscribers\[0\]\.topic",
        ),
    ],
)  # fmt: skip
def test_what_a_live_run_cannot_do_is_refused_with_its_key(bad: Phase, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan(scenario_of(bad), where="f.yaml")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (QueueSettings(limits={"ring": 1}), "queue.limits: there is no limit 'ring'"),
        (QueueSettings(rules={"ecxhanges_max": 1}), "queue.rules: there is no rule"),
        (QueueSettings(rules={"exchanges_max": "many"}), "queue.rules: Expected `int`"),
    ],
)
def test_limits_and_rules_that_cannot_be_are_refused(settings: QueueSettings, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan(scenario_of(phase("a", group()), queue=settings))


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        plan(scenario_of(phase("a", group(size=1)), phase("b", group(size=2))))
    assert str(told.value).count("\n") == 1


def test_a_log_normal_size_is_sent_a_bit_larger_where_it_falls_below() -> None:
    made = plan(scenario_of(phase("a", group(size=LogNormal(median=40)))))

    assert "drawn below 24 bytes" in made.remarks[0]


def test_more_streams_than_can_be_followed_are_refused() -> None:
    topics = Topics(count=100_000)
    with pytest.raises(ConfigError, match="streams"):
        plan(scenario_of(phase("a", group(30, topics=topics))))


def test_rules_leave_the_limit_of_exchanges_as_the_queue_has_it() -> None:
    settings = QueueSettings(limits={"exchanges_max": 7}, rules={"cooldown_seconds": 2})

    rules = queue_rules(scenario_of(phase("a", group()), queue=settings))

    assert rules is not None
    assert (rules.exchanges_max, rules.cooldown_seconds) == (7, 2)
    assert queue_rules(scenario_of(phase("a", group()))) is None


@pytest.mark.parametrize("name", [path.stem for path in known()])
def test_every_scenario_that_comes_with_roq_can_be_run_live(name: str) -> None:
    made = plan(read(find(name)))

    assert made.offered > 0
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Plan) == made
