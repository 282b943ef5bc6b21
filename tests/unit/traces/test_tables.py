"""What is written down of the tables is what they are."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from roq.simulation.lab.traces.summary import remarks
from roq.simulation.lab.traces.tables import COLUMNS, reference
from roq.simulation.scenario.scenario import What

DOCS = (Path(__file__).parents[3] / "docs" / "simulation.md").read_text()


def test_the_docs_have_every_column_with_its_type_and_meaning() -> None:
    assert reference() in DOCS, f"docs/simulation.md, Tables, has to be\n\n{reference()}"


def test_the_docs_say_what_each_figure_means_that_can_be_expected() -> None:
    figures = DOCS.partition("## Traces")[2].partition("### Figures")[2].partition("\n## ")[0]
    assert [name for name in get_args(What) if f"`{name}`" not in figures] == []


def test_no_column_stands_twice_in_a_table() -> None:
    for columns in COLUMNS.values():
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)


def test_only_what_is_remarkable_is_remarked() -> None:
    assert remarks({"traces": 9.0, "traces_missing": 0.0}) == []
    assert remarks({"silent_seconds": 2.5}) == ["For 2.5 s nothing is known of the exchanges."]
