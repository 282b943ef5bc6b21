"""Which runs a sweep consists of: every combination of what is varied, with each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import isfinite
from typing import Final, TypeAlias

import msgspec

from roq.errors import ConfigError
from roq.simulation.forecast import thresholds
from roq.simulation.forecast.case import RULES, Case
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.scenario.scenario import Phase, Scenario

Value: TypeAlias = int | float | str
RUNS_MAX: Final = 1_000_000
SIZES: Final = ("hosts", "queues", "cells")


def value(text: str) -> Value:
    """A number if it is one, else the text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if isfinite(number):
            return number
    return text


def in_order(value: Value) -> tuple[bool, str, float]:
    """A key by which values are sorted: numbers, then texts."""
    return (True, value, 0.0) if isinstance(value, str) else (False, "", value)


def varied(case: Case, values: Mapping[str, Value]) -> Case:
    """The case with other rules, parameters, thresholds or sizes.

    Args:
        case: what is varied.
        values: by the name of a rule (`cooldown_seconds`), a parameter (`move_most`), a threshold
            (`known.OVERLOAD`), `hosts`, `queues`, `cells` or `publishers`.

    Raises:
        ConfigError: there is no such name, or it cannot have this value.
    """
    rules, parameters, limits = dict(case.rules), {}, dict(case.thresholds)
    sizes: dict[str, Value] = {}
    scenario = case.scenario
    for name, each in values.items():
        if name in RULES:
            rules[name] = _whole(name, each) if isinstance(each, float) else each
        elif name in Parameters.__struct_fields__:
            parameters[name] = each
        elif name in SIZES:
            sizes[name] = each
        elif name == "publishers":
            scenario = with_publishers(scenario, _whole(name, each))
        elif "." in name and not isinstance(each, str):
            limits[name] = float(each)
        else:
            raise ConfigError(f"there is nothing called {name!r} to be changed; {_names()}")
    with thresholds.applied(limits):
        pass  # their names are right
    try:
        assumed = msgspec.convert(
            {**msgspec.structs.asdict(case.parameters), **parameters}, Parameters
        )
        return msgspec.convert(
            {**msgspec.structs.asdict(case), "scenario": scenario, "rules": rules,
             "parameters": assumed, "thresholds": limits, **sizes}, Case,
        )  # fmt: skip
    except msgspec.ValidationError as error:
        raise ConfigError(f"{', '.join(values)}: {error}") from None


def _whole(name: str, value: Value) -> int:
    if isinstance(value, str) or value != int(value):
        raise ConfigError(f"{name}: a whole number is wanted, not {value!r}")
    return int(value)


def combinations(vary: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """Every combination of the values."""
    return [dict(zip(vary, each, strict=True)) for each in product(*vary.values())]


def with_publishers(scenario: Scenario, count: int) -> Scenario:
    """The scenario with so many publishers at its peak, in the same proportions."""
    most = max(sum(group.count for group in phase.publishers) for phase in scenario.phases)
    if not most:
        raise ConfigError(f"scenario {scenario.name} has no publishers")

    def scaled(phase: Phase) -> Phase:
        groups = [
            msgspec.structs.replace(
                group,
                count=max(1, round(group.count * count / most)),
                spawn_rate=group.spawn_rate * count / most,
            )
            for group in phase.publishers
        ]
        return msgspec.structs.replace(phase, publishers=groups)

    return msgspec.structs.replace(scenario, phases=[scaled(each) for each in scenario.phases])


def _names() -> str:
    return (
        f"rules: {', '.join(RULES)}; parameters: {', '.join(Parameters.__struct_fields__)}; "
        f"thresholds: {', '.join(thresholds.known())}; sizes: {', '.join(SIZES)}, publishers"
    )
