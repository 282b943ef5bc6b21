"""Scenarios in words."""

from __future__ import annotations

import pytest

from roq.simulation.lab.report import story
from roq.simulation.scenario.draws import Choice, LogNormal, Topics, Uniform
from roq.simulation.scenario.rates import Burst, Diurnal, Ramp, Step, Trace
from roq.simulation.scenario.reading import known, read
from roq.simulation.scenario.scenario import Fault, PublisherGroup, QueueSettings


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (PublisherGroup(count=16, rate=56.6667, size=5000, spawn_rate=1 / 60),
         "16 × 56.7/s, 5 kB each, one more every 1 min"),
        (PublisherGroup(rate=Ramp(10, 500), size=Uniform(10, 2000), spawn_rate=3),
         "1 × from 10 to 500/s, 10 B to 2 kB each, 3 more every second"),
        (PublisherGroup(rate=Step([1, 2, 3]), size=Choice([1, 2])),
         "1 × 1, 2 and 3/s in turn, 1 B or 2 B each"),
        (PublisherGroup(rate=Burst(1, 9, 10, 2), size=LogNormal(200)),
         "1 × 1/s, bursts of 9/s for 2 s every 10 s, log-normal around 200 B (σ 1) each"),
        (PublisherGroup(rate=Diurnal(1, 5), topics=Topics(count=50, prefix="a", zipf=1)),
         "1 × a wave of 1 to 5/s, a period of 24 h, 100 B each, 50 topics a…, Zipf 1"),
        (PublisherGroup(rate=Trace([(0, 1), (9, 7)]), topics=Topics(names=["x", "y"])),
         "1 × as recorded, up to 7/s, 100 B each, topics x and y"),
    ],
)  # fmt: skip
def test_every_kind_of_load_is_told(group: PublisherGroup, text: str) -> None:
    assert story.publishers(group) == text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(at=1, kind="kill", target="host_manager"), "kill host manager 0"),
        (Fault(at=1, kind="pause", target="monitor", seconds=5), "pause monitor 0 for 5 s"),
        (Fault(at=1, kind="loss", target="host", index=2, amount=0.1),
         "loss host 2 for 1 s, 10 % of all packets"),
    ],
)  # fmt: skip
def test_faults_are_told(fault: Fault, text: str) -> None:
    assert story.fault(fault) == text


def test_all_scenarios_that_come_with_roq_can_be_told() -> None:
    for path in known():
        scenario = read(path)
        assert len(story.phases(scenario)) == len(scenario.phases)


def test_the_queue_is_told_by_the_names_of_its_settings() -> None:
    settings = QueueSettings(exchanges=2, limits={"retain_bytes": 1_000}, rules={"policy": "known"})
    assert story.queue(settings) == [
        ("exchanges at first", "2"), ("retain bytes", "1,000"), ("policy", "known")
    ]  # fmt: skip
