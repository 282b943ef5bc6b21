"""The settings of a host that a provider makes, and who may change them."""

import tomllib

import pytest

from roq.errors import ConfigError
from roq.provider.configuration import host_configuration
from roq.provider.port import HostRequest


def written(settings: dict[str, dict[str, object]] | None = None) -> dict[str, dict[str, object]]:
    request = HostRequest(
        cluster="c", name="n", managers=["m:1", "m:2"], zookeeper="z:1,z:2", zookeeper_root="/R",
        settings=settings or {},  # type: ignore[arg-type]
    )  # fmt: skip
    text = host_configuration(
        request,
        usual={"exchange": {"base_port": 0, "max_perhost": 1}},
        wanted={"exchange": {"max_perhost": 2}, "log": {"level": "debug"}},
        place={"data": {"dir": "/d"}},
    )
    return tomllib.loads(text)


def test_a_host_knows_where_its_cluster_is() -> None:
    found = written()
    assert found["gcm"] == {"address": ["m:1", "m:2"]}
    assert found["zk"] == {"servers": "z:1,z:2", "root": "/R", "connect_seconds": 20.0}


def test_a_host_of_a_cluster_with_a_file_is_told_the_file() -> None:
    request = HostRequest(cluster="c", name="n", managers=["m:1"], zookeeper="file:/d/cluster.db")
    found = tomllib.loads(host_configuration(request, usual={}, wanted={}, place={}))
    assert found["registry"] == {"address": "file:/d/cluster.db"}
    assert found["zk"] == {"connect_seconds": 20.0}


def test_the_request_wins_over_the_options_and_these_over_what_is_usual() -> None:
    assert written()["exchange"] == {"base_port": 0, "max_perhost": 2}
    assert written({"exchange": {"max_perhost": 3}})["exchange"]["max_perhost"] == 3
    assert written({"zk": {"connect_seconds": 3.0}})["zk"]["connect_seconds"] == 3.0


def test_nobody_moves_a_host_to_another_place_or_cluster() -> None:
    found = written({"data": {"dir": "/etc"}, "gcm": {"address": ["x:1"]}, "zk": {"root": "/X"}})
    assert found["data"]["dir"] == "/d"
    assert found["gcm"]["address"] == ["m:1", "m:2"]
    assert found["zk"]["root"] == "/R"


def test_a_name_that_would_break_the_file_is_refused() -> None:
    with pytest.raises(ConfigError):
        written({"a]\n[b": {}})
