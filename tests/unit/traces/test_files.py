"""Files of traces: a micro-batch counts once, and damage is named."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traces import RUN, Story, queue, us

from roq.simulation.lab.traces.files import TracesError, broken, files, put, remove, sound
from roq.simulation.lab.traces.rows import files_of
from roq.simulation.lab.traces.tables import KPI, LATENCY


def story(*times: float) -> Story:
    found = Story()
    for at in times:
        found.document(at, queue(1))
    return found


def rows(folder: Path) -> int:
    return sum(pq.read_table(path).num_rows for path in files(folder, KPI))


def test_files_stand_by_run_and_minute_in_order_of_time(tmp_path: Path) -> None:
    story(1.0, 3_601.0, 61.0).write(tmp_path, batch=7)
    found = files(tmp_path, KPI)
    minutes = [int(path.parent.name.removeprefix("minute=")) for path in found]
    assert minutes == sorted(minutes)
    assert {path.parent.parent.name for path in found} == {f"run={RUN}"}
    assert {path.name[:15] for path in found} == {"batch-00000007-"}


def test_a_micro_batch_that_is_done_again_replaces_what_was_left_of_it(tmp_path: Path) -> None:
    story(1.0, 2.0).write(tmp_path, batch=1)
    again = story(1.0, 61.0, 121.0)
    parts = list(files_of(again.messages, RUN, us(0)))
    put(tmp_path, RUN, 2, parts[:2])  # and then it was ended
    (files(tmp_path, KPI)[0].parent / ".batch-00000002-2.parquet.partial").write_bytes(b"PAR1")
    assert remove(tmp_path, 2) == 3
    put(tmp_path, RUN, 2, parts)
    assert rows(tmp_path) == 2 + 3
    assert not list(tmp_path.rglob("*.partial"))


def test_damage_is_named_or_left_out(tmp_path: Path) -> None:
    for batch in range(6):
        story(1.0).write(tmp_path, batch=batch)
    half, empty, page, foreign, junk, good = files(tmp_path, KPI)
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    empty.write_bytes(b"")
    data = bytearray(page.read_bytes())
    data[30] ^= 0xFF
    page.write_bytes(data)
    pq.write_table(pa.table({"a": [1]}), foreign)
    junk.write_bytes(b"not Parquet at all" * 100)
    found, bad = sound(tmp_path, KPI, leave_out=True)
    assert found == [good]
    named = [text.partition(": ")[0] for text in bad]
    assert named == [str(path) for path in (half, empty, page, foreign, junk)]
    assert "it has no column time_us" in bad[3]
    with pytest.raises(TracesError, match=r"batch-00000000-.*\(and 2 more\).*left out"):
        sound(tmp_path, KPI)


def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    story(1.0).write(tmp_path)
    (path,) = files(tmp_path, KPI)
    path.unlink()
    os.mkfifo(path)
    assert broken(path, KPI) == "it is no file"


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    found = Story()
    found.client("publisher-1", 0.0, [0.001])
    found.write(tmp_path)
    (real,) = files(tmp_path, LATENCY)
    table = pq.read_table(real)
    index = table.schema.get_field_index("messages")
    pq.write_table(table.set_column(index, "messages", pa.array(["many"])), path)
    assert "column messages is not of type int64" in broken(path, LATENCY)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / KPI).write_text("in the way")
    with pytest.raises(TracesError, match=KPI):
        story(1.0).write(tmp_path)
