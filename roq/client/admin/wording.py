"""Sizes and spans of time as people read them, on a terminal or a page."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def bytes_text(count: float) -> str:
    """A number of bytes as people read it: `1.3 MB`."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def age_text(seconds: float) -> str:
    """A span of time in one unit, as people say it."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
