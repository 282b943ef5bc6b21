"""Numbers, times and strange texts as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import Final
from unicodedata import category

TEXT_MAX: Final = 2_000
"""Characters of a text that are shown."""
NOTHING: Final = "–"
"""Stands where there is no number."""
_PLAIN_BELOW: Final = 10_000
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_PREFIXES: Final = ("", "k", "M", "G", "T", "P")
_KEPT: Final = frozenset("\n\t\u200d")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def clean(text: str, most: int = TEXT_MAX) -> str:
    """A text without what steers terminals or turns writing around; long ones are cut.

    Args:
        text: from anywhere.
        most: characters that are kept.
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(
        "\ufffd" if category(sign) in _UNSEEN and sign not in _KEPT else sign for sign in cut
    )


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many digits that say something: `1,234,567`, `12.3`, `0.00123`."""
    if value is None or not isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    size = floor(log10(abs(value)))
    if size < -4 or size >= 15:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - size) if size < digits - 1 else round(value)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    return f"{rounded:,.{max(0, digits - 1 - size)}f}".rstrip("0").rstrip(".")


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit, in the multiple of the unit in which it is short.

    Args:
        value: in `unit`.
        unit: `s`, `min`, `B`, `B/s`, `%`, `share` (shown as per cent), or any other, which stays.
    """
    if value is None or not isfinite(value):
        return NOTHING
    if unit in {"s", "min"}:
        return duration(value * (_MINUTE if unit == "min" else 1))
    if unit in {"B", "B/s"}:
        scale, prefix = multiple(value)
        return f"{number(value / scale)} {prefix}{unit}"
    if unit == "share":
        return f"{number(100 * value)} %"
    if not unit:
        return number(value, digits=4)
    return f"{number(value)}{'' if unit.startswith('/') else ' '}{unit}"


def multiple(value: float) -> tuple[float, str]:
    """A power of a thousand that makes a number short, and its prefix."""
    power = 0
    size = abs(value)
    while size >= 999.5 and power < len(_PREFIXES) - 1:
        size /= 1_000
        power += 1
    return 1_000.0**power, _PREFIXES[power]


def tick_labels(ticks: Sequence[float], *, log: bool = False, unit: str = "") -> list[str]:
    """Values at an axis: `0`, `20k`, `40k`; on a logarithmic one as they are."""
    top = max(map(abs, ticks), default=0.0)
    plain = log or (top < _PLAIN_BELOW and not unit)
    scale, prefix = (1.0, "") if plain else multiple(top)
    behind = f" {prefix}{unit}" if unit else prefix
    return [number(tick / scale) + (behind if tick else "") for tick in ticks]


def duration(seconds: float | None) -> str:
    """How long something lasts: `0.25 s`, `45 s`, `2 min 30 s`, `3 h 5 min`, `2 d`."""
    if seconds is None or not isfinite(seconds):
        return NOTHING
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < _MINUTE:
        return f"{number(seconds)} s"
    for size, unit, small, part in (
        (_MINUTE, "min", 1, "s"), (_HOUR, "h", _MINUTE, "min"), (_DAY, "d", _HOUR, "h"),
    ):  # fmt: skip
        whole, rest = divmod(round(seconds / small), size // small)
        if unit == "d" or whole < _LIMITS[unit]:
            return f"{whole:,} {unit}" + (f" {rest} {part}" if rest else "")
    return NOTHING


_LIMITS: Final = {"min": 60, "h": 48}


def moment(seconds: float) -> str:
    """A time since the beginning: `12.5 s`, `2:05`, `1:02:05`."""
    if abs(seconds) < _MINUTE:
        return f"{number(seconds)} s"
    whole = round(seconds)
    minutes, rest = divmod(abs(whole), _MINUTE)
    hours, minutes = divmod(minutes, _MINUTE)
    sign = "−" if whole < 0 else ""
    if hours:
        return f"{sign}{hours:,}:{minutes:02}:{rest:02}"
    return f"{sign}{minutes}:{rest:02}"


def count(amount: int, noun: str, plural: str = "") -> str:
    """`1 move`, `12 moves`."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
