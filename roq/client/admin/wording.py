"""Sizes and times as people read and write them, on a terminal or a page."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from roq.errors import InvalidRequest
from roq.protocol.requesting import (
    DURATION_BOUNDS,
    ENDS,
    SETTINGS,
    Durations,
    RequestState,
    ServiceSettings,
)

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def bytes_text(count: float) -> str:
    """A number of bytes as people read it: `1.3 MB`."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def many(number: int, noun: str) -> str:
    """A number of things: `1 exchange`, `2 exchanges`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def age_text(seconds: float) -> str:
    """A span of time in one unit, as people say it."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def durations_text(some: Durations) -> str:
    """Mean, and what half of them and all but one of a hundred have taken at most."""
    if not some.count:
        return "-"
    told = [f"mean {some.seconds / some.count:.3g} s"]
    for name, part in (("half", 0.5), ("99 %", 0.99)):
        most = some.at(part)
        bound = f"above {DURATION_BOUNDS[-1]:g} s" if math.isinf(most) else f"≤ {most:g} s"
        told.append(f"{name} {bound}")
    return ", ".join(told)


def ended_text(counted: str) -> str:
    """What is counted of the ends of requests: an end, or a reason to discard one."""
    if counted in ENDS:
        return f"Ended: {counted}"
    expired = counted == RequestState.EXPIRED
    return "Of these never fetched" if expired else f"Discarded: {counted}"


def setting_text(name: str, value: float) -> str:
    """A setting of a service: bytes, attempts, or seconds."""
    if name.endswith("_bytes"):
        return bytes_text(value)
    return f"{value:g}" if name.endswith("_attempts") else f"{value:g} s"


def settings_texts(settings: ServiceSettings) -> dict[str, str]:
    """Those of a service, by name, and which of them the definition of the queue says."""
    return {
        each: setting_text(each, getattr(settings, each))
        + (", as the queue defines" if each in settings.defined else "")
        for each in SETTINGS
    }


def place_of(text: str) -> str | datetime:
    """Where a group goes on: `earliest`, `latest`, or a time with its zone.

    Raises:
        InvalidRequest: no such place.
    """
    if text in {"earliest", "latest"}:
        return text
    try:
        place = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither earliest nor latest nor a time such as 2026-11-25T08:00:00Z"
        ) from None
    if place.tzinfo is None:
        raise InvalidRequest(
            f"{text!r} has no time zone: add Z for UTC, or an offset such as +01:00"
        )
    return place
