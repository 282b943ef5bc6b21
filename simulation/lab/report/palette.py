"""Colours: few, told apart by colour-blind people and in grey, for light and for dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAMED: Final = (
    "#2f6690", "#dba63f", "#58b5a4", "#8e3b54", "#97c1e4", "#6a4c93", "#a3c285", "#a06c3c",
)  # fmt: skip
"""Of few exchanges: neighbours differ in lightness, too."""
NAMED_DARK: Final = (
    "#4f8fc6", "#d8a53f", "#72cfbd", "#bd5a77", "#b5d6f0", "#8d73b8", "#c3dba6", "#b5834f",
)  # fmt: skip
_RAMP: Final = ("#1d3a63", "#2f6f8f", "#6fae9e", "#e3cf94")
_RAMP_DARK: Final = ("#35588c", "#3f86a3", "#7fbfae", "#ead79c")
_GREY: Final = ("#9aa3ad", "#69727c")


def exchanges(numbers: Sequence[int], *, dark: bool = False) -> list[str]:
    """A colour for each exchange.

    Up to eight have colours with a name; more get a ramp from dark to light by their number, and
    those that are taken together (a negative number) grey.
    """
    named = [number for number in numbers if number >= 0]
    colours = NAMED_DARK if dark else NAMED
    if len(named) <= len(colours):
        found = dict(zip(named, colours, strict=False))
    else:
        stops = _RAMP_DARK if dark else _RAMP
        found = {
            number: _between(stops, place / (len(named) - 1)) for place, number in enumerate(named)
        }
    return [found.get(number, _GREY[dark]) for number in numbers]


def _between(stops: Sequence[str], share: float) -> str:
    """A colour on the way through several."""
    place = share * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    before, after = _parts(stops[index]), _parts(stops[index + 1])
    rest = place - index
    return "#" + "".join(
        f"{round(a + (b - a) * rest):02x}" for a, b in zip(before, after, strict=True)
    )


def _parts(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
