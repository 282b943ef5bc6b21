"""Traces as lines that old tools read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import run_of
from traces import Story, exchange, queue

from roq.protocol.kpi import SubscriberKpi
from roq.simulation.lab.archive.folder import write_run
from roq.simulation.lab.traces.export import lines, main
from roq.simulation.lab.traces.place import TracesError
from roq.simulation.lab.traces.tables import KPI, SCHEMAS, TABLE


def listener(received: int) -> SubscriberKpi:
    return SubscriberKpi(
        queue="orders", queue_id=b"q" * 16, subscriber="cd" * 16, received=received,
        received_per_second=1.0, latency_ms=1.25, lost=0,
    )  # fmt: skip


def written(folder: Path) -> Path:
    story = Story()
    story.document(1.0, exchange(1, 70, uptime=61.0))
    story.document(1.0, queue(1))
    story.document(2.0, exchange(1, 100, uptime=62.0))
    story.document(2.5, listener(5))
    story.document(65.0, listener(9))
    story.client("publisher-0", 0.0, [0.001], messages=7)
    story.client("publisher-0", 60.0, [0.001], messages=3)
    story.client("subscriber-0", 0.0, [0.001], messages=6)
    story.messages.append(story.messages[0])  # an exchange died, and it was sent again
    place = story.write(folder)
    run = run_of("a-run")
    settings = {**run.settings, "traces": place.uri}
    write_run(folder, msgspec.structs.replace(run, settings=settings))
    return folder


def test_each_kind_of_line_has_its_columns(tmp_path: Path) -> None:
    found = list(lines(written(tmp_path)))
    stamps = [line.pop(1) for line in found]
    assert stamps == sorted(stamps[:-1]) + stamps[-1:]
    assert stamps[0] == "2023-11-14_22:13:21"
    assert sorted(found) == sorted([
        ["EXCH", "1", "7", "7", "70", "70", "2", "x1"],
        ["EXCH", "1", "10", "3", "100", "30", "2", "x1"],
        ["LIST", "0", "5", "5", "cd" * 16, "1.25"],
        ["LIST", "1", "9", "4", "cd" * 16, "1.25"],
        ["PROD", "STAT", "publisher-0", "7", "7"],
        ["PROD", "STAT", "publisher-0", "3", "10"],
        ["SUB", "STAT", "subscriber-0", "6"],
        ["PROD", "FINISH", "publisher-0", "10"],
    ])  # fmt: skip
    assert found[-1][1] == "FINISH"


def test_numbers_that_an_earlier_release_kept_in_32_bits_are_read(tmp_path: Path) -> None:
    new, old = written(tmp_path / "new"), written(tmp_path / "old")
    for file in old.glob(f"**/{TABLE}={KPI}/*.parquet"):
        rows = pq.read_table(file, partitioning=None)
        types = {"exchange": pa.int32(), "sources": pa.list_(pa.int32())}
        narrow = [pa.field(each.name, types.get(each.name, each.type)) for each in rows.schema]
        pq.write_table(rows.cast(pa.schema(narrow)), file)
        whole = pq.read_table(file, schema=SCHEMAS[KPI], partitioning=None)
        assert whole.to_pylist() == rows.select(SCHEMAS[KPI].names).to_pylist()
    assert list(lines(old)) == list(lines(new))


def test_the_program_prints_them_and_names_what_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert "EXCH,2023-11-14_22:13:21,1,7,7,70,70,2,x1\n" in capsys.readouterr().out
    (path,) = tmp_path.glob(f"run=*/*/table={KPI}/*.parquet")
    path.write_bytes(b"")
    assert main([str(tmp_path)]) == 1
    assert path.name in capsys.readouterr().err
    assert main([str(tmp_path), "--leave-out"]) == 0
    assert main([str(tmp_path / "nothing")]) == 1
    with pytest.raises(TracesError, match="damaged"):
        list(lines(tmp_path))


def test_a_run_without_traces_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, run_of("a-run"))
    with pytest.raises(TracesError, match="has no traces"):
        list(lines(tmp_path))
