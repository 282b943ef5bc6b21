"""The configuration files of a local cluster."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from roq.errors import ConfigError
from roq.gcm.config import load as load_gcm
from roq.hcm.config import load as load_hcm
from roq.local.settings import LocalSettings, gcm_configuration, hcm_configuration


def test_the_files_are_what_the_daemons_accept(tmp_path: Path) -> None:
    settings = LocalSettings(hosts=2, registry="zookeeper", log_format="json")
    gcm_path, hcm_path = tmp_path / "gcm.toml", tmp_path / "hcm.toml"
    gcm_path.write_text(gcm_configuration(settings, 7000, 7008, "127.0.0.1:2181", Path("/d/hosts")))
    hcm_path.write_text(
        hcm_configuration(
            settings,
            "127.0.0.2",
            9000,
            7009,
            tmp_path,
            ["127.0.0.1:7000", "127.0.0.1:7010"],
            "127.0.0.1:2181",
        )
    )
    gcm = load_gcm(gcm_path, {})
    hcm = load_hcm(hcm_path, {})
    assert gcm.port("broadcast") == 7005
    assert gcm.registry_address == hcm.registry_address == "127.0.0.1:2181"
    assert gcm.log.format == hcm.log.format == "json"
    assert hcm.network.bind == "127.0.0.2"
    assert hcm.network.port == 9000
    assert (gcm.metrics.port, hcm.metrics.port, hcm.metrics.bind) == (7008, 7009, "127.0.0.2")
    assert hcm.gcm.address == ["127.0.0.1:7000", "127.0.0.1:7010"]


def test_further_settings_stand_over_the_ones_made_here() -> None:
    settings = LocalSettings(gcm={"broadcast": {"period": 200}, "log": {"level": "debug"}})
    document = tomllib.loads(gcm_configuration(settings, 7000, 0, "z:1", Path("/d/hosts")))
    assert document["broadcast"]["period"] == 200
    assert document["log"] == {"level": "debug", "format": "text"}
    assert document["ports"]["base"] == 7000


def test_an_ensemble_gets_less_time_to_answer_than_a_server_that_is_being_started() -> None:
    assert LocalSettings(zookeeper="z:1").connect_seconds < LocalSettings().connect_seconds


@pytest.mark.parametrize("hosts", [0, -1, 251])
def test_a_cluster_has_a_sensible_number_of_hosts(hosts: int) -> None:
    with pytest.raises(ConfigError, match="1 to 250"):
        LocalSettings(hosts=hosts)


@pytest.mark.parametrize("servers", [0, 2, 4, 7])
def test_an_ensemble_has_an_odd_number_of_servers_and_the_reason_is_given(servers: int) -> None:
    with pytest.raises(ConfigError, match="more than half"):
        LocalSettings(zookeepers=servers)


def test_zookeeper_is_either_named_or_started() -> None:
    with pytest.raises(ConfigError, match="not both"):
        LocalSettings(zookeeper="z:1", zookeepers=3)


def test_the_registry_is_a_file_unless_something_is_said_of_zookeeper() -> None:
    assert LocalSettings().in_file
    assert LocalSettings(registry="file").in_file
    for said in ({"registry": "zookeeper"}, {"zookeeper": "z:1"}, {"zookeepers": 3}):
        assert not LocalSettings(**said).in_file


def test_a_registry_that_is_unknown_or_two_things_is_refused() -> None:
    with pytest.raises(ConfigError, match="file or zookeeper, not 'etcd'"):
        LocalSettings(registry="etcd")
    for said in ({"zookeeper": "z:1"}, {"zookeepers": 3}):
        with pytest.raises(ConfigError, match="either a file or ZooKeeper"):
            LocalSettings(registry="file", **said)


def test_both_daemons_are_told_the_same_file(tmp_path: Path) -> None:
    address = f"file:{tmp_path}/cluster.db"
    gcm_path, hcm_path = tmp_path / "gcm.toml", tmp_path / "hcm.toml"
    gcm_path.write_text(gcm_configuration(LocalSettings(), 7000, 0, address, Path("/d/hosts")))
    hcm_path.write_text(
        hcm_configuration(LocalSettings(), "127.0.0.1", 9000, 0, tmp_path, ["127.0.0.1:1"], address)
    )
    assert load_gcm(gcm_path, {}).registry_address == address
    assert load_hcm(hcm_path, {}).registry_address == address
    named = {"ROQ_GCM_REGISTRY_ADDRESS": "file:/c.db", "ROQ_HCM_REGISTRY_ADDRESS": "file:/c.db"}
    assert load_gcm(gcm_path, named).registry_address == "file:/c.db"
    assert load_hcm(hcm_path, named).registry_address == "file:/c.db"


@pytest.mark.parametrize("managers", [0, 10])
def test_a_cluster_has_a_sensible_number_of_managers(managers: int) -> None:
    with pytest.raises(ConfigError, match="1 to 9"):
        LocalSettings(managers=managers)
