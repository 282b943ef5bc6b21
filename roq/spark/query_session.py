"""How far a streaming query is: for the queue's monitor, and in Spark's own progress of it.

The monitor knows it as a subscriber with how far it has read. So no exchange is stopped in order
before a query has read its log, for as long as is waited for a slow subscriber. It takes no part in
how messages travel.

Spark lets no source in Python tell figures of a micro-batch; rows that are observed on their way
tell them, in `lastProgress`, to listeners, and so to whatever watches queries.

    query = measured(df).writeStream…start()
    query.lastProgress.observedMetrics["roq"]     # rows, bytes, lag_ms, oldest_ms
    backlog(query.lastProgress)                   # {"1:65537": 120}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from roq.client.io.engine import Engine
from roq.client.session.shell import MonitorSession
from roq.model import LogId
from roq.protocol.control import Topology
from roq.runtime.addresses import parse_addresses
from roq.spark.offsets import read_offsets
from roq.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

NAME: Final = "roq"


class QuerySession:
    """Tells the monitor how far a query has read, until it is closed.

    Args:
        options: which cluster and queue.
    """

    def __init__(self, options: Options) -> None:
        self._read: dict[LogId, int] = {}
        self._exchanges: tuple[LogId, ...] = ()
        self._engine = Engine()
        self._session = MonitorSession(
            self._engine,
            parse_addresses(list(options.cluster)),
            options.queue,
            client_id=os.urandom(16),
            role="subscriber",
            on_topology=self._topology,
            alive=self._alive,
        )
        self._engine.start()
        self._session.start()

    def read(self, offsets: Mapping[LogId, int]) -> None:
        """Everything below these offsets was read."""
        read = dict(offsets)

        def tell() -> None:
            if read != self._read:
                self._read = read
                self._session.tell_alive()

        self._engine.call_soon(tell)

    def close(self) -> None:
        """The monitor need not wait for this query any more."""
        self._session.close()
        self._engine.close()

    # --- in the engine's thread -------------------------------------------------------------------

    def _topology(self, topology: Topology) -> None:
        self._exchanges = tuple(exchange.log for exchange in topology.exchanges)

    def _alive(self) -> Mapping[str, object]:
        return {"read": [(*key, self._read.get(key, 0)) for key in self._exchanges]}


def measured(df: DataFrame, name: str = NAME) -> DataFrame:
    """The same rows, counted on their way; in front of whatever leaves rows out.

    Args:
        df: as the format `roq` loads it, of a streaming or a batch query.
        name: under which the figures stand among `observedMetrics`; each only once in a query.

    Returns:
        the rows. Figures of each micro-batch: `rows`; `bytes` of their payloads; `lag_ms` and
        `oldest_ms`: how old the newest and the oldest row was when the micro-batch began, from
        when its exchange took it (None without rows; clocks of exchanges and driver count).
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - starts nothing, but takes a while

    age = (f.unix_micros(f.current_timestamp()) - f.unix_micros("appended")) / 1_000
    return df.observe(
        name,
        f.count(f.lit(1)).alias("rows"),
        f.coalesce(f.sum(f.octet_length("payload")), f.lit(0)).alias("bytes"),
        f.min(age).alias("lag_ms"),
        f.max(age).alias("oldest_ms"),
    )


def backlog(progress: StreamingQueryProgress) -> dict[str, int]:
    """Offsets that stand in each log and are not read yet, when a micro-batch had ended.

    A log on a disk may have left out some of them, see docs/architecture.md.

    Args:
        progress: of a query; its sources of other formats are passed over.

    Returns:
        by log, `<exchange>:<generation>`; of Spark before 4.2, which does not ask for it, nothing.
    """
    found: dict[str, int] = {}
    for source in progress.sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        if end is not None and latest is not None and end["queue"] == latest["queue"]:
            queue = str(end["queue"])
            read = read_offsets(end, queue).next
            for log, until in read_offsets(latest, queue).next.items():
                found[str(log)] = max(0, until - read.get(log, 0))
    return found


def _offsets(text: str | None) -> Mapping[str, Any] | None:
    """The document of offsets that this is; None if it is something else."""
    try:
        document = json.loads(text or "")
    except ValueError:
        return None
    ours = isinstance(document, dict) and {"logs", "queue", "format"} <= document.keys()
    return document if ours else None
