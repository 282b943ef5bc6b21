"""Sweeps: every combination with every seed, kept as a table, as Parquet and as pictures."""

from __future__ import annotations

import csv
import shutil
from array import array
from pathlib import Path

import msgspec
import pytest
from pyarrow import parquet

from roq.errors import ConfigError
from roq.simulation.forecast.heatmap import draw
from roq.simulation.forecast.order import RunOrder, SweepOrder, setting, values
from roq.simulation.forecast.results import Combination
from roq.simulation.forecast.run import run
from roq.simulation.forecast.sweep import FILE, RESULTS, Record, again, conduct
from roq.simulation.forecast.table import table
from roq.simulation.lab.archive.folder import RunError


def order(out: Path, **others: object) -> SweepOrder:
    return msgspec.convert(
        {
            "scenarios": ["ramp"],
            "seeds": 2,
            "scale": 0.3,
            "vary": {"cooldown_seconds": [2, 10], "policy": ["balanced", "static"]},
            "metrics": ["moves", "overload_minutes"],
            "spark": False,
            "workers": 1,
            "out": out,
            **others,
        },
        SweepOrder,
    )


def test_a_sweep_is_kept_with_what_was_asked(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    found = conduct(order(tmp_path), lambda done, total: told.append((done, total)))
    assert (found.runs, found.wanted) == (8, 8)
    assert told[-1] == (8, 8)
    assert [(row["cooldown_seconds"], row["policy"]) for row in found.table] == [
        (2, "balanced"), (2, "static"), (10, "balanced"), (10, "static"),
    ]  # fmt: skip
    assert [row["moves"] for row in found.table if row["policy"] == "static"] == [0, 0]
    assert all(path.parent == found.folder and path.stat().st_size for path in found.written)
    kept = msgspec.json.decode(
        (found.folder / FILE).read_bytes(), type=Record, dec_hook=lambda kind, text: kind(text)
    )
    assert (kept.order.vary, kept.runs) == (order(tmp_path).vary, 8)
    with (found.folder / "table.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert parquet.read_table(found.folder / RESULTS).num_rows == 8
    written = {path: path.read_bytes() for path in found.written}
    for path in found.written[1:]:
        path.unlink()
    assert again(found.folder).table == found.table
    assert {path: path.read_bytes() for path in found.written} == written


def test_the_runs_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    found = conduct(order(tmp_path / "own", results_at=shared.as_uri()))
    (place,) = shared.iterdir()
    assert place.name == f"sweep={found.folder.name}"
    assert not (found.folder / RESULTS).exists()
    moved = found.folder.rename(tmp_path / "moved")
    assert again(moved).table == found.table
    shared.joinpath("file").touch()
    with pytest.raises(RunError, match="cannot be made"):
        conduct(order(tmp_path / "other", results_at=str(shared / "file")))
    assert list((tmp_path / "other").iterdir()) == []


def test_a_place_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = conduct(order(tmp_path / "own", seeds=1, vary={}, results_at="shared"))
    monkeypatch.chdir(found.folder)
    assert again(Path()).table == found.table


@pytest.mark.parametrize("metrics", [["moves", "moves"], ["seed"]])
def test_a_figure_that_is_wanted_twice_is_no_damage(tmp_path: Path, metrics: list[str]) -> None:
    found = conduct(order(tmp_path, seeds=1, vary={}, metrics=metrics))
    assert metrics[0] in found.table[0]


def test_where_the_runs_are_gone_nothing_is_written_over(tmp_path: Path) -> None:
    folder = conduct(order(tmp_path, seeds=1, vary={})).folder
    kept = (folder / "table.csv").read_bytes()
    shutil.rmtree(folder / RESULTS)
    with pytest.raises(RunError, match="there are no results"):
        again(folder)
    (folder / RESULTS).write_bytes(b"one file, as they once were")
    with pytest.raises(RunError, match="cannot be read"):
        again(folder)
    assert (folder / "table.csv").read_bytes() == kept


def test_where_nothing_can_be_written_nothing_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: list[int] = []
    with pytest.raises(RunError, match="cannot be made"):
        conduct(order(tmp_path / "file"), lambda done, _total: told.append(done))
    with pytest.raises(RunError, match="cannot be made"):
        run(RunOrder(scenario="ramp", out=tmp_path / "file"), lambda done, _: told.append(done))
    assert told == []


def test_who_interrupts_a_sweep_at_once_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct(order(tmp_path, queues=2, hosts=2, cells=2), interrupt)
    assert list(tmp_path.iterdir()) == []


def test_who_interrupts_a_sweep_gets_what_is_complete(tmp_path: Path) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    found = conduct(order(tmp_path), interrupt)
    assert (found.runs, found.wanted) == (3, 8)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"scenarios": ["nothing"]}, "no scenario 'nothing'"),
        ({"metrics": ["speed"]}, "no figure 'speed'"),
        ({"vary": {"speed": [1, 2]}}, "nothing called 'speed'"),
        ({"vary": {"cooldown_seconds": ["fast"]}}, "cooldown_seconds"),
        ({"settings": {"known.OVERLAOD": 1.2}}, "OVERLAOD"),
        ({"settings": {"cooldown_seconds": 2.7}}, "cooldown_seconds: a whole number"),
        ({"settings": {"publishers": "many"}}, "publishers: a whole number"),
        ({"seeds": 100_000, "vary": {"spread": list(range(11))}}, "1,100,000 runs are more"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_played(tmp_path, wrong, text) -> None:
    with pytest.raises(ConfigError, match=text):
        conduct(order(tmp_path, **wrong))
    assert list(tmp_path.iterdir()) == []


def test_settings_are_read_as_people_type_them() -> None:
    assert setting("cooldown_seconds=2") == ("cooldown_seconds", 2)
    assert values("known.OVERLOAD=1.05,1.1") == ("known.OVERLOAD", [1.05, 1.1])
    assert setting("x=nan") == ("x", "nan")
    for wrong in ("x", "=1", "x="):
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            setting(wrong)
        with pytest.raises(ConfigError, match="NAME=VALUE"):
            values(wrong)


def test_the_error_is_that_of_student() -> None:
    (row,) = table([combination(1, moves=[4.0, 6.0, 8.0])], ["moves"])
    assert row == {
        "a": 1,
        "scenario": "x",
        "runs": 3,
        "moves": 6.0,
        "moves ±": pytest.approx(4.968, abs=1e-3),
    }


def test_a_single_run_has_no_error() -> None:
    (row,) = table([combination(1, moves=[4.0])], ["moves"])
    assert row == {"a": 1, "scenario": "x", "runs": 1, "moves": 4.0, "moves ±": ""}


def test_what_did_not_happen_took_no_time_and_does_not_count(tmp_path: Path) -> None:
    found = [combination(1, reaction_seconds=[2.0, 4.0]), combination(2, reaction_seconds=[])]
    first, second = table(found, ["reaction_seconds"])
    assert first["reaction_seconds"] == 3.0
    assert (second["reaction_seconds"], second["reaction_seconds ±"]) == ("", "")
    assert draw(found, ["reaction_seconds"], tmp_path)
    none = [found[1], combination(3, reaction_seconds=[])]
    assert draw(none, ["reaction_seconds"], tmp_path)


def combination(a: int, **figures: list[float]) -> Combination:
    runs = max(1, *map(len, figures.values()))
    values = {"vary_a": a, "vary_scenario": "x"}
    return Combination(values, runs, {name: array("d", each) for name, each in figures.items()})
