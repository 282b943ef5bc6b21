"""The tap: every numeric document of a queue's statistics stream becomes a trace."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec

from roq.client.admin.statistics import Sample, Statistics
from roq.client.cluster import Cluster
from roq.client.publish.publisher import Publisher
from roq.errors import Closed, RoQError
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.traces.messages import (
    EVENT_TOPIC,
    KPI_TOPIC,
    AnyTrace,
    EventTrace,
    KpiTrace,
    encode,
)

LOOK_SECONDS: Final = 0.2
"""So long it waits for a document before it looks whether it is to end, or has lost something."""
FLUSH_SECONDS: Final = 10.0
MICROSECONDS: Final = 1_000_000

log = logging.getLogger(__name__)

Wall = Callable[[float], int]
"""Microseconds since 1970 by the clock of the driver, of seconds on its monotonic clock."""


class Tap:
    """Listens to a queue and publishes what it hears, in a thread of its own. A context manager.

    What it cannot pass on is counted, told in the next trace and as a gap among the events: it
    never waits for the queue of traces longer than the publisher does, and never holds up a run.

    Args:
        cluster: where the queue under load lives.
        queue: its name; it need not run yet.
        publisher: into the queue of traces; stays open.
        run: id of the run.
        wall: how times are told; None: by the clocks of this machine, as they stand now.

    Attributes:
        source: of its traces; another tap has another one.
        published: documents that were passed on.
        failed: documents that could not be published.
        failure: why it does not listen any more; empty if it does, or was told to end.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: str,
        publisher: Publisher,
        run: str,
        *,
        wall: Wall | None = None,
    ) -> None:
        self.source = f"tap-{uuid.uuid4().hex[:8]}"
        self.published = 0
        self.failed = 0
        self.failure = ""
        self._cluster = cluster
        self._queue = queue
        self._publisher = publisher
        self._run = run
        self._wall = wall or wall_clock()
        self._statistics: Statistics | None = None
        self._thread = threading.Thread(target=self._listen, name="tap", daemon=True)
        self._ending = threading.Event()
        self._number = 0
        self._told = 0

    @property
    def malformed(self) -> int:
        """Messages of the stream that could not be read, those of later versions among them."""
        return self._statistics.malformed if self._statistics is not None else 0

    @property
    def foreign(self) -> int:
        """Documents about another queue, which is none of this run."""
        return self._statistics.foreign if self._statistics is not None else 0

    @property
    def dropped(self) -> int:
        """Documents that came and are in no trace, as far as it knows."""
        if self._statistics is None:
            return self.failed
        return self._statistics.dropped + self._statistics.malformed + self.failed

    def __enter__(self) -> Self:
        self._statistics = self._cluster.statistics(self._queue)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        if self._statistics is not None:
            self._statistics.close()

    def _listen(self) -> None:
        assert self._statistics is not None  # noqa: S101 - began by `__enter__`
        try:
            while not self._ending.is_set():
                self._pass_on(self._statistics.receive(LOOK_SECONDS))
            for sample in self._statistics.waiting():
                self._pass_on(sample)
            self._publisher.flush(FLUSH_SECONDS)
        except Closed:
            return  # the cluster was closed first: no collector is left to be told
        except RoQError as error:  # what is missing is seen by the numbers of the traces
            log.warning("not all traces were published: %s", error, extra={"event": "tap_flush"})
        except Exception as error:  # a thread can tell its owner only
            self.failure = f"{type(error).__name__}: {error}"
            log.exception("the tap has failed", extra={"event": "tap_failed"})

    def _pass_on(self, sample: Sample | None) -> None:
        if sample is not None:
            self._publish_document(sample)
        if self.dropped > self._told:
            lost, self._told = self.dropped - self._told, self.dropped
            self._publish(
                EVENT_TOPIC,
                EventTrace(
                    run=self._run, time_us=self._wall(time.monotonic()), source=self.source,
                    number=self._number, event=EventKind.GAP,
                    text=f"{lost} documents of the statistics stream were lost by the tap",
                ),
            )  # fmt: skip

    def _publish_document(self, sample: Sample) -> None:
        trace = KpiTrace(
            run=self._run, time_us=self._wall(sample.when), source=self.source,
            number=self._number, document=msgspec.to_builtins(sample.document),
            dropped=self.dropped,
        )  # fmt: skip
        if self._publish(KPI_TOPIC, trace):
            self.published += 1
        else:
            self.failed += 1

    def _publish(self, topic: str, trace: AnyTrace) -> bool:
        try:
            self._publisher.publish(encode(trace), topic)
        except Closed:
            raise
        except RoQError:
            return False
        self._number += 1
        return True


def wall_clock() -> Wall:
    """Times of this machine, free of whatever happens to its wall clock from now on."""
    ahead = time.time() - time.monotonic()
    return lambda monotonic: round((monotonic + ahead) * MICROSECONDS)
