"""Traces that nobody published, for tests of what is made of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roq.demo.latency import Histogram
from roq.protocol.kpi import ExchangeKpi, MoveKpi, NumericDocument, QueueKpi, ScaleKpi
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.traces.messages import AnyTrace, ClientTrace, EventTrace, KpiTrace, encode
from roq.simulation.lab.traces.place import Part, Place
from roq.simulation.lab.traces.rows import Message, record_batches
from roq.simulation.lab.traces.tables import COLUMNS, TABLE, WIDE

BEGAN_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
RUN = "a-run"
LIMIT = 1_000.0
"""Bytes a second of one exchange."""


class Story:
    """Collects the traces of one run, with times in seconds since the load began.

    Args:
        run: its id.
    """

    def __init__(self, run: str = RUN) -> None:
        self.run = run
        self.messages: list[Message] = []
        self._numbers: dict[str, int] = {}

    def publish(self, trace: AnyTrace, *, source: str = "", late: float = 0.0) -> None:
        """One message; it came into the queue `late` seconds after its time."""
        sequence = len(self.messages)
        self.messages.append(
            Message(
                payload=encode(trace),
                topic=str(trace.__struct_config__.tag),
                sender=(source or trace.source).encode().ljust(16, b".")[:16],
                sequence=sequence,
                appended_us=trace.time_us + round(late * SECOND_US),
            )
        )

    def number(self, source: str) -> int:
        """The next number of a source."""
        self._numbers[source] = self._numbers.get(source, -1) + 1
        return self._numbers[source]

    def document(self, at: float, document: NumericDocument) -> None:
        """A document of the statistics stream."""
        self.publish(
            KpiTrace(
                run=self.run, time_us=us(at), source="tap", number=self.number("tap"),
                document=msgspec.to_builtins(document),
            )
        )  # fmt: skip

    def client(
        self,
        name: str,
        at: float,
        latencies: Iterable[float] = (),
        *,
        behind: float = 0.0,
        **told: int,
    ) -> None:
        """What a client did in the second from `at` on; its name begins with its role."""
        histogram, total = Histogram(), 0.0
        for seconds in latencies:
            histogram.add(seconds)
            total += seconds
        self.publish(
            ClientTrace(
                run=self.run, time_us=us(at + 1), source=name, number=self.number(name),
                client=name, role=name.partition("-")[0],
                begin_us=us(at), seconds=1.0, latency=histogram.counts(), latency_sum=total,
                **told,
            ),
            late=behind,
        )  # fmt: skip

    def event(self, at: float, kind: EventKind, text: str = "") -> None:
        """Something that the driver did."""
        self.publish(
            EventTrace(
                run=self.run, time_us=us(at), source="driver", number=self.number("driver"),
                event=kind, text=text,
            )
        )  # fmt: skip

    def write(self, folder: Path, batch: int = 0, now: float = 0.0) -> Place:
        """Put all of it into the table of the run, as one part; no Spark is needed."""
        place = Place(str(folder), self.run)
        part = Path(place.uri.removeprefix("file://")) / Part(batch, batch).name
        rows = pa.Table.from_batches(record_batches(self.messages, self.run, us(now)), WIDE)
        for table in COLUMNS:
            some = rows.filter(pc.field(TABLE) == table).drop_columns(TABLE)
            if some.num_rows:
                (part / f"{TABLE}={table}").mkdir(parents=True)
                path = part / f"{TABLE}={table}" / f"part-{uuid.uuid4().hex}.parquet"
                pq.write_table(some, path, write_page_checksum=True)
        part.mkdir(parents=True, exist_ok=True)
        (part / "_SUCCESS").touch()
        return place


def us(at: float) -> int:
    """A moment of the load on the clock of the driver."""
    return BEGAN_US + round(at * SECOND_US)


def exchange(number: int, bytes_in: int, *, epoch: int = 1, uptime: float = 100.0,
             leaving: bool = False) -> ExchangeKpi:  # fmt: skip
    """A document about an exchange: messages of 10 bytes, two subscribers, half a core."""
    return ExchangeKpi(
        queue="orders", queue_id=b"q" * 16, exchange=f"x{number}", number=number, epoch=epoch,
        host="10.0.0.1", uptime_seconds=uptime, messages_in_per_second=0.0,
        bytes_in_per_second=0.0, messages_out_per_second=0.0, bytes_out_per_second=0.0,
        messages_in=bytes_in // 10, bytes_in=bytes_in, messages_out=bytes_in // 5,
        bytes_out=2 * bytes_in, publishers=2, subscribers=2, cpu_percent=50.0, memory_bytes=1,
        ring_bytes=1, end_offset=1, floor_offset=0, malformed=0, duplicates=0, resets=0, fetches=0,
        leaving=leaving,
    )  # fmt: skip


def queue(exchanges: int, limit: float = LIMIT) -> QueueKpi:
    """A document about the queue."""
    return QueueKpi(
        queue="orders", queue_id=b"q" * 16, monitor_epoch=1, version=1, exchanges=exchanges,
        publishers=4, subscribers=2, waiting=0, limit_bytes_per_second=limit,
        messages_in_per_second=0.0, bytes_in_per_second=0.0, messages_out_per_second=0.0,
        bytes_out_per_second=0.0,
    )  # fmt: skip


def move(state: str, source: int = 1, target: int = 2) -> MoveKpi:
    """A document about a move."""
    return MoveKpi(
        queue="orders", queue_id=b"q" * 16, publisher="ab" * 16, sources=[source],
        targets=[target], epoch=7, state=state, reason="too much", pause_ms=4.0,
    )  # fmt: skip


def scale(direction: str, state: str, number: int = 2) -> ScaleKpi:
    """A document about an exchange that comes or goes."""
    return ScaleKpi(
        queue="orders", queue_id=b"q" * 16, direction=direction, state=state, reason="too much",
        number=number, seconds=0.5,
    )  # fmt: skip
