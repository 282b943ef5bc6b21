"""The statistics stream of a queue: what its monitor publishes each KPI period, as typed values."""

from __future__ import annotations

from concurrent.futures import Future
from enum import StrEnum
from typing import Final, NamedTuple

import zmq

from roq.client.admin.listener import Listener
from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import QueueNotFound, RemoteProtocolError, RoQError
from roq.model import Limits, check_name
from roq.protocol.documents import RawDocument, convert
from roq.protocol.kpi import NUMERIC_TOPIC, NumericDocument, decode_numeric
from roq.protocol.public_answers import QueueDescription
from roq.runtime import descriptors
from roq.runtime.backoff import Backoff
from roq.timing import STATISTICS_SILENT_SECONDS

LOCATE_SECONDS: Final = 5.0
SAMPLES_MAX: Final = 10_000
"""Documents that wait for a slow reader; the oldest are dropped and counted."""


class StreamState(StrEnum):
    """Whether documents come, and if not, why."""

    SEARCHING = "searching"
    LIVE = "running"
    STOPPED = "stopped"
    MISSING = "removed"


class Sample(NamedTuple):
    """One document, and when it came."""

    when: float
    """Seconds on the monotonic clock of this machine."""
    document: NumericDocument


class Statistics(Listener[Sample]):
    """Listens to the KPI stream of one queue, and finds it again when the monitor moves.

    Made by `Cluster.statistics`.

    Args:
        engine: the client's I/O thread.
        management: tells where the stream is.
        queue: name of the queue; it need not exist or run yet.

    Attributes:
        state, reason: whether documents come; if not, why, in a sentence.
        limits: of the queue; None before it was found.
        foreign: documents about another queue.
    """

    def __init__(self, engine: Engine, management: Management, queue: str) -> None:
        self.queue = check_name(queue)
        self.state = StreamState.SEARCHING
        self.reason = ""
        self.limits: Limits | None = None
        self.foreign = 0
        self._backoff = Backoff(engine.jitter)
        super().__init__(
            engine, management, name="statistics stream", topic=NUMERIC_TOPIC, most=SAMPLES_MAX
        )

    def waiting(self) -> list[Sample]:
        """Everything that has come and was not read; does not wait.

        Raises:
            Closed: as `receive`.
        """
        samples: list[Sample] = []
        while (sample := self.receive(0)) is not None:
            samples.append(sample)
        return samples

    def _locate(self) -> None:
        if self._closed:
            return
        request: RawDocument = {"CMD": 2104, "QName": self.queue}
        self._management.ask(request, LOCATE_SECONDS).add_done_callback(self._located)

    def _located(self, future: Future[RawDocument]) -> None:
        if self._closed:
            return
        try:
            found = convert(future.result(), QueueDescription)
        except RoQError as error:
            missing = isinstance(error, QueueNotFound)
            self._nothing(StreamState.MISSING if missing else StreamState.SEARCHING, str(error))
            return
        self.limits = found.limits
        if not (found.running and found.statistics):
            self._nothing(StreamState.STOPPED, f"queue {self.queue} is {found.state}")
            return
        try:
            self._listen(found.statistics)
        except zmq.ZMQError as error:
            self.reason = f"cannot connect to {found.statistics}: {descriptors.reason(error)}"
        self._call_later(STATISTICS_SILENT_SECONDS, self._silent)

    def _nothing(self, state: StreamState, reason: str) -> None:
        if state is not StreamState.SEARCHING:
            self._drop()  # while nobody knows, the old monitor may still be heard
        self.state, self.reason = state, reason
        self._call_later(self._backoff.wait(), self._silent)

    def _silent(self) -> None:
        if self.state is StreamState.LIVE:
            self.state = StreamState.SEARCHING
            self.reason = f"the monitor of queue {self.queue} is silent"
        self._locate()

    def _received(self, frames: list[bytes]) -> None:
        try:
            document = decode_numeric(frames)
        except RemoteProtocolError:
            self.malformed += 1
            return
        if document.queue != self.queue:
            self.foreign += 1
            return  # the port of a monitor that is gone belongs to another queue now
        self.state, self.reason = StreamState.LIVE, ""
        self._backoff.reset()
        self._call_later(STATISTICS_SILENT_SECONDS, self._silent)
        self._add(Sample(self._engine.reactor.now(), document))
