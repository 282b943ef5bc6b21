"""What a test is told of a cluster that runs for the length of a block; it runs nothing itself."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roq.errors import InvalidRequest
from roq.local.launcher import StartFailed
from roq.local.plan import Addresses
from roq.local.settings import LocalSettings
from roq.testing import running
from roq.testing.running import RunningCluster, cluster

ADDRESSES = Addresses(
    client="127.0.0.1:5000", management="127.0.0.1:5003", broadcast="127.0.0.1:5005",
    registry="file:/x", hosts=["127.0.0.1", "127.0.0.2"], managers=["127.0.0.1:5000"],
)  # fmt: skip


class PaperBackground:
    """A cluster of paper."""

    made: list[PaperBackground]
    fails: Exception | None = None

    def __init__(self, settings: LocalSettings) -> None:
        self.made.append(self)
        self.settings = settings
        self.addresses, self.folder = ADDRESSES, Path("/x")
        self.parts = {"gcm": SimpleNamespace(pid=7), "host 127.0.0.1": SimpleNamespace(pid=8)}
        self.ended: list[Any] = []
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")
        if self.fails is not None:
            raise self.fails

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> type[PaperBackground]:
    kind = type("Made", (PaperBackground,), {"made": []})
    monkeypatch.setattr(running, "BackgroundCluster", kind)
    return kind


def test_it_runs_until_the_block_ends_whatever_happens_there(
    background: type[PaperBackground],
) -> None:
    def block() -> None:
        with cluster():
            assert background.made[0].calls == ["start"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert background.made[0].calls == ["start", "stop"]


def test_what_keeps_it_from_starting_is_raised_and_there_is_nothing_to_stop(
    background: type[PaperBackground],
) -> None:
    background.fails = StartFailed("gcm ended", 70)
    with pytest.raises(StartFailed), cluster():
        pytest.fail("it runs")
    assert background.made[0].calls == ["start"]


def test_its_addresses_its_folder_and_its_processes_are_told(
    background: type[PaperBackground],
) -> None:
    with cluster(hosts=2) as made:
        assert (made.address, made.management, made.broadcast) == (
            "127.0.0.1:5000", "127.0.0.1:5003", "127.0.0.1:5005",
        )  # fmt: skip
        assert (made.registry, made.hosts) == ("file:/x", ("127.0.0.1", "127.0.0.2"))
        assert (made.managers, made.folder) == (("127.0.0.1:5000",), Path("/x"))
        assert (made.pid("gcm"), made.pid("host 127.0.0.1")) == (7, 8)
        assert made.ended() == []
        background.made[0].ended.append(SimpleNamespace(name="gcm"))
        assert made.ended() == ["gcm"]


def test_a_part_that_there_is_not_is_named_with_those_that_there_are(
    background: type[PaperBackground],
) -> None:
    with (
        cluster() as made,
        pytest.raises(InvalidRequest, match="no part 'zookeeper'; there are gcm, host"),
    ):
        made.pid("zookeeper")


def test_a_connection_is_one_to_its_address(
    background: type[PaperBackground], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(running, "roq", SimpleNamespace(connect=asked.append))
    with cluster() as made:
        made.connect()
    assert asked == ["127.0.0.1:5000"]


def test_it_may_be_stopped_before_the_block_ends(background: type[PaperBackground]) -> None:
    with cluster() as made:
        made.stop()
        assert background.made[0].calls == ["start", "stop"]


def test_everything_that_can_be_said_of_a_local_cluster_is_handed_on(
    background: type[PaperBackground], tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "hosts": 3, "data_dir": tmp_path, "port_base": 7000, "managers": 3, "registry": "zookeeper",
        "zookeeper": "", "zookeepers": 3, "restart": True, "log_level": "debug",
        "start_seconds": 5.0, "slots": 2, "provider": "local", "hosts_max": 7,
        "gcm": {"queues": {"durability": "none"}}, "hcm": {"exchange": {"max_perhost": 4}},
    }  # fmt: skip
    assert given.keys() == inspect.signature(cluster).parameters.keys()
    with cluster(**given):
        settings = background.made[0].settings
    assert {name: getattr(settings, name) for name in given} == given


def test_a_test_that_says_nothing_gets_one_host_on_any_ports_that_is_not_started_again(
    background: type[PaperBackground],
) -> None:
    with cluster() as made:
        assert isinstance(made, RunningCluster)
    settings = background.made[0].settings
    assert (settings.hosts, settings.port_base, settings.restart) == (1, 0, False)
    assert (settings.data_dir, settings.managers, settings.provider) == (None, 1, "")
