"""Rows in memory are shared out to tasks: each batch to one of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc
from pyspark.sql.datasource import InputPartition

from roq.benchmarks.arrow_source import ArrowReader, ArrowSource
from roq.spark.rows import SPARK_SCHEMA

BATCHES = 5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.arrow"
    schema = pa.schema([("number", pa.int64())])
    with ipc.new_file(path, schema) as out:
        for number in range(BATCHES):
            out.write_batch(pa.record_batch([pa.array([number, number])], schema))
    return path


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_every_batch_is_read_by_one_task(file: Path, tasks: int) -> None:
    source = ArrowSource({"file": str(file), "partitions": str(tasks)})
    reader = source.reader(source.schema())  # type: ignore[arg-type]
    shares = reader.partitions()
    assert len(shares) == tasks
    read = [
        [batch["number"][0].as_py() for batch in reader.read(share)]  # type: ignore[call-overload]
        for share in shares
    ]
    assert sorted(number for each in read for number in each) == list(range(BATCHES))
    assert max(map(len, read)) - min(map(len, read)) <= 1


def test_it_has_the_rows_of_the_format_under_a_name_of_its_own() -> None:
    assert ArrowSource.name() == "arrow_in_memory"
    assert ArrowSource({}).schema() == SPARK_SCHEMA


def test_a_share_of_somebody_else_is_refused(file: Path) -> None:
    with pytest.raises(AssertionError):
        next(ArrowReader(str(file), 1).read(InputPartition(0)))
