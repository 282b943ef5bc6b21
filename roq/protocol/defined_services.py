"""What the definition of a queue says of its services: settings, by name of a service or `*`.

What holds for a service at every exchange of the queue, setting by setting:

    its definition by name, else that of `*`  >  what a client has chosen last  >  the default

What a definition does not say any more has its default again, until a client chooses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Final

import msgspec

from roq.errors import InvalidRequest
from roq.number_ranges import Real, Whole
from roq.protocol.requesting import SETTINGS, ServiceSettings

EVERY: Final = "*"
"""In the place of a name: all services that do not say otherwise."""
SERVICES_MAX: Final = 64
"""Names in one definition: it travels whole, every second."""
_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}(?<!\.)\Z")

DefinedServices = dict[str, dict[str, Whole | Real]]
"""Name of a service, or `*` → setting → value."""


def settings_from(given: Mapping[str, object], what: str) -> ServiceSettings:
    """Settings of a service, checked.

    Args:
        what: they are, for the error.

    Raises:
        InvalidRequest: there is no such setting, or it is out of bounds; the text names it.
    """
    unknown = sorted(f"{each!s:.40}" for each in given if each not in SETTINGS)
    if unknown:
        known = ", ".join(SETTINGS)
        raise InvalidRequest(f"no setting of a service: {', '.join(unknown):.200}; use {known}")
    for name, value in given.items():
        if isinstance(value, float) and not isfinite(value):
            raise InvalidRequest(f"{what}: {name} is {value}")
    try:
        return msgspec.convert(dict(given), ServiceSettings)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{what}: {error}") from None


def checked_services(given: object) -> DefinedServices:
    """A definition, wherever it comes from, with each number as its setting wants it.

    Raises:
        InvalidRequest: it is none; the text names the service and the setting.
    """
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise InvalidRequest(f"services are defined by name, each with its settings, not by {kind}")
    if len(given) > SERVICES_MAX:
        raise InvalidRequest(f"a queue defines {SERVICES_MAX} services at most, not {len(given)}")
    checked: DefinedServices = {}
    for name, settings in given.items():
        shown = f"{name!r:.60}"
        if name != EVERY and (not isinstance(name, str) or _NAME.match(name) is None):
            raise InvalidRequest(f"{shown} cannot be the name of a service, and is not {EVERY}")
        if not isinstance(settings, Mapping):
            kind = type(settings).__name__
            raise InvalidRequest(f"service {shown} is defined by its settings, not by {kind}")
        found = settings_from(settings, f"service {shown}")
        if settings:
            checked[name] = {each: getattr(found, each) for each in SETTINGS if each in settings}
    return checked


def defined_for(services: DefinedServices, name: str) -> dict[str, float]:
    """What a definition says of one service."""
    return {**services.get(EVERY, {}), **services.get(name, {})}


def under(settings: ServiceSettings, defined: Mapping[str, float]) -> ServiceSettings:
    """These settings, but for what a definition says; it was checked.

    What one has said before, and this one does not say, has its default.
    """
    kept = {each: getattr(settings, each) for each in SETTINGS if each not in settings.defined}
    return ServiceSettings(
        **{**kept, **defined}, chosen=settings.chosen, defined=tuple(sorted(defined))
    )


def overruled(chosen: ServiceSettings, found: ServiceSettings) -> str:
    """Which settings that a client has chosen do not hold, as the definition says otherwise; empty:
    all do."""
    if not chosen.chosen:
        return ""
    return ", ".join(
        f"{each} is {getattr(found, each):g}, not {getattr(chosen, each):g}"
        for each in found.defined
        if each in SETTINGS and getattr(chosen, each) != getattr(found, each)
    )
