"""Which provider a cluster has, and every way in which that can be wrong."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from providers import PaperOptions, PaperProvider

from roq.errors import ConfigError, ProviderFailed
from roq.provider import choice
from roq.provider.choice import Choice, known, open_provider
from roq.provider.local import LocalProvider
from roq.provider.port import ENTRY_POINTS
from roq.runtime import plugins


class NoOptions(PaperProvider):
    Options = dict  # type: ignore[assignment]


class Half:
    Options = PaperOptions

    def __init__(self, options: PaperOptions) -> None:
        self.options = options

    def create(self) -> None:
        pass


class Burning(PaperProvider):
    def __init__(self, options: PaperOptions) -> None:
        raise {0: ProviderFailed("no credentials; set them"), 1: ZeroDivisionError("oops")}[
            options.hosts_max
        ]


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What installed packages offer."""
    kinds = {"paper": "PaperProvider", "none": "NoOptions", "half": "Half", "burning": "Burning",
             "local": "PaperProvider"}  # fmt: skip
    points = {
        name: [EntryPoint(name, f"{__name__}:{kind}", ENTRY_POINTS)] for name, kind in kinds.items()
    }
    monkeypatch.setattr(plugins, "offered", lambda group: points if group == ENTRY_POINTS else {})


def test_without_a_choice_there_is_no_provider() -> None:
    assert open_provider(Choice()) is None


def test_a_provider_of_a_package_gets_its_own_section() -> None:
    provider = open_provider(
        Choice(use="paper", options={"paper": {"hosts_max": 3}, "rack": {"what": "ever"}})
    )
    assert isinstance(provider, PaperProvider)
    assert provider.options == PaperOptions(hosts_max=3)


def test_the_names_of_our_own_providers_are_not_for_others(tmp_path: Path) -> None:
    table: dict[str, object] = {"data_dir": str(tmp_path)}
    provider = open_provider(Choice(use="local", options={"local": table}))
    assert isinstance(provider, LocalProvider)
    assert known()["local"] == choice.OWN["local"]
    assert set(known()) >= {"docker", "local", "paper"}


def test_wrong_options_are_told_with_their_place() -> None:
    options: dict[str, dict[str, object]] = {"paper": {"hosts_max": -1, "hosts_mix": 2}}
    with pytest.raises(ConfigError) as caught:
        open_provider(Choice(use="paper", options=options), source="etc/gcm.toml")
    assert "etc/gcm.toml: provider.paper.hosts_max: " in str(caught.value)
    assert "provider.paper.hosts_mix: unknown key, did you mean" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("rack", 1, "no installed package offers 'rack' in roq.providers"),
        ("none", 1, "has no `Options`"),
        ("half", 1, "has no list, remove, close"),
        ("burning", 0, r"gcm\.toml: provider\.burning: no credentials; set them"),
        ("burning", 1, "cannot be made: ZeroDivisionError"),
    ],
)
def test_a_provider_that_cannot_be_used_is_a_sentence(name: str, limit: int, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_provider(Choice(use=name, options={name: {"hosts_max": limit}}))
