"""The traces of a live run: tap and collector from the first document to the figures."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import roq
from roq.client.publish.publisher import Publisher
from roq.simulation.lab.archive.document import Run, Series
from roq.simulation.lab.live.clocks import Clock, monotonic_us
from roq.simulation.lab.live.setting import Queues
from roq.simulation.lab.traces.collect import MERGED, Collector, merge
from roq.simulation.lab.traces.place import Part, Place
from roq.simulation.lab.traces.summary import remarks, summarise
from roq.simulation.lab.traces.tap import Tap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRAIN_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0
ATTEMPTS: Final = 3
COUNTED: Final = ("sent", "received")
log = logging.getLogger(__name__)


class Tracing:
    """Keeps the traces of one run.

    Args:
        cluster: where the queues live.
        queues: of the run.
        place: for the table.
        run: id of the run.
        clock: of the driver.

    Attributes:
        publisher: for traces of the driver.
    """

    def __init__(
        self, cluster: roq.Cluster, queues: Queues, place: Place, run: str, clock: Clock
    ) -> None:
        self.publisher: Publisher = cluster.publisher(queues.traces, block=False)
        self._cluster = cluster
        self._traces = queues.traces
        self._place = place
        self._run = run
        self._collector: Collector | None = None
        self._lacking = ""
        self._hurried = False
        ahead_us = clock.now_us() - monotonic_us()
        self._tap = Tap(
            cluster, queues.load, self.publisher, run,
            wall=lambda monotonic: round(monotonic * 1_000_000) + ahead_us,
        )  # fmt: skip
        self._tapping = False

    def start(self, spark: SparkSession) -> None:
        """Begin.

        Raises:
            RoQError: it cannot.
        """
        self._collect(spark)
        self._tap.__enter__()
        self._tapping = True

    def summarise(self, spark: SparkSession, run: Run) -> tuple[dict[str, float], Series | None]:
        """What all traces say, when the load is over; nothing if they are not whole."""
        self._end_tap()
        try:
            self._lacking = self._drained(spark)
            self._end_collector()
            if self._lacking:
                return {}, None
            if len(parts := self._place.parts) > MERGED:
                merge(spark, self._place, Part(0, parts[-1].last))
            return summarise(spark, self._place, run)
        except Exception as error:
            log.warning("the traces cannot be summarised", exc_info=True)
            self._lacking = str(error) or repr(error)
            return {}, None

    def hurry(self) -> None:
        """Figures are not waited for any more; any thread. What is kept by now stays."""
        self._hurried = True

    def remarks(self, traced: dict[str, float], counted: dict[str, float]) -> list[str]:
        """What a reader has to know, in sentences.

        Args:
            traced: figures of the traces.
            counted: of the tallies.
        """
        found = remarks(traced)
        if self._lacking:
            found.append(
                "The traces are not whole, so figures and series are those that the driver has "
                f"seen: {self._lacking.rstrip('.')}."
            )
        for name in COUNTED:
            there, wanted = traced.get(name), counted.get(name)
            if there is not None and wanted is not None and there != wanted:
                found.append(
                    f"The traces know of {there:.0f} messages {name}, the tasks have counted "
                    f"{wanted:.0f}."
                )
        return found

    def close(self) -> None:
        """End everything; idempotent."""
        self._end_tap()
        self._end_collector()
        self.publisher.abort("the run is over")

    def _collect(self, spark: SparkSession) -> None:
        """Begin to collect, or go on where it was ended."""
        self._collector = Collector(
            spark, ",".join(self._cluster.addresses), self._traces, self._place, self._run
        )
        self._collector.start()

    def _drained(self, spark: SparkSession) -> str:
        """Wait until all traces are kept; gives why they are not, empty if they are."""
        why = "no collector was started"
        for _ in range(ATTEMPTS):
            if self._collector is None:
                break
            deadline = time.monotonic() + DRAIN_SECONDS
            while not self._hurried and not self._collector.failure:
                if self._collector.drain(LOOK_SECONDS):
                    return ""
                if time.monotonic() > deadline:
                    break
            if self._hurried:
                return "the run was ended before they were all kept"
            why = self._collector.failure
            if not why:
                return f"they were not all kept within {DRAIN_SECONDS:g} s"
            # A busy machine may have been too slow for Spark; the queue still holds the rest.
            self._end_collector()
            self._collect(spark)
        return why

    def _end_tap(self) -> None:
        if self._tapping:
            self._tapping = False
            self._tap.__exit__(None, None, None)

    def _end_collector(self) -> None:
        if self._collector is not None:
            self._collector.stop()
