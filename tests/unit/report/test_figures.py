"""Figures have names, units and an order."""

from __future__ import annotations

from typing import get_args

from roq.simulation.lab.report.figures import FIGURES, Figure, about, ordered
from roq.simulation.scenario.scenario import What


def test_everything_that_can_be_expected_has_a_name() -> None:
    assert set(get_args(What)) <= FIGURES.keys()
    assert len({figure.label for figure in FIGURES.values()}) == len(FIGURES)


def test_a_figure_that_nobody_knows_is_what_its_name_says() -> None:
    assert about("queue_wait_ms") == Figure("Queue wait", "ms")
    assert about("disk_bytes_per_second") == Figure("Disk", "B/s")
    assert about("_ms").label
    assert about("").label == ""


def test_known_figures_come_first_and_in_their_order() -> None:
    assert ordered(["zzz", "moves", "aaa", "sent"]) == ["sent", "moves", "aaa", "zzz"]
