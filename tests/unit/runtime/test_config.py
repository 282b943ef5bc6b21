"""Settings: where they are found, what wins, and that everything wrong is said at once."""

import logging
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import ConfigError
from roq.runtime import config
from roq.runtime.config import load, to_toml


class Network(msgspec.Struct, frozen=True, kw_only=True):
    bind: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 5000
    peers: list[str] = []
    weights: list[int] = []
    fast: bool = False
    ratio: float = 0.5
    proxy: str | None = None


class Range(msgspec.Struct, frozen=True, kw_only=True):
    low: int = 1
    high: int = 2

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    network: Network = Network()
    range: Range = Range()
    data_dir: str = "data"


class Demanding(msgspec.Struct, frozen=True, kw_only=True):
    class Login(msgspec.Struct, frozen=True, kw_only=True):
        user: str

    login: Login


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    network: Network = Network(bind="::1", port=7)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, and a system folder that is not this machine's."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(config, "SYSTEM_FOLDER", tmp_path / "etc")
    return here


def read(text: str, tmp_path: Path, **environ: str) -> Settings:
    file = tmp_path / "demo.toml"
    file.write_text(text)
    return load(Settings, "demo", path=file, environ=environ, prefix="ROQ_DEMO")


def refusal(text: str, tmp_path: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path, **environ)
    return str(caught.value)


# --- values ---------------------------------------------------------------------------------------


def test_no_file_and_no_variable_give_the_defaults() -> None:
    assert load(Settings, "demo", environ={}, prefix="ROQ_DEMO") == Settings()


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    settings = read('data_dir = "d"\n[network]\nport = 1\nratio = 2\npeers = ["a"]', tmp_path)
    assert settings == Settings(data_dir="d", network=Network(port=1, ratio=2.0, peers=["a"]))
    assert isinstance(settings.network.ratio, float)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert read("", tmp_path) == Settings()


def test_defaults_of_a_section_may_differ_from_those_of_its_type() -> None:
    result = load(Preset, "demo", environ={"ROQ_DEMO_NETWORK_PORT": "8"}, prefix="ROQ_DEMO")
    assert result.network == Network(bind="::1", port=8)


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    settings = read("[network]\nport = 1", tmp_path, ROQ_DEMO_NETWORK_PORT="2")
    assert settings.network.port == 2


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("BIND", " spaces stay ", "bind", " spaces stay "),
        ("BIND", "", "bind", ""),
        ("BIND", "12", "bind", "12"),
        ("PORT", " 7 ", "port", 7),
        ("RATIO", "1e-3", "ratio", 0.001),
        ("RATIO", "2", "ratio", 2.0),
        ("FAST", "yes", "fast", True),
        ("FAST", "TRUE", "fast", True),
        ("FAST", "1", "fast", True),
        ("FAST", "off", "fast", False),
        ("FAST", "0", "fast", False),
        ("PEERS", "a:1, b:2", "peers", ["a:1", "b:2"]),
        ("PEERS", "", "peers", []),
        ("WEIGHTS", "1,2", "weights", [1, 2]),
        ("PROXY", "p", "proxy", "p"),
    ],
)
def test_variables_are_read_by_the_type_of_their_key(
    name: str, text: str, field: str, value: object, tmp_path: Path
) -> None:
    settings = read("", tmp_path, **{f"ROQ_DEMO_NETWORK_{name}": text})
    assert getattr(settings.network, field) == value


def test_a_key_outside_sections_has_a_variable_too(tmp_path: Path) -> None:
    assert read("", tmp_path, ROQ_DEMO_DATA_DIR="/d").data_dir == "/d"


# --- what is wrong --------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = refusal("[network]\nprot = 1", tmp_path)
    assert text == f"{tmp_path}/demo.toml: network.prot: unknown key, did you mean network.port?"


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    assert "netwrok: unknown key, did you mean network?" in refusal("[netwrok]", tmp_path)


