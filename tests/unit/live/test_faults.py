"""What goes wrong on purpose: what is possible, and what is done."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

import roq
from roq.errors import ConfigError, InvalidRequest
from roq.simulation.lab.live.faults import Faults, check, managers, zookeepers
from roq.simulation.scenario.scenario import Fault, Phase, PublisherGroup, Scenario


def scenario_of(*faults: Fault, hosts: int = 2) -> Scenario:
    phase = Phase(name="load", seconds=30.0, publishers=[PublisherGroup()])
    return Scenario(name="a-test", title="", hosts=hosts, phases=[phase], faults=list(faults))


def fault(kind: str, target: str, index: int = 0, at: float = 0.0, seconds: float = 1.0) -> Fault:
    return Fault(
        at=at, kind=cast("Any", kind), target=cast("Any", target), index=index, seconds=seconds
    )


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (fault("cut", "exchange"), r"faults\[0\]\.kind: 'cut' needs links"),
        (fault("loss", "host"), r"faults\[0\]\.kind"),
        (fault("kill", "publisher"), r"faults\[0\]\.target: a publisher"),
        (fault("kill", "host", 2), r"faults\[0\]\.index: there are 2 hosts"),
        (fault("pause", "host_manager", 5), r"faults\[0\]\.index"),
        (fault("kill", "zookeeper", 5), "at most 5 ZooKeeper"),
        (fault("kill", "monitor", 1), "one monitor"),
    ],
)
def test_what_cannot_be_done_is_refused(bad: Fault, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^f.yaml: .*{text}"):
        check(scenario_of(bad), own=True, where="f.yaml")


def test_nobody_harms_the_cluster_of_others() -> None:
    with pytest.raises(ConfigError, match="leave --cluster away"):
        check(scenario_of(fault("kill", "exchange")), own=False)


def test_all_that_can_be_killed_can_be_paused_as_well() -> None:
    targets = ("exchange", "monitor", "host_manager", "manager", "zookeeper", "host")
    check(
        scenario_of(*(fault(kind, target) for kind in ("kill", "pause") for target in targets)),
        own=True,
    )


def test_the_cluster_has_as_many_as_faults_name() -> None:
    assert managers([]) == zookeepers([]) == 1
    assert managers([fault("kill", "manager", 1)]) == 2
    assert [zookeepers([fault("kill", "zookeeper", index)]) for index in (0, 1, 3, 4)] == [
        1, 3, 5, 5,
    ]  # fmt: skip


class Ground:
    """Processes that stand for those of a cluster."""

    hosts = ("127.0.0.1",)

    def __init__(self) -> None:
        argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        self.processes = {
            name: subprocess.Popen(argv, stdin=subprocess.PIPE)
            for name in ("gcm", "host 127.0.0.1", "x1", "x2", "other")
        }
        self.told: list[str] = []
        self.now = 0.0

    def pid(self, part: str) -> int:
        if part not in self.processes:
            raise InvalidRequest(f"no part {part!r}")
        return self.processes[part].pid

    def cluster(self) -> roq.Cluster:
        def child(name: str, queue: str, number: int) -> SimpleNamespace:
            return SimpleNamespace(
                role="exchange", queue=queue, number=number, pid=self.processes[name].pid
            )

        children = [child("x2", "q", 2), child("other", "p", 1), child("x1", "q", 1)]
        host = SimpleNamespace(host="127.0.0.1", children=children)
        return cast("roq.Cluster", SimpleNamespace(hosts=lambda: [host]))

    def faults(self, *wanted: Fault) -> Faults:
        return Faults(wanted, self, self.cluster(), "q", lambda: self.now, self.told.append)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # noqa: TID251 - the condition is outside of Python

    def stands_still(self, name: str) -> bool:
        return psutil.Process(self.processes[name].pid).status() == psutil.STATUS_STOPPED

    def runs(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


def test_a_fault_comes_when_its_time_has_come_and_hits_the_one_that_is_meant(
    ground: Ground,
) -> None:
    with ground.faults(fault("kill", "exchange", 1, at=5.0)):
        ground.now = 4.9
        ground.now = 5.0
        ground.until(lambda: bool(ground.told))
        ground.until(lambda: "x2" not in ground.runs())

    assert ground.told == ["kill exchange 1"]
    assert len(ground.runs()) == 4


def test_a_host_dies_with_all_that_runs_there(ground: Ground) -> None:
    with ground.faults(fault("kill", "host")):
        ground.until(lambda: ground.runs() == ["gcm"])


def test_what_stands_still_goes_on(ground: Ground) -> None:
    with ground.faults(fault("pause", "manager", seconds=3.0)):
        ground.until(lambda: ground.stands_still("gcm"))
        ground.now = 3.1
        ground.until(lambda: not ground.stands_still("gcm"))


def test_what_stands_still_at_the_end_goes_on_as_well(ground: Ground) -> None:
    with ground.faults(fault("pause", "exchange", seconds=3_000.0)):
        ground.until(lambda: ground.stands_still("x1"))
    ground.until(lambda: not ground.stands_still("x1"))


def test_whoever_is_not_there_cannot_be_harmed(ground: Ground) -> None:
    with ground.faults(fault("kill", "exchange", 7), fault("kill", "zookeeper")):
        ground.until(lambda: len(ground.told) == 2)

    assert ground.told[0] == "kill exchange 7: not done: the queue has only 2 of them"
    assert "not done" in ground.told[1]
    assert len(ground.runs()) == 5
