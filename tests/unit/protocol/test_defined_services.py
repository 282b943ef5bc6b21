"""What may be defined of services, and what holds when clients choose something else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roq.errors import InvalidRequest
from roq.protocol.defined_services import (
    SERVICES_MAX,
    checked_services,
    defined_for,
    overruled,
    settings_from,
    under,
)
from roq.protocol.requesting import SETTINGS, ServiceSettings

DEFAULTS = ServiceSettings()


def test_a_definition_is_numbers_by_name_and_for_all() -> None:
    given = {
        "billing": {"keep_result": 60, "store_bytes": 4096},
        "*": {"send_attempts": 8},
        "b": {},
    }
    checked = checked_services(given)
    assert checked == {
        "billing": {"keep_result": 60.0, "store_bytes": 4096}, "*": {"send_attempts": 8},
    }  # fmt: skip
    assert isinstance(checked["*"]["send_attempts"], int)
    assert checked_services(checked) == checked


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "not by list"),
        ({"billing": 7}, "'billing' is defined by its settings, not by int"),
        ({"billing": {"keep": 7}}, "no setting of a service: keep; use send_attempts, send_wait"),
        ({"billing": {"chosen": 1}}, "no setting of a service: chosen"),
        ({"billing": {7: 7}}, "no setting of a service: 7"),
        ({"billing": {"x" * 500: 1}}, "no setting of a service: xxx"),
        ({"billing": {"keep_result": 0}}, "service 'billing': .*keep_result"),
        ({"billing": {"keep_result": 1e9}}, "service 'billing': .*keep_result"),
        ({"billing": {"keep_result": float("nan")}}, "service 'billing': keep_result is nan"),
        ({"billing": {"delay": float("inf")}}, "service 'billing': delay is inf"),
        ({"billing": {"send_attempts": 1.5}}, "send_attempts"),
        ({"billing": {"send_attempts": 1 << 70}}, "send_attempts"),
        ({"billing": {"send_attempts": True}}, "send_attempts"),
        ({"billing": {"send_wait": "1"}}, "send_wait"),
        ({"billing": {"send_wait": None}}, "send_wait"),
        ({"": {}}, "cannot be the name"),
        ({"a/b": {}}, "cannot be the name"),
        ({".a": {}}, "cannot be the name"),
        ({"a.": {}}, "cannot be the name"),
        ({"a\n": {}}, "cannot be the name"),
        ({7: {}}, "cannot be the name"),
        ({"x" * 129: {}}, "cannot be the name"),
        ({f"s{each}": {} for each in range(SERVICES_MAX + 1)}, "64 services at most, not 65"),
    ],
)
def test_what_makes_no_sense_is_named(given: Any, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as raised:
        checked_services(given)
    assert len(str(raised.value)) < 500


def test_a_name_says_more_than_all() -> None:
    services = {"*": {"delay": 1.0, "send_wait": 2.0}, "s": {"delay": 3.0}}
    assert defined_for(services, "s") == {"delay": 3.0, "send_wait": 2.0}
    assert defined_for(services, "t") == {"delay": 1.0, "send_wait": 2.0}
    assert defined_for({}, "t") == {}


def test_a_definition_holds_and_what_a_client_has_chosen_beside_it() -> None:
    chosen = ServiceSettings(keep_result=9.0, delay=5.0, chosen=True)
    found = under(chosen, {"keep_result": 60.0})
    assert (found.keep_result, found.delay, found.chosen) == (60.0, 5.0, True)
    assert found.defined == ("keep_result",)
    assert under(found, {"keep_result": 60.0}) == found


def test_what_is_not_defined_any_more_has_its_default() -> None:
    found = under(DEFAULTS, {"keep_result": 60.0, "send_attempts": 9})
    later = under(found, {"delay": 2.0})
    assert (later.keep_result, later.send_attempts, later.delay) == (30.0, 4, 2.0)
    assert later.defined == ("delay",)
    assert under(later, {}) == DEFAULTS


def test_who_has_chosen_otherwise_is_told_which_settings_do_not_hold() -> None:
    chosen = settings_from({"keep_result": 9, "delay": 5, "send_wait": 3}, "settings")
    chosen = msgspec.structs.replace(chosen, chosen=True)
    found = under(chosen, {"keep_result": 60.0, "send_wait": 3.0})
    assert overruled(chosen, found) == "keep_result is 60, not 9"
    assert overruled(msgspec.structs.replace(chosen, chosen=False), found) == ""
    strange = msgspec.structs.replace(found, defined=("of a later version",))
    assert overruled(chosen, strange) == ""


def test_every_setting_can_be_defined() -> None:
    assert set(SETTINGS) == set(ServiceSettings.__struct_fields__) - {"chosen", "defined"}
    values = {each: getattr(DEFAULTS, each) for each in SETTINGS}
    assert checked_services({"s": values}) == {"s": values}
