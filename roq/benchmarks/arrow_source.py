"""A source for Spark whose rows are Arrow batches in memory: as little work as one can have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from roq.spark.rows import SPARK_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ArrowSource(DataSource):
    """Rows in a file of Arrow batches; option `file`, and `partitions`."""

    @classmethod
    def name(cls) -> str:
        """The word behind `format`."""
        return "arrow_in_memory"

    def schema(self) -> str:
        """Those of the format `roq`."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """For `spark.read`."""
        return ArrowReader(self.options["file"], int(self.options["partitions"]))


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads: every so-many-th batch, from this one on."""

    first: int
    step: int


class ArrowReader(DataSourceReader):
    """Hands on batches that are in memory."""

    def __init__(self, path: str, partitions: int) -> None:
        self._path = path
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        """So many tasks."""
        return [Share(first, self._partitions) for first in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task, mapped and not copied."""
        assert isinstance(partition, Share)  # noqa: S101 - ours
        with pa.memory_map(self._path) as source:
            batches = ipc.open_file(source)
            for index in range(partition.first, batches.num_record_batches, partition.step):
                yield batches.get_batch(index)