def test_an_unknown_key_like_no_other_lists_the_known_ones(tmp_path: Path) -> None:
    assert "range.zzz: unknown key, known here: low, high" in refusal("[range]\nzzz=1", tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('port = "5000"', "network.port: expected `int`, got `str`"),
        ("port = true", "network.port: expected `int`, got `bool`"),
        ("port = 1.5", "network.port: expected `int`, got `float`"),
        ("port = 65536", "network.port: expected `int` <= 65535"),
        ("bind = 1", "network.bind: expected `str`, got `int`"),
        ("bind = 2020-01-01", "network.bind: expected `str`, got `date`"),
        ("fast = 1", "network.fast: expected `bool`, got `int`"),
        ("ratio = nan", "network.ratio: must be a finite number"),
        ("ratio = inf", "network.ratio: must be a finite number"),
        ('peers = "a"', "network.peers: expected `array`, got `str`"),
        ("peers = [1]", "network.peers: expected `str`, got `int` - at `$[0]`"),
    ],
)
def test_a_wrong_type_or_range_is_refused_with_its_key(
    line: str, words: str, tmp_path: Path
) -> None:
    assert refusal(f"[network]\n{line}", tmp_path) == f"{tmp_path}/demo.toml: {words}"


def test_a_section_that_is_a_value_is_refused(tmp_path: Path) -> None:
    assert "network: is a section, write [network]" in refusal("network = 1", tmp_path)


def test_values_that_do_not_fit_each_other_are_refused_with_their_section(tmp_path: Path) -> None:
    text = refusal("[range]\nlow = 9", tmp_path)
    assert text == f"{tmp_path}/demo.toml: range: low 9 is above high 2"


def test_a_variable_that_cannot_be_read_is_named_with_its_text(tmp_path: Path) -> None:
    text = refusal("", tmp_path, ROQ_DEMO_NETWORK_PORT="many")
    assert text == "environment: ROQ_DEMO_NETWORK_PORT='many': expected `int`"


def test_a_long_variable_is_shown_shortened(tmp_path: Path) -> None:
    assert len(refusal("", tmp_path, ROQ_DEMO_NETWORK_PORT="x" * 10_000)) < 200


@pytest.mark.parametrize("text", ["70000", "-1", "1.5", ""])
def test_a_variable_out_of_range_is_refused(text: str, tmp_path: Path) -> None:
    assert "ROQ_DEMO_NETWORK_PORT" in refusal("", tmp_path, ROQ_DEMO_NETWORK_PORT=text)


def test_an_unknown_variable_of_a_known_section_is_refused(tmp_path: Path) -> None:
    text = refusal("", tmp_path, ROQ_DEMO_NETWORK_PROT="1")
    assert text == (
        "environment: ROQ_DEMO_NETWORK_PROT: unknown variable, did you mean ROQ_DEMO_NETWORK_PORT?"
    )


def test_variables_that_a_container_system_sets_are_mentioned_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read("", tmp_path, ROQ_DEMO_SERVICE_HOST="10.0.0.1", OTHER="1") == Settings()
    assert "ROQ_DEMO_SERVICE_HOST" in caplog.text
    assert "OTHER" not in caplog.text


def test_a_setting_without_default_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"login\.user: is missing.*ROQ_DEMO_LOGIN_USER"):
        load(Demanding, "demo", environ={}, prefix="ROQ_DEMO")
    given = load(Demanding, "demo", environ={"ROQ_DEMO_LOGIN_USER": "u"}, prefix="ROQ_DEMO")
    assert given.login.user == "u"


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = refusal(
        "colour = 1\n[network]\nport = 'x'\nprot = 1\n[range]\nlow = 9",
        tmp_path,
        ROQ_DEMO_NETWORK_FAST="perhaps",
    )
    assert text.startswith("5 problems in the configuration:\n")
    for words in (
        "demo.toml: colour: unknown key",
        "demo.toml: network.port: expected `int`",
        "demo.toml: network.prot: unknown key",
        "demo.toml: range: low 9 is above high 2",
        "environment: ROQ_DEMO_NETWORK_FAST='perhaps': expected `bool`",
    ):
        assert words in text


