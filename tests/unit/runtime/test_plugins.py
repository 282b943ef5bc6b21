"""Objects that other packages offer, and everything that can be wrong with them."""

from importlib.metadata import EntryPoint

import pytest

from roq.errors import ConfigError
from roq.policy.catalogue import POLICIES, Static
from roq.runtime import plugins


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch):
    """Say what is installed: (name, value) of entry points in any group."""

    def install(*points: tuple[str, str]) -> None:
        monkeypatch.setattr(
            "importlib.metadata.entry_points",
            lambda group: [EntryPoint(name, value, group) for name, value in points],
        )

    return install


def test_an_installed_object_is_loaded_by_name(offer) -> None:
    offer(("calm", "roq.policy.catalogue:Static"))
    assert plugins.load("roq.policies", "calm") is Static
    assert isinstance(plugins.policy("calm"), Static)


def test_own_names_cannot_be_taken(offer) -> None:
    offer(("balanced", "roq.policy.catalogue:Static"))
    assert plugins.policy("balanced") is POLICIES["balanced"]


def test_a_name_that_nobody_offers_tells_what_there_is(offer) -> None:
    offer(("calm", "a:b"), ("wild", "a:c"))
    with pytest.raises(ConfigError, match=r"no installed package offers 'x'.*there is calm, wild"):
        plugins.load("roq.policies", "x")
    offer()
    with pytest.raises(ConfigError, match="nothing"):
        plugins.load("roq.policies", "x")


def test_a_name_that_two_packages_offer_is_refused(offer) -> None:
    offer(("calm", "one:policy"), ("calm", "two:policy"))
    with pytest.raises(ConfigError, match="several packages: one:policy, two:policy"):
        plugins.load("roq.policies", "calm")


def test_the_same_offer_seen_twice_is_one(offer) -> None:
    offer(("calm", "roq.policy.catalogue:Static"), ("calm", "roq.policy.catalogue:Static"))
    assert plugins.load("roq.policies", "calm") is Static


@pytest.mark.parametrize("value", ["no.such.module:x", "roq.policy.catalogue:Missing"])
def test_what_cannot_be_imported_is_explained(offer, value: str) -> None:
    offer(("calm", value))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        plugins.policy("calm")


def test_what_is_no_policy_is_explained(offer) -> None:
    offer(("calm", "math:pi"))
    with pytest.raises(ConfigError, match="no method decide"):
        plugins.policy("calm")


def test_one_that_ends_the_process_when_it_is_loaded_is_explained(
    offer, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin_that_exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    offer(("calm", "plugin_that_exits:Calm"))
    with pytest.raises(ConfigError, match="cannot be loaded: SystemExit"):
        plugins.load("roq.policies", "calm")
