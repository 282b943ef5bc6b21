"""Tallies of all tasks, put together."""

from __future__ import annotations

import pytest

from roq.simulation.lab.live.plan import Plan, plan
from roq.simulation.lab.live.verdict import (
    ReceivedTally,
    SentTally,
    StreamTally,
    TaskTally,
    count,
    figures,
)
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario, SubscriberGroup


def plan_of(*phases: Phase) -> Plan:
    return plan(Scenario(name="a-test", title="A test", phases=list(phases)))


def phase(name: str, *subscribers: SubscriberGroup, seconds: float = 20.0) -> Phase:
    return Phase(
        name=name,
        seconds=seconds,
        publishers=[PublisherGroup(count=1, rate=10.0, size=100)],
        subscribers=list(subscribers),
    )


ONE = plan_of(phase("load", SubscriberGroup(count=1)))


def stream(topic: str = "t", *, got: int, missing: list[tuple[int, int]] | None = None,
           doubled: int = 0, reordered: int = 0) -> StreamTally:  # fmt: skip
    return StreamTally(
        source=0, topic=topic, next=got, missing=missing or [], doubled=doubled,
        reordered=reordered,
    )  # fmt: skip


def received(*streams: StreamTally, in_force: float = -1.0, name: str = "subscriber-0-0",
             begins: float = 0.0) -> TaskTally:  # fmt: skip
    return TaskTally(
        task=1,
        received=[
            ReceivedTally(
                name=name, begins=begins, in_force=in_force, streams=list(streams),
                messages=sum(each.next for each in streams), latency={"100": 1},
                latency_sum=0.001, latency_most=0.001,
            )
        ],
    )  # fmt: skip


def sent(topics: dict[str, int], marks: list[dict[str, int]] | None = None,
         failed: int = 0) -> TaskTally:  # fmt: skip
    total = sum(topics.values())
    return TaskTally(
        task=0,
        sent=[SentTally(source=0, topics=topics, marks=marks or [], messages=total, failed=failed)],
    )


def test_all_that_was_sent_and_came_is_fine() -> None:
    counts = count(ONE, [sent({"t": 200}), received(stream(got=200))])

    assert (counts.sent, counts.owed, counts.lost, counts.wrong) == (200, 200, 0, [])


def test_what_is_missing_in_the_middle_and_at_the_end_is_lost() -> None:
    counts = count(ONE, [sent({"t": 200}), received(stream(got=190, missing=[(5, 8)]))])

    assert counts.lost == 13
    assert counts.wrong == ["subscriber-0-0 lacks 13 of stay 0"]


def test_a_stream_of_which_nothing_came_is_lost_as_a_whole() -> None:
    assert count(ONE, [sent({"t": 200, "u": 7}), received(stream(got=200))]).lost == 7


def test_what_failed_is_not_lost_as_well() -> None:
    counts = count(ONE, [sent({"t": 200}, failed=10), received(stream(got=200, missing=[(0, 12)]))])

    assert (counts.failed, counts.lost) == (10, 2)


def test_doubles_and_disorder_are_added_up() -> None:
    counts = count(ONE, [sent({"t": 200}), received(stream(got=200, doubled=3, reordered=2))])

    assert (counts.doubled, counts.reordered) == (3, 2)
    assert len(counts.wrong) == 2


def test_topics_under_another_prefix_are_not_owed() -> None:
    narrow = plan_of(phase("load", SubscriberGroup(count=1, topic="a.")))
    counts = count(narrow, [sent({"a.1": 5, "b": 100}), received(stream("a.1", got=4))])

    assert (counts.owed, counts.lost) == (5, 1)


def test_who_joins_under_load_is_owed_what_was_meant_to_be_sent_from_then_on() -> None:
    two = plan_of(
        phase("first", SubscriberGroup(count=1)), phase("second", SubscriberGroup(count=2))
    )
    assert two.marks == [23.0]
    late = received(stream(got=400, missing=[(0, 240)]), name="subscriber-0-1", begins=20.0,
                    in_force=20.5)  # fmt: skip

    counts = count(two, [sent({"t": 400}, marks=[{"t": 230}]), late])

    assert (counts.owed, counts.lost) == (170, 10)
    assert not counts.unjudged


def test_who_joins_too_late_is_owed_what_follows_its_first_message() -> None:
    two = plan_of(
        phase("first", SubscriberGroup(count=1)), phase("second", SubscriberGroup(count=2))
    )
    late = received(stream(got=400, missing=[(0, 300), (310, 312)]), name="subscriber-0-1",
                    begins=20.0, in_force=29.0)  # fmt: skip

    counts = count(two, [sent({"t": 400}, marks=[{"t": 230}]), late])

    assert (counts.owed, counts.lost) == (100, 2)
    assert counts.unjudged == ["subscriber-0-1"]


def test_who_leaves_is_owed_nothing_of_its_last_moments() -> None:
    two = plan_of(
        phase("first", SubscriberGroup(count=2)), phase("second", SubscriberGroup(count=1))
    )
    assert two.marks == [17.0]
    left = received(stream(got=195), name="subscriber-0-1")

    assert count(two, [sent({"t": 400}, marks=[{"t": 170}]), left]).lost == 0
    assert count(two, [sent({"t": 400}, marks=[{"t": 198}]), left]).lost == 3


def test_a_publisher_that_had_gone_before_a_mark_had_sent_all_of_it() -> None:
    two = plan_of(
        phase("first", SubscriberGroup(count=1)), phase("second", SubscriberGroup(count=2))
    )
    late = received(name="subscriber-0-1", begins=20.0, in_force=20.5)

    assert count(two, [sent({"t": 200}), late]).lost == 0


def test_figures_have_the_names_that_expectations_use() -> None:
    tallies = [sent({"t": 200}), received(stream(got=200))]

    found = figures(count(ONE, tallies), tallies, seconds=20.0, offered=200.0)

    assert found["load_reached"] == 1.0
    assert found["messages_per_second"] == 10.0
    assert found["latency_mean_ms"] == found["latency_max_ms"] == 1.0
    assert found["latency_p99_ms"] == pytest.approx(0.0073, rel=0.05)


def test_without_subscribers_nothing_is_said_of_losses() -> None:
    lonely = plan_of(phase("load"))

    found = figures(
        count(lonely, [sent({"t": 200})]), [sent({"t": 200})], seconds=20.0, offered=200.0
    )

    assert "lost" not in found
    assert not any(name.startswith("latency") for name in found)
