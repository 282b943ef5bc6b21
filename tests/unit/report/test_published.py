"""Published figures stand beside their scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.simulation.lab.report.figures import FIGURES
from roq.simulation.lab.report.published import PublishedError, Span, published
from roq.simulation.scenario.reading import known


def test_the_experiment_of_2011_is_known() -> None:
    found = published("eqs-2011")
    assert found is not None
    assert found.figures["latency_mean_ms"] == Span(5, 16)
    assert found.figures["exchanges_last"].text("") == "4"


def test_all_that_is_published_has_a_name_that_reports_know() -> None:
    for path in known():
        found = published(path.stem)
        assert found is None or found.figures.keys() <= FIGURES.keys()


def test_of_most_scenarios_nothing_is_published() -> None:
    assert published("step") is None


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.published.json").write_text('{"name": 1}')
    with pytest.raises(PublishedError, match=r"x\.published\.json"):
        published("x", tmp_path)
