"""The sub-documents of command 2006: complete, within their ranges, or refused by name."""

import bson
import pytest
from bson.int64 import Int64

from roq.model import ElasticRules
from roq.protocol import documents, public
from roq.protocol.public import Bad, parse_management
from roq.protocol.scaling_rules import EXCHANGES_MAX, INT32_MAX, NUMBER_MAX, PARTS, RANGES

COMPLETE: dict[str, dict[str, object]] = {
    "AUTOSCALING_HOST": {"AUTOSCALING_HOST_CPU": 80, "AUTOSCALING_HOST_RAM": 512},
    "AUTOSCALING_XCHANGE": {"AUTOSCALING_XCHANGE_THR": 75_000_000},
    "AUTOSCALING_Q": {"AUTOSCALING_THR_PROD_EXCH": 10, "AUTOSCALING_Q_PROD_EXCH": 4},
    "AUTOSCALING_ROQ": {
        "AUTOSCALING_ROQ_POLICY": "balanced",
        "AUTOSCALING_ROQ_LATENCY": 20,
        "AUTOSCALING_ROQ_XCHANGE_MIN": 1,
        "AUTOSCALING_ROQ_XCHANGE_MAX": 8,
        "AUTOSCALING_ROQ_COOLDOWN": 10,
        "AUTOSCALING_ROQ_SLOW": "hold",
        "AUTOSCALING_ROQ_HOLD": 10,
    },
}
LATER = {"AUTOSCALING_ROQ_SLOW", "AUTOSCALING_ROQ_HOLD"}
"""Rules that were set without them are still there."""
FIELDS = [(part, name) for part, fields in COMPLETE.items() for name in fields]
NUMBERS = [(part, name) for part, name in FIELDS if name in RANGES]


def understood(**parts: object) -> public.SetRules | Bad:
    frame = bson.encode({"CMD": 2006, "QName": "orders", "AUTOSCALING_NAME": "mine", **parts})
    request = parse_management(frame)
    assert isinstance(request, public.SetRules | Bad)
    return request


def refusal(**parts: object) -> str:
    bad = understood(**parts)
    assert isinstance(bad, Bad)
    answer = bson.decode(bad.answer())
    assert (answer["RESULT"], answer["CODE"]) == (1101, "invalid_request")
    return str(answer["COMMENT"])


def with_field(part: str, name: str, value: object) -> dict[str, object]:
    return {part: {**COMPLETE[part], name: value}}


def test_the_table_has_every_number_of_every_part() -> None:
    fields = {name for kind in PARTS.values() for name in kind.__struct_fields__}
    assert fields - set(RANGES) == {"AUTOSCALING_ROQ_POLICY", "AUTOSCALING_ROQ_SLOW"}
    assert set(RANGES) < fields
    assert {part: set(kind.__struct_fields__) for part, kind in PARTS.items()} == {
        part: set(fields) for part, fields in COMPLETE.items()
    }


def test_all_parts_together_are_understood() -> None:
    request = understood(**COMPLETE)
    assert isinstance(request, public.SetRules)
    told = documents.decode_raw(documents.encode(request))
    assert {name: told[name] for name in PARTS} == COMPLETE


@pytest.mark.parametrize(("part", "name"), [each for each in FIELDS if each[1] not in LATER])
def test_a_missing_field_is_named(part: str, name: str) -> None:
    lacking = {key: value for key, value in COMPLETE[part].items() if key != name}
    expected = f"The {name} field is not present, INVALID REQUEST"
    assert refusal(**{part: lacking}) == expected
    assert refusal(**with_field(part, name, None)) == expected


@pytest.mark.parametrize(("part", "name"), NUMBERS)
def test_a_number_out_of_its_range_is_named(part: str, name: str) -> None:
    low, high = RANGES[name]
    for value in (low - 1, high + 1, -(2**63), 2**63 - 1):
        text = refusal(**with_field(part, name, Int64(value)))
        assert text == f"{name} must be from {low} to {high}, not {value}"


