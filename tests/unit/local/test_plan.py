"""Which processes a local cluster consists of."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from roq.errors import ConfigError
from roq.local.folder import Folder
from roq.local.plan import Plan
from roq.local.ports import choose_ports, is_free
from roq.local.settings import LocalSettings


def names(settings: LocalSettings) -> list[str]:
    return [planned.name for planned in Plan(settings).parts]


def test_what_there_is_once_has_a_plain_name() -> None:
    hosts = ["gcm", "host 127.0.0.1", "host 127.0.0.2"]
    assert names(LocalSettings(hosts=2)) == hosts
    assert names(LocalSettings(hosts=2, registry="zookeeper")) == ["zookeeper", *hosts]


def test_what_there_is_several_times_is_numbered() -> None:
    assert names(LocalSettings(managers=2, zookeepers=3)) == [
        *("zookeeper 1", "zookeeper 2", "zookeeper 3"),
        *("gcm 1", "gcm 2"),
        "host 127.0.0.1",
    ]


def test_a_named_zookeeper_is_not_started() -> None:
    plan = Plan(LocalSettings(zookeeper="z:1"))
    assert [planned.name for planned in plan.parts] == ["gcm", "host 127.0.0.1"]
    assert plan.addresses.registry == "z:1"


def test_all_addresses_of_managers_and_servers_are_told() -> None:
    addresses = Plan(LocalSettings(managers=3, zookeepers=3)).addresses
    port = int(addresses.client.rpartition(":")[2])
    assert addresses.managers == [f"127.0.0.1:{port + step}" for step in (0, 10, 20)]
    assert len(set(addresses.registry.split(","))) == 3


def test_metrics_are_served_only_if_wanted_and_by_everybody_at_a_port_of_his_own() -> None:
    assert Plan(LocalSettings()).addresses.metrics == []
    free = Plan(LocalSettings(managers=2, hosts=2, metrics=True)).addresses.metrics
    assert len(set(free)) == 4
    base = next(
        each
        for each in choose_ports("127.0.0.1", 50)
        if each < 65_000 and all(is_free("127.0.0.1", each + 1 + n) for n in range(30))
    )
    fixed = Plan(LocalSettings(managers=2, hosts=2, metrics=True, port_base=base)).addresses.metrics
    assert fixed == [
        f"127.0.0.1:{base + 8}",
        f"127.0.0.1:{base + 18}",
        f"127.0.0.1:{base + 9}",
        f"127.0.0.2:{base + 9}",
    ]


def test_a_process_that_is_started_again_has_the_same_addresses(tmp_path: Path) -> None:
    plan = Plan(LocalSettings())
    folder = Folder(tmp_path)
    host = plan.parts[-1]
    path = Path(host.command(folder)[-3])
    first = tomllib.loads(path.read_text())
    assert Path(host.command(folder)[-3]) == path
    assert tomllib.loads(path.read_text()) == first
    assert first["network"]["port"]
    folder.close()


@pytest.mark.parametrize(("before", "now"), [(1, 3), (3, 1)])
def test_a_registry_of_another_number_of_servers_is_not_mistaken_for_an_empty_one(
    before: int, now: int, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    for planned in Plan(LocalSettings(registry="zookeeper", zookeepers=before)).parts[:before]:
        planned.command(folder)
    Plan(LocalSettings(registry="zookeeper", zookeepers=before)).check_folder(folder)
    with pytest.raises(ConfigError, match=f"--zookeepers {before}"):
        Plan(LocalSettings(registry="zookeeper", zookeepers=now)).check_folder(folder)
    folder.close()


def test_a_registry_of_another_kind_is_not_mistaken_for_an_empty_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    file = Plan(LocalSettings())
    address = file.addresses_in(folder).registry
    assert address == f"file:{tmp_path}/cluster.db"
    (tmp_path / "cluster.db").touch()
    file.check_folder(folder)
    with pytest.raises(ConfigError, match="use --registry file"):
        Plan(LocalSettings(registry="zookeeper")).check_folder(folder)
    (tmp_path / "cluster.db").unlink()
    (tmp_path / "zookeeper").mkdir()
    with pytest.raises(ConfigError, match="use --registry zookeeper --zookeepers 1"):
        file.check_folder(folder)
    folder.close()
