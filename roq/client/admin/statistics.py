"""The statistics stream of a queue: what its monitor publishes each KPI period, as typed values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, NamedTuple, Self

import zmq

from roq.client.admin.management import Management
from roq.client.admin.views import QueueDescription
from roq.client.io.engine import Engine
from roq.errors import Closed, QueueNotFound, RemoteProtocolError, RoQError
from roq.model import Limits, check_name
from roq.protocol.documents import RawDocument, convert
from roq.protocol.kpi import NUMERIC_TOPIC, NumericDocument, decode_numeric
from roq.runtime import descriptors, sockets
from roq.runtime.backoff import Backoff
from roq.runtime.interfaces import Timer
from roq.runtime.reactor import drain

SILENCE_SECONDS: Final = 3.0
"""After so long without a document the monitor is looked for again; it speaks every second."""
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


class Statistics:
    """Listens to the KPI stream of one queue, and finds it again when the monitor moves.

    Iterate over it, or `receive` one sample. A context manager. Made by `Cluster.statistics`.

    Args:
        engine: the client's I/O thread.
        management: tells where the stream is.
        queue: name of the queue; it need not exist or run yet.

    Attributes:
        state, reason: whether documents come; if not, why, in a sentence.
        limits: of the queue; None before it was found.
        malformed: messages that could not be read.
        foreign: documents about another queue.
        dropped: samples that were not read in time.
    """

    def __init__(self, engine: Engine, management: Management, queue: str) -> None:
        self.queue = check_name(queue)
        self.state = StreamState.SEARCHING
        self.reason = ""
        self.limits: Limits | None = None
        self.malformed = 0
        self.foreign = 0
        self.dropped = 0
        self._engine = engine
        self._management = management
        self._samples: SimpleQueue[Sample | None] = SimpleQueue()
        self._socket: zmq.Socket[bytes] | None = None
        self._endpoint = ""
        self._timer: Timer | None = None
        self._backoff = Backoff(engine.jitter)
        self._closed = False
        self._on_ready: Callable[[], None] | None = None
        engine.at_end(self._ended)
        engine.call_soon(self._locate)

    def receive(self, timeout: float | None = None) -> Sample | None:
        """The next document; None if none has come for `timeout` seconds (None: wait for ever).

        Raises:
            Closed: this stream, or the connection to the cluster, is closed.
        """
        self._engine.check_process()
        try:
            sample = self._samples.get(timeout=None if timeout is None else max(0.0, timeout))
        except Empty:
            return None
        if sample is None:
            self._samples.put(None)
            raise Closed("the statistics stream is closed")
        return sample

    def __iter__(self) -> Iterator[Sample]:
        """All documents from now on; ends when the stream is closed."""
        while True:
            try:
                sample = self.receive()
            except Closed:
                return
            if sample is not None:
                yield sample

    def waiting(self) -> list[Sample]:
        """Everything that has come and was not read; does not wait.

        Raises:
            Closed: as `receive`.
        """
        samples: list[Sample] = []
        while (sample := self.receive(0)) is not None:
            samples.append(sample)
        return samples

    def close(self) -> None:
        """Stop listening; idempotent, from any thread."""
        if self._closed:
            return
        self._closed = True
        try:
            self._engine.check()
            self._engine.not_at_end(self._ended)
            self._engine.run_sync(self._release)
        except Closed:
            self._put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- I/O thread -------------------------------------------------------------------------------

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
        if found.statistics != self._endpoint:
            self._listen(found.statistics)
        self._look_again_in(SILENCE_SECONDS)

    def _nothing(self, state: StreamState, reason: str) -> None:
        if state is not StreamState.SEARCHING:
            self._drop()  # while nobody knows, the old monitor may still be heard
        self.state, self.reason = state, reason
        self._look_again_in(self._backoff.wait())

    def _listen(self, endpoint: str) -> None:
        self._drop()
        address = self._engine.translate(endpoint)
        try:
            socket = sockets.listener(self._engine.context, address, NUMERIC_TOPIC)
        except zmq.ZMQError as error:
            self.reason = f"cannot connect to {endpoint}: {descriptors.reason(error)}"
            return
        self._socket = socket
        self._endpoint = endpoint
        self._engine.reactor.add(socket, lambda: drain(socket, self._received))

    def _look_again_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.reactor.call_later(seconds, self._silent)

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
        self._look_again_in(SILENCE_SECONDS)
        with suppress(Empty):  # the reader takes them meanwhile
            while self._samples.qsize() >= SAMPLES_MAX:
                self._samples.get_nowait()
                self.dropped += 1
        self._put(Sample(self._engine.reactor.now(), document))

    def _put(self, sample: Sample | None) -> None:
        self._samples.put(sample)
        if self._on_ready is not None:
            self._on_ready()

    def _drop(self) -> None:
        if self._socket is not None:
            socket, self._socket = self._socket, None
            self._endpoint = ""
            self._engine.reactor.remove(socket)
            socket.close(0)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._drop()
        self._put(None)

    def _ended(self) -> None:
        if not self._closed:
            self._closed = True
            self._release()
