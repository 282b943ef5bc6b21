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
from roq.simulation.lab.session import said
from roq.simulation.lab.traces.collect import Collector, merge
from roq.simulation.lab.traces.place import Part, Place, TracesError
from roq.simulation.lab.traces.summary import remarks, summarise
from roq.simulation.lab.traces.tap import Tap
from roq.simulation.lab.traces.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRAIN_SECONDS: Final = 120.0
"""Without a micro-batch that is done; as long as they come, there is an end to it."""
LOOK_SECONDS: Final = 1.0
FILES_MAX: Final = 50
"""More than that become one part when all are kept: with checksums and checkpoint a run leaves less
than 200 files, however long it was."""
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
        view: what they tell meanwhile.
    """

    def __init__(
        self, cluster: roq.Cluster, queues: Queues, place: Place, run: str, clock: Clock
    ) -> None:
        self.publisher: Publisher = cluster.publisher(queues.traces, block=False)
        self.view = View()
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

    @property
    def keeps(self) -> bool:
        """Whether the first traces stand in the table; cheap.

        Raises:
            TracesError: none do, and none will.
        """
        collector = self._collector
        if collector is None or collector.kept:
            return collector is not None
        if collector.failure:
            raise TracesError(collector.failure)
        return False

    def summarise(self, spark: SparkSession, run: Run) -> tuple[dict[str, float], Series | None]:
        """What the traces say, when the load is over; nothing if they cannot be evaluated."""
        self._end_tap()
        if self._collector is not None:
            self._collector.taker = None  # nobody looks at the picture any more
        try:
            self._lacking = self._drained(spark)
            self._end_collector()
            parts = self._place.parts
            if len(self._place.files(parts)) > FILES_MAX:
                merge(spark, self._place, Part(0, parts[-1].last))
            return summarise(spark, self._place, run)
        except Exception as error:  # the run itself is whole
            log.warning("the traces cannot be summarised", exc_info=True)
            self._lacking = said(error)
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
                "The traces are not whole, and figures and series are those of what there is: "
                f"{self._lacking.rstrip('.')}."
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
            spark, ",".join(self._cluster.addresses), self._traces, self._place, self._run,
            taker=self.view.take,
        )  # fmt: skip
        self._collector.start()

    def _drained(self, spark: SparkSession) -> str:
        """Wait until all traces are kept; gives why they are not, empty if they are."""
        why = "no collector was started"
        for _ in range(ATTEMPTS):
            if self._collector is None:
                break
            batches, since = self._collector.batches, time.monotonic()
            while not self._hurried and not self._collector.failure:
                if self._collector.drain(LOOK_SECONDS):
                    return ""
                if self._collector.batches > batches:
                    batches, since = self._collector.batches, time.monotonic()
                if time.monotonic() - since > DRAIN_SECONDS:
                    break
            if self._hurried:
                return "the run was ended before they were all kept"
            why = self._collector.failure
            if not why:
                return f"for {DRAIN_SECONDS:g} s no more of them were kept"
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
