"""The table of a sweep: written in parts, read by columns; what is none of it is named."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
from pyarrow import parquet

from roq.simulation.forecast import results
from roq.simulation.forecast.grid import Value
from roq.simulation.forecast.results import Results, Row
from roq.simulation.lab.archive.folder import RunError

VARY: dict[str, list[Value]] = {"vary_policy": ["known", "static"], "vary_x": [1, 1.5]}


def row(policy: str, x: float, seed: int, moves: float) -> Row:
    return {"vary_policy": policy, "vary_x": x, "seed": seed, "moves": moves, "messages": 1.0}


def test_what_is_added_is_read_by_combination_and_seed_in_whatever_order_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "ROWS_MAX", 2)
    with Results(tmp_path / "t", VARY) as kept:
        for each in (
            row("static", 1, 2, 5.0), row("known", 1.5, 1, 7.0), row("static", 1, 1, 3.0),
            row("static", 1, 3, nan), row("known", 1, 1, 9.0),
        ):  # fmt: skip
            kept.add(each)
    found = Results(tmp_path / "t", VARY).combinations(["moves"])
    assert [
        (tuple(each.values.values()), each.runs, list(each.figures["moves"])) for each in found
    ] == [(("known", 1), 1, [9.0]), (("known", 1.5), 1, [7.0]), (("static", 1), 3, [3.0, 5.0])]
    assert len(list((tmp_path / "t").glob("part-*.parquet"))) == 3
    assert parquet.read_table(tmp_path / "t").num_rows == kept.rows == 5


def test_a_table_of_another_sweep_and_a_place_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with Results(tmp_path / "t", VARY) as kept:
        kept.add(row("known", 1, 1, 1.0))
    with (
        pytest.raises(RunError, match="has results of another sweep"),
        Results(tmp_path / "t", VARY),
    ):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be made"), Results(tmp_path / "file", VARY):
        pass
    with pytest.raises(RunError, match="cannot be kept there"):
        Results("nothing://there/is", VARY)


def test_who_adds_nothing_leaves_nothing(tmp_path: Path) -> None:
    with Results(tmp_path / "t", VARY):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_damaged_or_foreign_is_named(tmp_path: Path) -> None:
    with Results(tmp_path / "t", VARY) as kept:
        kept.add(row("known", 1, 1, 1.0))
    (tmp_path / "t" / "notes.txt").write_text("of a person: left alone")
    assert kept.combinations(["moves"])
    with pytest.raises(RunError, match=r"part-00000.parquet: is damaged or no results"):
        kept.combinations(["speed"])
    (tmp_path / "t" / "part-00001.parquet").write_bytes(b"half")
    with pytest.raises(RunError, match=r"part-00001.parquet: is damaged or no results"):
        kept.combinations(["moves"])
