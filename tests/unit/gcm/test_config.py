"""Settings of the configuration manager, and the file that explains them."""

from pathlib import Path

import pytest

from roq.errors import ConfigError
from roq.gcm.config import GcmConfig, Network, Ports, load

FILE = Path(__file__).resolve().parents[3] / "config" / "gcm.toml"


def test_the_explained_file_holds_every_key_with_its_default() -> None:
    assert load(FILE, {}) == GcmConfig()
    text = FILE.read_text()
    for section in GcmConfig.__struct_fields__:
        assert f"[{section}]" in text
        for key in getattr(GcmConfig(), section).__struct_fields__:
            # The options of providers are in sections of their own.
            assert key == "options" or f"\n{key} = " in text


def test_the_environment_wins() -> None:
    config = load(FILE, {"ROQ_GCM_PORTS_BASE": "7000", "ROQ_GCM_ZK_SERVERS": "zk:1"})
    assert (config.port("client"), config.zk.servers) == (7000, "zk:1")


def test_ports_count_from_the_base_unless_set() -> None:
    config = GcmConfig(ports=Ports(base=7000, management=9))
    assert [config.port(name) for name in ("client", "management", "broadcast")] == [7000, 9, 7005]
    free = GcmConfig(ports=Ports(base=0))
    assert [free.port(name) for name in ("client", "management", "broadcast")] == [0, 0, 0]


def test_the_advertised_address_is_the_bound_one_unless_set() -> None:
    assert GcmConfig(network=Network(bind="10.0.0.1")).advertise == "10.0.0.1"
    assert GcmConfig(network=Network(bind="0.0.0.0", advertise="gcm1")).advertise == "gcm1"


def test_cloud_properties_hide_the_password(tmp_path: Path) -> None:
    file = tmp_path / "gcm.toml"
    file.write_text('[cloud]\nuse = true\nuser = "u"\npassword = "secret"\n')
    properties = load(file, {}).cloud_properties()
    assert properties == {
        "cloud.use": True,
        "cloud.user": "u",
        "cloud.endpoint": "",
        "cloud.gateway": "",
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[ports]\nbase = 70000\n", "base"),
        ("[ports]\nbase = 'x'\n", "base"),
        ("[ports]\nsugar = 1\n", "sugar"),
        ("[sugar]\n", "sugar"),
        ("[broadcast]\nperiod = 1\n", "period"),
        ("[network]\nbind = '0.0.0.0'\n", "advertise"),
        ("[network]\nbind = ''\n", "bind"),
        ("[zk]\nsession_seconds = 0\n", "session_seconds"),
        ("[zk]\nservers = ''\n", "servers"),
        ("[log]\nlevel = 'loud'\n", "level"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "gcm.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert named in str(refused.value)
    assert str(file) in str(refused.value)