@pytest.mark.parametrize(("part", "name"), NUMBERS)
@pytest.mark.parametrize("value", [1.5, 1e300, float("nan"), float("inf"), "7", True, [1], {}])
def test_what_is_no_integer_is_named(part: str, name: str, value: object) -> None:
    assert name in refusal(**with_field(part, name, value))


@pytest.mark.parametrize(("part", "name"), NUMBERS)
def test_any_kind_of_number_is_understood(part: str, name: str) -> None:
    value = 5
    for given in (value, Int64(value), float(value)):
        request = understood(**with_field(part, name, given))
        assert isinstance(request, public.SetRules)
        assert getattr(getattr(request, part), name) == value


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_no_document_is_named(part: str) -> None:
    for value in (5, "all", [COMPLETE[part]]):
        assert part in refusal(**{part: value})
    assert not isinstance(understood(**{part: None}), Bad)


def test_percent_and_counts_have_the_ends_that_people_expect() -> None:
    assert RANGES["AUTOSCALING_HOST_CPU"] == (0, 100)
    assert RANGES["AUTOSCALING_HOST_RAM"] == (0, INT32_MAX)
    assert RANGES["AUTOSCALING_XCHANGE_THR"] == (0, NUMBER_MAX)
    assert RANGES["AUTOSCALING_ROQ_XCHANGE_MAX"] == (1, EXCHANGES_MAX)


def test_the_least_may_not_be_above_the_most() -> None:
    part = {**COMPLETE["AUTOSCALING_ROQ"], "AUTOSCALING_ROQ_XCHANGE_MIN": 9}
    text = refusal(AUTOSCALING_ROQ=part)
    assert text == "AUTOSCALING_ROQ_XCHANGE_MIN 9 is above AUTOSCALING_ROQ_XCHANGE_MAX 8"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "x" * 129, "\u00e9"])
def test_a_policy_must_have_a_name_that_one_can_have(name: str) -> None:
    text = refusal(**with_field("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_POLICY", name))
    assert text.startswith("AUTOSCALING_ROQ_POLICY: ")
    assert "no valid policy name" in text


def test_a_policy_that_nobody_here_knows_is_accepted() -> None:
    # It may be installed where the monitor runs; the monitor says so if it is not.
    request = understood(**with_field("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_POLICY", "acme.calm"))
    assert not isinstance(request, Bad)


def test_the_defaults_of_elasticity_are_within_the_ranges() -> None:
    defaults = ElasticRules()
    for name, value in (
        ("AUTOSCALING_ROQ_XCHANGE_MIN", defaults.exchanges_min),
        ("AUTOSCALING_ROQ_XCHANGE_MAX", defaults.exchanges_max),
        ("AUTOSCALING_ROQ_COOLDOWN", defaults.cooldown_seconds),
        ("AUTOSCALING_ROQ_LATENCY", defaults.latency_ms),
        ("AUTOSCALING_ROQ_HOLD", defaults.hold_seconds),
    ):
        assert RANGES[name][0] <= value <= RANGES[name][1]


def test_a_slow_subscriber_is_waited_for_or_not() -> None:
    assert not isinstance(
        understood(**with_field("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_SLOW", "drop")), Bad
    )
    bad = understood(**with_field("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_SLOW", "wait"))
    assert isinstance(bad, Bad)
    assert "AUTOSCALING_ROQ_SLOW must be hold or drop" in str(bad)


def test_what_came_later_need_not_be_there() -> None:
    part = COMPLETE["AUTOSCALING_ROQ"]
    request = understood(AUTOSCALING_ROQ={k: v for k, v in part.items() if k not in LATER})
    assert isinstance(request, public.SetRules)
    assert request.AUTOSCALING_ROQ is not None
    assert request.AUTOSCALING_ROQ.AUTOSCALING_ROQ_SLOW == "hold"
    assert request.AUTOSCALING_ROQ.AUTOSCALING_ROQ_HOLD == 10
