"""Colours are told apart, also by those who see fewer of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from roq.simulation.lab.report.palette import NAMED, NAMED_DARK, exchanges


def lightness(colour: str) -> float:
    """Relative luminance, as contrast is computed from."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_neighbours_differ_in_lightness() -> None:
    for one, other in pairwise(NAMED[:4]):
        assert abs(lightness(one) - lightness(other)) > 0.03


@pytest.mark.parametrize(("colours", "page"), [(NAMED, 1.0), (NAMED_DARK, lightness("#12171d"))])
def test_no_colour_vanishes_in_the_page(colours: tuple[str, ...], page: float) -> None:
    for colour in colours:
        light, dark = max(page, lightness(colour)), min(page, lightness(colour))
        assert (light + 0.05) / (dark + 0.05) > 1.8


def test_many_exchanges_get_a_ramp_that_only_grows_lighter() -> None:
    found = exchanges(range(1, 51))
    assert len(set(found)) == 50
    assert all(lightness(one) < lightness(other) for one, other in pairwise(found))


def test_those_that_are_taken_together_are_grey() -> None:
    red, green, blue = (int(exchanges([1, -1])[1][at : at + 2], 16) for at in (1, 3, 5))
    assert max(red, green, blue) - min(red, green, blue) < 30
