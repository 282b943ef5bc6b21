"""The source that Spark calls: plans in the driver, reads in the tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from roq.client.consume.takeover import LogPosition
from roq.errors import ConfigError, StaleEpoch, Unavailable
from roq.log.group_changes import GroupDelta
from roq.model import LogId
from roq.read.log_reader import LogReader
from roq.spark.filters import Bounds, bounded, narrowed
from roq.spark.offsets import (
    Departed,
    Offsets,
    Part,
    advance,
    came_and_went,
    check_ends,
    parts,
    read_offsets,
    settled,
    within,
)
from roq.spark.options import Options, Place, read_options, write_options
from roq.spark.query_session import QuerySession
from roq.spark.queue_logs import QueueLogs, lose, offsets_at, positions
from roq.spark.rows import SPARK_SCHEMA, record_batches
from roq.spark.shipping import Shipped
from roq.spark.sink import BatchWriter, StreamWriter, check

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2 knows it by itself, and reads all in one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for Spark's."""


class RoqDataSource(Shipped, DataSource):
    """The format `roq`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = options

    @classmethod
    def name(cls) -> str:
        """The word behind `format`."""
        return "roq"

    def schema(self) -> str:
        """The columns; see docs/spark.md."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        _check_schema(schema)
        return BatchReader(read_options(self._given, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """For `spark.readStream`."""
        _check_schema(schema)
        return StreamReader(read_options(self._given, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        if overwrite:
            raise ConfigError("a queue cannot be overwritten: use mode append")
        options = write_options(self._given, streaming=False)
        writer = BatchWriter(options, schema)
        check(options)
        return writer

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        if overwrite:
            raise ConfigError("a queue cannot be overwritten: use output mode append")
        options = write_options(self._given, streaming=True)
        writer = StreamWriter(options, schema)
        check(options)
        return writer


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """What one task reads."""

    part: Part
    address: str
    queue_id: str
    position: LogPosition | None = None
    """How far the group is whose work the query does."""


class PickTopics:
    """What Spark calls to push filters down, if it does.

    By default it does not (`spark.sql.python.filterPushdown.enabled`), and refuses every reader
    that is more than prepared for it: it looks whether the function is that of its own base class.
    It then applies the filters itself, which is as right; so this says that it is that function.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, pick: Callable[[list[Filter]], list[Filter]]) -> None:
        self._pick = pick

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Give back the filters that Spark still has to apply."""
        return self._pick(filters)


class BatchReader(Shipped, DataSourceReader):
    """Reads what stands in the logs when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._prefixes = options.prefixes
        self._bounds = Bounds()

    @property
    def pushFilters(self) -> PickTopics:  # noqa: N802 - Spark's
        """Let filters make less to be read; called where Spark's configuration permits it."""
        return PickTopics(self._pick)

    def _pick(self, filters: list[Filter]) -> list[Filter]:
        if self._options.group:
            return filters
        self._prefixes, left = narrowed(self._prefixes, filters)
        self._bounds = bounded(left)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Divide what is to be read among tasks.

        Raises:
            RoQError: the cluster or the queue cannot be used; the text says why.
        """
        if not self._prefixes:
            return []
        with QueueLogs(self._options) as logs:
            spans = logs.spans()
            options = self._options
            end = offsets_at(options.end, "endingOffsets", logs, spans, options)
            if options.group:
                position = positions(options.position or logs.take())
                known = {key: at for key, at in end.next.items() if key in position}
                start = replace(end, next={key: position[key].base for key in known})
                end = replace(end, next=known)
                return _partitions(start, end, logs, options, position)
            start = offsets_at(options.start, "startingOffsets", logs, spans, options)
            bounds = self._bounds
            since = logs.seek(bounds.since_us) if bounds.since_us is not None else {}
            before = logs.seek(bounds.before_us) if bounds.before_us is not None else {}
            first, until = bounds.within(start.next, end.next, since, before)
            start, end = replace(start, next=first), replace(end, next=until)
            return _partitions(start, end, logs, self._options, {})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return _read(partition, self._options, self._prefixes)


class StreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs as they grow."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logs: QueueLogs | None = None
        self._told: set[LogId] = set()
        self._seen: dict[LogId, int] = {}
        """The last known end of each log."""
        self._planned: Offsets | None = None
        """What was answered last: Spark before 4.2 does not say where it stands."""
        self._target: dict[LogId, int] | None = None
        """Where a query ends that reads what there is now; None: it goes on."""
        self._attendance: QuerySession | None = None
        self._group: dict[LogId, LogPosition] = {}
        """Whose work the query does; where it was is not remembered over restarts."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's
        """Where a query begins that has no checkpoint."""
        logs = self._open()
        start = self._options.start
        if self._options.group:
            self._group = positions(logs.take())
            start = Place(offsets={key: each.base for key, each in self._group.items()})
        self._planned = offsets_at(start, "startingOffsets", logs, logs.spans(), self._options)
        self._attend(self._planned)
        return self._planned.document()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's
        """How much one micro-batch may read; asked for since Spark 4.2."""
        from pyspark.sql.streaming.datasource import (  # noqa: PLC0415 - not there before 4.2
            ReadAllAvailable,
            ReadMaxRows,
        )

        most = self._options.max_batches
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """What comes from now on is not for this query (`trigger(availableNow=True)`)."""
        self._target = {key: span.end for key, span in self._open().spans().items()}

    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, object]:
        """How far the next micro-batch reads.

        Raises:
            DataLoss: a log is gone, and was not read to its end, or nobody knows its end.
            RoQError: the cluster or the queue cannot be used.
        """
        logs = self._open()
        spans = logs.spans()
        known = self._planned or Offsets(logs.queue_id)
        if start is not None:
            known = read_offsets(start, logs.queue_id)
            check_ends(known.next, spans, "the checkpoint")
        if self._planned is not None or start is not None:
            self._attend(known)  # Spark asks when all that was planned before has been read
        readable = within(spans, self._target)
        highest = settled(
            known, readable, logs.numbers(), logs.departed() if self._target is None else ()
        )
        most = getattr(limit, "max_rows", 0)
        waiting = logs.waiting(readable, known.next, most)
        step = advance(known, waiting, most, silent=logs.listed(), highest=highest)
        self._told.difference_update(spans)
        self._seen.update({key: span.end for key, span in spans.items()})
        if self._planned is not None or start is not None:
            self._judge(known, step.end)
        self._planned = step.end
        return step.end.document()

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's
        """How far there is something to read."""
        logs = self._open()
        ends = {key: span.end for key, span in logs.spans().items()}
        return Offsets(logs.queue_id, ends).document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide what lies between two offsets among tasks."""
        logs = self._open()
        begun, until = read_offsets(start, logs.queue_id), read_offsets(end, logs.queue_id)
        self._judge(begun, until)  # Spark before 4.2 says only here where it stands
        return _partitions(begun, until, logs, self._options, self._work(until))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return _read(partition, self._options, self._options.prefixes)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything below is done: the group goes on from there.

        Raises:
            InvalidRequest: it has got members, or was made anew or sought.
            GroupNotFound: it was deleted.
        """
        if not self._options.group:
            return
        logs = self._open()
        done = read_offsets(end, logs.queue_id)
        try:
            if done.next:
                logs.move(self._work(done), done.next)
        except Unavailable as error:  # the next micro-batch moves it as far, and farther
            log.warning("%s", error, extra={"event": "group_not_moved"})

    def stop(self) -> None:
        """The query has ended."""
        if self._attendance is not None:
            self._attendance.close()
            self._attendance = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def __getstate__(self) -> dict[str, object]:
        # Tasks get a copy, and open what they need themselves.
        return {**self.__dict__, "_logs": None, "_attendance": None, "_group": {}}

    def _open(self) -> QueueLogs:
        if self._logs is None:
            self._logs = QueueLogs(self._options)
        return self._logs

    def _work(self, end: Offsets) -> dict[LogId, LogPosition]:
        """What of each log is the group's: all, as a micro-batch that is read again is the same.

        Raises:
            InvalidRequest: it has members.
        """
        name = self._options.group
        if not name:
            return {}
        if not self._group:
            self._group = positions(self._open().take())
        settings = next(iter(self._group.values())).settings
        new = LogPosition(settings, GroupDelta(name, 0))
        known = {key: self._group.get(key, new) for key in end.next}
        return {
            key: LogPosition(
                settings,
                GroupDelta(name, 0, created_us=each.created_us, sought_us=each.sought_us),
            )
            for key, each in known.items()
        }

    def _attend(self, read: Offsets) -> None:
        if self._attendance is None:
            self._attendance = QuerySession(self._options)
        self._attendance.read(read.next)

    def _judge(self, start: Offsets, end: Offsets) -> None:
        """See that nothing went unread between two looks."""
        assert self._logs is not None  # noqa: S101 - narrows the type
        departed, numbers = self._logs.departed(), self._logs.numbers()
        for key, offset in sorted(start.next.items()):
            if key not in start.away and (key not in end.next or key in end.away):
                self._gone(key, offset, departed.get(key.number))
        for number, count in came_and_went(start, end, numbers, departed).items():
            self._missed(LogId(number, 0), count)

    def _gone(self, key: LogId, offset: int, departed: Departed | None) -> None:
        if key in self._told:
            return
        gone = f"the log of exchange x{key.number} (generation {key.generation}) is gone"
        if departed is None or departed.generation != key.generation or departed.end < 0:
            lose(
                self._options,
                key,
                f"{gone}: it was read up to offset {offset}, and it is not known whether more came",
            )
        else:
            end = max(departed.end, self._seen.get(key, 0))
            if end > offset:
                lose(self._options, key, f"{gone}: offsets {offset} to {end - 1} were not read")
        self._told.add(key)

    def _missed(self, key: LogId, count: int) -> None:
        if key in self._told:
            return
        batches = f"{count} batches" if count > 0 else "an unknown number of batches"
        lose(
            self._options,
            key,
            f"exchange x{key.number} came and went while this query did not look, with {batches} "
            "that were not read",
        )
        self._told.add(key)


def _check_schema(schema: StructType) -> None:
    told = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema.fields)
    if told.upper() != SPARK_SCHEMA.upper():
        raise ConfigError(
            f"the format roq has its own columns ({SPARK_SCHEMA}): load without a schema, and "
            "select or cast afterwards"
        )


def _partitions(
    start: Offsets,
    end: Offsets,
    logs: QueueLogs,
    options: Options,
    work: Mapping[LogId, LogPosition],
) -> list[InputPartition]:
    found: list[InputPartition] = []
    for part in parts(start, end, options.partitions):
        address = logs.address(part.log)
        if not address:
            logs.look_again()
            logs.spans()
            address = logs.address(part.log)
        if address:
            found.append(LogPartition(part, address, logs.queue_id, work.get(part.log)))
        else:
            lose(options, part.log, _unread(part))
    return found


def _read(
    partition: InputPartition, options: Options, prefixes: tuple[bytes, ...]
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, LogPartition):
        return  # Spark makes one task of a plan without any
    part, work = partition.part, partition.position
    if work is not None:
        prefixes = work.settings.prefixes
    with LogReader(
        partition.address, bytes.fromhex(partition.queue_id), number=part.log.number,
        generation=part.log.generation, timeout=options.timeout,
    ) as reader:  # fmt: skip
        try:
            yield from record_batches(
                reader.read(part.first, part.until, prefixes), part.log,
                damaged=lambda offset, text: lose(options, part.log, text, below=offset + 1),
                done=work.done if work is not None else None,
                tags=frozenset(work.settings.tags) if work is not None else frozenset(),
            )  # fmt: skip
        except StaleEpoch:
            lose(options, part.log, _unread(part))
        except Unavailable:
            if _is_there(part.log, options):
                raise
            lose(options, part.log, _unread(part))
        if reader.evicted:
            lose(
                options,
                part.log,
                f"{reader.evicted} batches of exchange x{part.log.number} had left its memory "
                f"before they were read (offsets from {part.first}): read faster, or give the "
                "queue a larger ring (limit ring_bytes)",
                below=part.until,
            )


def _is_there(key: LogId, options: Options) -> bool:
    with QueueLogs(options) as logs:
        return bool(logs.address(key))


def _unread(part: Part) -> str:
    return (
        f"the log of exchange x{part.log.number} (generation {part.log.generation}) is gone: "
        f"offsets {part.first} to {part.until - 1} were not read, or not all of them"
    )
