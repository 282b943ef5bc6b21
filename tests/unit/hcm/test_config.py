from pathlib import Path

import msgspec
import pytest

from roq.errors import ConfigError
from roq.hcm.config import (
    Exchange,
    Gcm,
    HcmConfig,
    Monitor,
    Network,
    Statmonitor,
    advertised_address,
    bind_address,
    check,
    load,
    settings_of,
)

SHIPPED = Path(__file__).parents[3] / "config" / "hcm.toml"


def test_the_shipped_file_loads_and_shows_every_key_with_its_default() -> None:
    assert load(SHIPPED, {}) == HcmConfig()
    text = SHIPPED.read_text()
    for section in msgspec.structs.fields(HcmConfig):
        assert f"[{section.name}]" in text
        for key in msgspec.structs.fields(section.type):
            assert f"\n{key.name} = " in text, f"{section.name}.{key.name} is not in the file"


def test_a_variable_overrides_the_file() -> None:
    assert load(SHIPPED, {"ROQ_HCM_NETWORK_PORT": "5101"}).network.port == 5101
    assert load(SHIPPED, {"ROQ_HCM_EXCHANGE_MAX_PERHOST": "3"}).exchange.max_perhost == 3


def test_an_unknown_key_is_named_with_its_file(tmp_path) -> None:
    file = tmp_path / "hcm.toml"
    file.write_text("[exchange]\nmax_per_host = 3\n")
    with pytest.raises(ConfigError, match=r"hcm.toml.*exchange.max_per_host"):
        load(file, {})


def test_a_value_that_cannot_work_is_named_with_its_file(tmp_path) -> None:
    file = tmp_path / "hcm.toml"
    file.write_text("[exchange]\nmax_perhost = -3\n[log]\nlevel = 'loud'\n")
    named = r"(?s)hcm.toml: exchange.max_perhost.*hcm.toml: log.level"
    with pytest.raises(ConfigError, match=named):
        load(file, {})


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (HcmConfig(gcm=Gcm(address=[])), "gcm.address"),
        (HcmConfig(gcm=Gcm(address=["nowhere"])), "gcm.address"),
        (HcmConfig(gcm=Gcm(address=["h:99999"])), "gcm.address"),
        (HcmConfig(monitor=Monitor(base_port=65_500)), "monitor"),
        (HcmConfig(statmonitor=Statmonitor(base_port=5_600)), "overlap"),
    ],
)
def test_values_that_cannot_work_are_refused_by_key(config, key) -> None:
    with pytest.raises(ConfigError, match=key):
        check(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MONITOR_STAT_PERIOD", "0"),
        ("MONITOR_STAT_PERIOD", "60000"),
        ("EXCHANGE_MAX_PERHOST", "-1"),
        ("CHILDREN_ORPHAN_SECONDS", "0"),
        ("CHILDREN_DRAIN_SECONDS", "-1"),
        ("CHILDREN_DRAIN_SECONDS", "inf"),
        ("NETWORK_PORT", "70000"),
        ("LOG_FORMAT", "xml"),
        ("ZK_SESSION_SECONDS", "0.5"),
        ("ZK_CONNECT_SECONDS", "0"),
    ],
)
def test_values_out_of_their_bounds_are_named(key, value) -> None:
    with pytest.raises(ConfigError, match=f"ROQ_HCM_{key}"):
        load(SHIPPED, {f"ROQ_HCM_{key}": value})


def test_a_child_is_not_taken_for_hung_too_soon() -> None:
    assert load(SHIPPED, {"ROQ_HCM_CHILDREN_HUNG_SECONDS": "0"}).children.hung_seconds == 0
    with pytest.raises(ConfigError, match="hung_seconds"):
        load(SHIPPED, {"ROQ_HCM_CHILDREN_HUNG_SECONDS": "0.01"})


@pytest.mark.parametrize("seconds", ["-1", "0", "1", "3.9"])
def test_an_exchange_is_not_killed_before_it_has_written_its_log(seconds: str) -> None:
    assert load(SHIPPED, {"ROQ_HCM_CHILDREN_STOP_SECONDS": "4"}).children.stop_seconds == 4
    with pytest.raises(ConfigError, match="stop_seconds"):
        load(SHIPPED, {"ROQ_HCM_CHILDREN_STOP_SECONDS": seconds})


@pytest.mark.parametrize(
    ("network", "bind", "advertised"),
    [
        (Network(), "127.0.0.1", "127.0.0.1"),
        (Network(bind="127.0.0.2"), "127.0.0.2", "127.0.0.2"),
        (Network(bind="localhost", advertise="box.example"), "127.0.0.1", "box.example"),
        (Network(bind="0.0.0.0", advertise="10.0.0.7"), "0.0.0.0", "10.0.0.7"),
        (Network(bind="::1"), "::1", "::1"),
        (Network(bind="[::1]"), "::1", "::1"),
        (Network(bind="*", advertise="[fd00::7]"), "0.0.0.0", "fd00::7"),
        (Network(interface="lo"), "127.0.0.1", "127.0.0.1"),
        (Network(interface="lo", bind="0.0.0.0"), "0.0.0.0", "127.0.0.1"),
    ],
)
def test_bind_and_advertised_address_are_apart(network, bind, advertised) -> None:
    assert bind_address(network) in {bind, "::1"}  # localhost may be either
    assert advertised_address(network) == advertised


def test_a_host_that_binds_to_everything_must_say_how_others_reach_it() -> None:
    with pytest.raises(ConfigError, match=r"network\.advertise"):
        advertised_address(Network(bind="0.0.0.0"))


@pytest.mark.parametrize("network", [Network(bind="no.such.host.invalid"), Network(interface="x9")])
def test_an_address_that_nobody_has_is_refused(network) -> None:
    with pytest.raises(ConfigError, match=r"network\."):
        bind_address(network)


def test_the_machine_gets_ranges_endpoints_and_seconds() -> None:
    config = HcmConfig(
        network=Network(bind="0.0.0.0", advertise="10.0.0.7"),
        exchange=Exchange(base_port=0, max_perhost=3),
        gcm=Gcm(address=["a:1", "tcp://[::1]:2"]),
    )
    settings = settings_of(config, 5100)
    assert settings.control == "tcp://10.0.0.7:5100"
    assert settings.control_local == "tcp://127.0.0.1:5100"
    assert settings.managers == ("tcp://a:1", "tcp://[::1]:2")
    assert settings.monitor_ports == (5500, 5800)
    assert settings.statistics_ports == (5800, 6000)
    assert settings.exchange_ports == (0, 0)
    assert (settings.exchange_max, settings.kpi_seconds) == (3, 1.0)
