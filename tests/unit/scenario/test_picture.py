"""The picture of a record."""

from __future__ import annotations

from pathlib import Path

import pytest
from kpi_samples import exchange, move, scale, subscriber

from roq.simulation.scenario import measures, picture
from roq.simulation.scenario.measures import Period
from roq.simulation.scenario.record import Record


def test_rates_of_different_exchanges_are_put_on_one_grid() -> None:
    found = {2: [Period(2.0, 3.0, 5.0)], 1: [Period(0.0, 1.0, 1.0), Period(1.0, 2.0, 2.0)]}
    moments, rows = picture.stacked(found, 0.0, 3.0)
    assert list(rows) == [1, 2]
    assert moments[:3] == [0.0, 0.5, 1.0]
    assert rows[1] == [0.0, 1.0, 1.0, 2.0, 2.0, 0.0, 0.0]
    assert rows[2] == [0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0]


def test_an_exchange_serves_from_its_first_to_its_last_word() -> None:
    found = {1: [Period(1.0, 2.0, 5.0), Period(2.0, 9.0, 0.0)], 2: [Period(4.0, 6.0, 0.0)], 3: []}
    assert picture.serving(found, 1.0, [0.5, 4.0, 8.0, 9.0]) == [1, 2, 1, 0]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_record_becomes_a_picture(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    record = Record(0.0)
    record.take([exchange(float(when), 1, 1_000 * when, publishers=2) for when in range(10)])
    record.take([exchange(float(when), 2, 500 * when, publishers=1) for when in range(4, 8)])
    record.take([scale(3.0, "out", "started"), scale(3.6, "out", "done", 2, 0.6)])
    record.take([move(4.0, "aa", "accepted"), move(5.0, "bb", "failed")])
    record.take([subscriber(float(when), "cc", 4.0) for when in range(10)])
    path = tmp_path / f"picture{suffix}"
    caption = picture.Caption("title", "subtitle", "footer")
    picture.draw(record, path, caption, limit=600.0, latency=measures.latency_of(record))
    assert path.stat().st_size > 5_000
