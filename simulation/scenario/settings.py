"""Limits and rules of the queue of a scenario, by the names that RoQ gives them."""

from __future__ import annotations

import msgspec

from roq.client.admin.views import ScalingRules
from roq.errors import ConfigError
from roq.model import Limits
from roq.simulation.scenario.scenario import Scenario


def queue_limits(scenario: Scenario) -> Limits:
    """The limits of the queue.

    Raises:
        ConfigError: there is no such limit, or it has no such value.
    """
    given = scenario.queue.limits
    known = Limits.__struct_fields__
    for name in given:
        if name not in known:
            names = ", ".join(known)
            raise ConfigError(f"queue.limits: there is no limit {name!r}; there are {names}")
    try:
        return msgspec.convert(given, Limits)
    except msgspec.ValidationError as error:
        raise ConfigError(f"queue.limits: {error}") from None


def queue_rules(scenario: Scenario) -> ScalingRules | None:
    """The rules of the queue; None if nothing is said.

    Raises:
        ConfigError: there is no such rule, or it has no such value.
    """
    given = scenario.queue.rules
    if not given:
        return None
    known = [name for name in ScalingRules.__struct_fields__ if name != "name"]
    for name in given:
        if name not in known:
            names = ", ".join(known)
            raise ConfigError(f"queue.rules: there is no rule {name!r}; there are {names}")
    # Given rules are all of them, so a limit of the queue must not be forgotten.
    most = {"exchanges_max": queue_limits(scenario).exchanges_max}
    try:
        return msgspec.convert({"name": scenario.name, **most, **given}, ScalingRules)
    except msgspec.ValidationError as error:
        raise ConfigError(f"queue.rules: {error}") from None