# --- files ----------------------------------------------------------------------------------------


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no configuration file"):
        load(Settings, "demo", path=tmp_path / "none.toml", environ={}, prefix="ROQ_DEMO")


def test_a_named_folder_holds_the_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text('data_dir = "there"')
    found = load(Settings, "demo", path=tmp_path, environ={}, prefix="ROQ_DEMO")
    assert found.data_dir == "there"
    with pytest.raises(ConfigError, match=r"other\.toml"):
        load(Settings, "other", path=tmp_path, environ={}, prefix="ROQ_DEMO")


def test_the_first_of_the_usual_places_wins(tmp_path: Path, empty_folder: Path) -> None:
    environ = {"ROQ_HOME": str(tmp_path / "home")}

    def where() -> str:
        return load(Settings, "demo", environ=environ, prefix="ROQ_DEMO").data_dir

    assert where() == "data"
    for folder in (tmp_path / "etc", empty_folder / "config", tmp_path / "home" / "config"):
        folder.mkdir(parents=True)
        (folder / "demo.toml").write_text(f'data_dir = "{folder}"')
        assert where() == str(folder)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[network", "is no TOML"),
        (b"a = 1\na = 2", "is no TOML"),
        (b"\xff\xfe", "is no UTF-8 text"),
        (b"#" * (config.FILE_BYTES_MAX + 1), "so it is something else"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    data: bytes, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "demo.toml"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        load(Settings, "demo", path=file, environ={}, prefix="ROQ_DEMO")
    assert str(file) in str(caught.value)


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    use: str = ""
    others: config.OtherSections = msgspec.field(default_factory=dict)


class Shop(msgspec.Struct, frozen=True, kw_only=True):
    shelf: Shelf = Shelf()


def test_sections_that_are_not_known_yet_are_kept_for_whoever_knows_them(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[shelf]\nuse = "oak"\n[shelf.oak]\nboards = 3\n[shelf.oak.deep]\nx = [1]\n')
    shop = load(Shop, "shop", path=file, environ={}, prefix="SHOP")
    assert shop.shelf == Shelf(use="oak", others={"oak": {"boards": 3, "deep": {"x": [1]}}})
    assert load(Shop, "shop", environ={}, prefix="SHOP").shelf.others == {}


def test_a_plain_value_is_no_section_that_somebody_may_know(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("[shelf]\nuze = 1\nothers = 2\n")
    with pytest.raises(ConfigError, match=r"shelf\.uze: unknown key, did you mean shelf\.use") as e:
        load(Shop, "shop", path=file, environ={}, prefix="SHOP")
    assert "shelf.others: unknown key" in str(e.value)


def test_a_section_read_before_is_converted_with_all_its_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        config.convert(Network, {"port": -1, "binde": ""}, source="shop.toml", section="shelf.oak")
    assert "shop.toml: shelf.oak.port: " in str(caught.value)
    assert "shelf.oak.binde: unknown key, did you mean shelf.oak.bind?" in str(caught.value)
    assert config.convert(Network, {"port": 7}, source="s", section="a") == Network(port=7)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = (
    TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(TEXT, max_size=3)
)


@given(VALUES)
def test_every_value_survives(value: object) -> None:
    assert tomllib.loads(to_toml({"s": {"k": value}}, {})) == {"s": {"k": value}}


def test_single_keys_are_replaced_and_added() -> None:
    text = to_toml({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b.c": {"z": True}})
    assert tomllib.loads(text) == {"a": {"x": 1, "y": 3}, "b": {"c": {"z": True}}}


@pytest.mark.parametrize("name", ["", "a b", "a]\n[b", 'a"', "a..b", ".a", "é"])
def test_a_name_that_would_break_the_file_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a setting"):
        to_toml({name: {}}, {})
    with pytest.raises(ConfigError, match="cannot be the name of a setting"):
        to_toml({"s": {name: 1}}, {})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="k must be a finite number"):
        to_toml({"s": {"k": value}}, {})
