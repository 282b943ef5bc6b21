"""The logs of a queue as they are now: which there are, and what each of them holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Final, Self

from roq.client.admin.views import ExchangeSummary, QueueDescription
from roq.client.cluster import Cluster
from roq.errors import RoQError, StaleEpoch, Unavailable
from roq.model import LogId
from roq.read.log_reader import LogReader
from roq.runtime import sockets
from roq.spark.offsets import Departed, Span
from roq.spark.options import Options

CACHE_SECONDS: Final = 0.1
"""Spark asks dozens of times a second how far there is something to read."""
TOPOLOGY_SECONDS: Final = 1.0
"""Exchanges come and go more slowly."""


class QueueLogs:
    """The logs of one queue; for the process that plans a query.

    Args:
        options: which cluster and queue, and how patient to be.

    Raises:
        Unavailable: the cluster does not answer.
        QueueNotFound, QueueStopped: it has no such queue, or that does not run.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster = Cluster(list(options.cluster), timeout=options.timeout)
        self._context = sockets.new_context()
        self._readers: dict[LogId, LogReader] = {}
        self._spans: dict[LogId, Span] = {}
        self._spans_at = self._topology_at = float("-inf")
        try:
            self._queue = self._describe()
        except RoQError:
            self.close()
            raise

    @property
    def queue_id(self) -> str:
        """Hexadecimal; another life of a queue has another one."""
        return self._queue.queue_id

    def spans(self) -> Mapping[LogId, Span]:
        """What can be read of each log; at most a fraction of a second old.

        Raises:
            Unavailable: an exchange that the cluster counts as running does not answer.
        """
        now = time.monotonic()
        if now - self._spans_at > CACHE_SECONDS:
            if now - self._topology_at > TOPOLOGY_SECONDS:
                self._queue = self._describe()
                self._topology_at = now
            self._spans = self._ask_all()
            self._spans_at = now
        return self._spans

    def seek(self, time_us: int) -> dict[LogId, int]:
        """The offset of the first batch appended at or after a time, for each log."""
        return {key: self._readers[key].seek(time_us) for key in self.spans()}

    def waiting(
        self, spans: Mapping[LogId, Span], read: Mapping[LogId, int], most: int
    ) -> dict[LogId, Span]:
        """What can be read, without offsets that belong to no batch and come next.

        A log on a disk leaves out a million of them where its process began anew: a query with a
        limit would read nothing for hundreds of micro-batches. So nobody is asked where one
        micro-batch reads all.

        Args:
            spans: what can be read.
            read: up to which offset each log is read.
            most: offsets that a micro-batch reads at most; 0: no limit.
        """
        found = dict(spans)
        for key, span in spans.items():
            first = max(read.get(key, 0), span.floor)
            if most and span.end - first > most:
                with contextlib.suppress(StaleEpoch):  # the next look at the logs tells that
                    found[key] = Span(self._readers[key].following(first, span.end), span.end)
        return found

    def address(self, log: LogId) -> str:
        """Data address of the exchange that has this log; empty if none has it any more."""
        exchange = self._present().get(log)
        return exchange.data if exchange is not None else ""

    def listed(self) -> frozenset[LogId]:
        """The logs that the cluster has not given up, whether they can be read now or not."""
        return frozenset(self._present())

    def numbers(self) -> frozenset[int]:
        """Of all exchanges that the queue has, also of those that do not serve (yet)."""
        return frozenset(each.number for each in self._queue.exchanges)

    def departed(self) -> Mapping[int, Departed]:
        """By number, the exchanges that went last, and where their logs ended."""
        return {each.number: Departed(each.epoch, each.end) for each in self._queue.departed}

    def look_again(self) -> None:
        """Forget what is remembered, so that the next question is asked for real."""
        self._spans_at = self._topology_at = float("-inf")

    def close(self) -> None:
        """Give the connections back; idempotent."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._context.term()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self) -> QueueDescription:
        return self._cluster.describe(self._options.queue)

    def _present(self) -> dict[LogId, ExchangeSummary]:
        return {
            exchange.log: exchange
            for exchange in self._queue.exchanges
            if exchange.data and exchange.epoch
        }

    def _ask_all(self) -> dict[LogId, Span]:
        present = self._present()
        for key in [key for key in self._readers if key not in present]:
            self._readers.pop(key).close()
        spans: dict[LogId, Span] = {}
        for key, exchange in present.items():
            try:
                ends = self._reader(key, exchange).ends()
            except StaleEpoch:
                self._topology_at = float("-inf")  # the cluster has not noticed yet
            except Unavailable:
                if exchange.state == "running" and self._still_there(key):
                    raise
            else:
                spans[key] = Span(ends.floor, ends.end)
        return spans

    def _still_there(self, key: LogId) -> bool:
        self._queue = self._describe()
        exchange = self._present().get(key)
        return exchange is not None and exchange.state == "running"

    def _reader(self, key: LogId, exchange: ExchangeSummary) -> LogReader:
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = LogReader(
                exchange.data, bytes.fromhex(self.queue_id), number=key.number,
                generation=key.generation, timeout=self._options.timeout, context=self._context,
            )  # fmt: skip
        return reader
