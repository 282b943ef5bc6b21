"""What the driver and the tasks of a run make of each other, without a cluster."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.errors import QueueExists, Unavailable
from roq.simulation.lab.live import messages
from roq.simulation.lab.live.clocks import Clock
from roq.simulation.lab.live.driver import Driver
from roq.simulation.lab.live.environment import Environment
from roq.simulation.lab.live.load import QUIET_SECONDS, SETTLE_SECONDS, Load
from roq.simulation.lab.live.plan import Plan
from roq.simulation.lab.live.receivers import Receiver
from roq.simulation.lab.live.setting import Setting
from roq.simulation.lab.live.tasks import Tasks


def test_a_task_that_spark_begins_anew_under_load_ends_the_run() -> None:
    plan = Plan(seconds=1.0, shares=[], marks=[], prefixes=[], offered=1.0)
    driver = Driver(cast("roq.Cluster", None), "q", plan, "r", Clock(0))
    ready = messages.Ready(run="r", task=3, host="h", clock_error=0.0)
    driver._take(ready)
    assert not driver.troubles
    driver.begin_us = 1
    driver._take(ready)
    assert len(driver.troubles) == 1
    assert "task 3 anew" in driver.troubles[0]


@pytest.mark.parametrize(
    ("fresh", "quiet", "complete"),
    [
        (5, SETTLE_SECONDS / 2, False),  # what comes twice may still come
        (5, SETTLE_SECONDS + 0.1, True),
        (4, SETTLE_SECONDS + 0.1, False),
        (4, QUIET_SECONDS + 0.1, True),
    ],
)
def test_who_has_got_everything_still_looks_for_what_comes_twice(
    fresh: int, quiet: float, complete: bool
) -> None:
    load: Any = Load.__new__(Load)
    load._channel = SimpleNamespace(sent={"t": 5}, stopped=False)
    stay = SimpleNamespace(topic="t", begins=0.0)
    receiver = SimpleNamespace(stay=stay, fresh=fresh, last=monotonic() - quiet)
    assert load._complete(cast("Receiver", receiver), 0.0) is complete


class FakeCluster:
    """Has one queue, and does not answer in time for another one."""

    def __init__(self) -> None:
        self.there = {"theirs"}
        self.removed: list[str] = []

    def create_queue(self, name: str, **_: object) -> None:
        if name in self.there:
            raise QueueExists(name)
        self.there.add(name)
        if name == "slow":
            raise Unavailable("no answer")

    def queue_exists(self, name: str) -> bool:
        return name in self.there

    def remove_queue(self, name: str, **_: object) -> None:
        self.removed.append(name)


def test_queues_of_somebody_else_are_left_alone_and_half_made_ones_are_not() -> None:
    cluster, show = FakeCluster(), SimpleNamespace(show=None)
    with ExitStack() as stack:
        around = Environment(cast("Setting", show), Tasks(), stack)
        for name, error in (("theirs", QueueExists), ("slow", Unavailable)):
            with pytest.raises(error):
                around._make_queue(cast("roq.Cluster", cluster), name, {})
        around._make_queue(cast("roq.Cluster", cluster), "mine", {})
    assert cluster.removed == ["mine", "slow"]
