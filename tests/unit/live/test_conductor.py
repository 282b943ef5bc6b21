"""When the load of a run begins, with tasks, driver and traces that do as the test says."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import psutil
import pytest

import roq
from roq.errors import Unavailable
from roq.runtime.signals import SignalEvent
from roq.simulation.lab.live import conductor
from roq.simulation.lab.live.clocks import Clock, anchor
from roq.simulation.lab.live.conductor import Conductor
from roq.simulation.lab.live.driver import Driver
from roq.simulation.lab.live.interrupts import Interrupted
from roq.simulation.lab.live.plan import plan
from roq.simulation.lab.live.request import LiveRequest
from roq.simulation.lab.live.setting import Queues, Setting
from roq.simulation.lab.live.show import Silent
from roq.simulation.lab.live.tasks import Tasks
from roq.simulation.lab.live.verdict import TaskTally
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario

if TYPE_CHECKING:
    from roq.simulation.lab.live.tracing import Tracing

STEP = "Spark keeps its first traces"


class World(Silent):
    """One task that is ready, and ends as soon as the load has begun or is given up."""

    troubles: tuple[str, ...] = ()
    ready = 1
    begin_us = 0
    elapsed = 0.0
    all_sent = finished = True

    def __init__(self, folder: Path, keeps: list[bool | Unavailable] | None) -> None:
        self.steps: list[str] = []
        self.keeping = keeps
        self.stop_asked = SignalEvent()
        self.view = SimpleNamespace(seen=None)
        self.publisher = SimpleNamespace(publish=lambda *_: None)
        self.addresses = ["127.0.0.1:1"]
        self._over = threading.Event()
        phase = Phase(name="load", seconds=1, publishers=[PublisherGroup(count=1, rate=1)])
        scenario = Scenario(name="a", title="", phases=[phase])
        setting = Setting(
            request=LiveRequest(scenario=scenario), plan=plan(scenario, tasks=1), folder=folder,
            anchor=anchor(), clock=Clock(0), window=1.0, show=self, stop=self.stop_asked,
        )  # fmt: skip
        self._stack = ExitStack()
        self.conductor = Conductor(
            setting, cast("Tasks", self), cast("roq.Cluster", self), Queues("q", "m", "t"), None,
            cast("Driver", self), cast("Tracing", self) if keeps is not None else None, self._stack,
        )  # fmt: skip

    def play(self) -> None:
        with self._stack:
            self.conductor.play()

    # --- of Show, Tasks, Driver and Tracing -------------------------------------------------------

    def step(self, text: str) -> None:
        self.steps.append(text)

    def work(self, jobs: list[bytes], *, barrier: bool) -> list[bytes]:
        assert barrier
        assert self._over.wait(30)
        return [msgspec.msgpack.encode(TaskTally(task=0))] * len(jobs)

    def check(self) -> None:
        pass

    def begin(self) -> None:
        self.begin_us = 1
        self._over.set()

    def stop(self) -> None:
        self._over.set()

    @property
    def keeps(self) -> bool:
        assert self.keeping is not None
        assert not self.begin_us
        told = self.keeping.pop(0) if len(self.keeping) > 1 else self.keeping[0]
        if isinstance(told, Unavailable):
            raise told
        return told


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "LOOK_SECONDS", 0.01)


def test_the_load_begins_when_spark_has_kept_its_first_traces(tmp_path: Path) -> None:
    world = World(tmp_path, [False, False, False, True])
    world.play()
    assert world.keeping == [True]
    assert world.begin_us
    assert world.steps[-1] == STEP


@pytest.mark.parametrize("keeps", [None, [True]])
def test_without_traces_or_with_some_the_load_waits_for_nothing(
    tmp_path: Path, keeps: list[bool | Unavailable] | None
) -> None:
    world = World(tmp_path, keeps)
    world.play()
    assert world.begin_us
    assert STEP not in world.steps


def test_a_spark_that_keeps_nothing_in_time_is_told_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(conductor, "WARM_SECONDS", 0.02)
    world = World(tmp_path, [False])
    world.play()
    assert world.begin_us
    assert "Spark has kept no traces" in caplog.text


def test_a_query_that_has_failed_ends_the_run_before_the_load(tmp_path: Path) -> None:
    world = World(tmp_path, [False, False, Unavailable("not collected any more: no room")])
    with pytest.raises(Unavailable, match="no room"):
        world.play()
    assert not world.begin_us


def test_a_run_that_is_to_end_does_not_wait_for_traces(tmp_path: Path) -> None:
    world = World(tmp_path, [False])
    world.stop_asked.set()
    with pytest.raises(Interrupted):
        world.play()
    assert not world.begin_us


def test_how_busy_the_machine_is_counts_from_the_begin_of_the_load_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Passing(World):
        def begin(self) -> None:
            self.begin_us = 1
            self.later = [-0.1, 0.5, 1.0, 3.0]
            self.elapsed = -1.0

        def picture(self, _picture: object) -> None:
            self.elapsed, *self.later = [*self.later, 9.0]
            if self.elapsed == 9.0:
                self._over.set()

    def percent() -> float:
        asked.append(world.elapsed)
        return 40.0

    asked: list[float] = []
    monkeypatch.setattr(psutil, "cpu_percent", percent)
    world = Passing(tmp_path, None)
    world.play()
    assert asked == [-1.0, -0.1, 1.0]
    assert world.conductor.busy_percent == 40.0
