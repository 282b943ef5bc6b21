"""Reads parts of the log of one exchange, by offset: for programs that keep their own place.

    with LogReader("tcp://127.0.0.1:6000", queue_id, number=1, generation=65537) as log:
        ends = log.ends()
        for batch in log.read(ends.floor, ends.end):
            print(batch.offset, batch.topic, batch.payloads())

Nothing is subscribed to and no thread is started: a question, an answer. A connection that breaks
is made anew, and what has not arrived is asked for again, for as long as the exchange answers at
all (within `timeout`) and a batch may take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import zmq

from roq.errors import Closed, OtherVersion, StaleEpoch, Unavailable
from roq.number_ranges import OFFSET_MAX, in_range
from roq.protocol.batch import HEADER_BYTES
from roq.protocol.channel import FIND, HEADS, SEEK, Heads, KeyPlaces, Seek
from roq.protocol.framing import Answers
from roq.protocol.version import FIRST, other_version
from roq.read.log_requests import LogRequests
from roq.read.range_reader import (
    ASK_AGAIN_SECONDS,
    FETCH_BYTES,
    A,
    LogBatch,
    RangeReader,
    answer_to,
)
from roq.runtime import sockets

RECEIVE_MARK: Final = 2 * FETCH_BYTES // HEADER_BYTES
"""More than one answer brings, so that who reads slowly is never full: a socket that is, and loses
its connection, ends the process (docs/decisions/0009). ZeroMQ counts in steps of half the mark."""
NOTHING_SO_NEW: Final = (1 << 63) - 1
TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class LogEnds:
    """What stands in a log: offsets from `floor` up to, but without, `end`."""

    generation: int
    floor: int
    end: int


class LogReader:
    """The log of one exchange. For one thread.

    Args:
        address: data address of the exchange.
        queue_id: 16 bytes; an exchange of another queue refuses.
        number: of the exchange.
        generation: of the log, see `roq.model.LogId`. None: whatever the exchange has.
        timeout: seconds without any word from the exchange, then `Unavailable`.
        context: for the socket; None: one of its own.

    Attributes:
        evicted: offsets that `read` was asked for and that had left the log.
    """

    def __init__(
        self,
        address: str,
        queue_id: bytes,
        *,
        number: int,
        generation: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self.evicted = 0
        self._address = address
        self._queue_id = queue_id
        self._number = number
        self._generation = generation
        self._timeout = timeout
        self._own_context = context is None
        self._context = context or sockets.new_context()
        self._socket: zmq.Socket[bytes] | None = None
        self._answers = Answers()
        self._requests = LogRequests(queue_id)
        self._closed = False

    def ends(self) -> LogEnds:
        """What stands in the log now.

        Raises:
            Unavailable: the exchange does not answer.
            StaleEpoch: another process has taken its place, with another log.
        """
        answer = self._ask(HEADS, Heads, prefixes=[], since=NOTHING_SO_NEW)
        self._check_log(answer.generation)
        return LogEnds(answer.generation, answer.floor, answer.end)

    def seek(self, time_us: int) -> int:
        """The offset of the first batch that was appended at or after a time (µs UTC).

        Raises:
            Unavailable, StaleEpoch: as `ends`.
        """
        answer = self._ask(SEEK, Seek, time_us=in_range(time_us))
        self._check_log(answer.generation)
        return answer.offset

    def find(self, key: int, before: int = OFFSET_MAX) -> KeyPlaces:
        """Where below an offset a batch with a message of a key may be, the newest first.

        Args:
            key: `roq.protocol.columns.key_hash` of it.

        Raises:
            Unavailable, StaleEpoch: as `ends`.
        """
        if self._generation is None:
            self._generation = self.ends().generation
        return self._ask(FIND, KeyPlaces, generation=self._generation, key=key, before=before)

    def read(
        self, first: int, until: int, prefixes: Sequence[bytes] = (b"",)
    ) -> Iterator[LogBatch]:
        """All batches from offset `first` up to, but without, `until`, in order.

        What has left the log is passed over and counted in `evicted`. Ends early at the end of the
        log.

        Args:
            first: offset to begin with.
            until: offset to end before.
            prefixes: topics begin with one of these.

        Raises:
            Unavailable, StaleEpoch: as `ends`; what was given is right, and may be gone on from.
            RemoteProtocolError: an answer that no exchange gives.
        """
        reading = self._range(first, until, prefixes)
        before = self.evicted
        while not reading.done:
            self._send(reading.ask(time.monotonic()))
            yield from self._batches(reading)
            self.evicted = before + reading.evicted

    def following(self, offset: int, until: int) -> int:
        """The first offset at or above `offset` at which there is a batch; `until` if there is none
        below. A log on a disk may have left out a million offsets between two.

        Raises:
            Unavailable, StaleEpoch, RemoteProtocolError: as `read`.
        """
        reading = self._range(offset, until, (b"",), most=1)
        while not reading.done:
            self._send(reading.ask(time.monotonic()))
            found = [batch.offset for batch in self._batches(reading)]  # to the end of the answer
            if found:
                return found[0]
        return until

    def _range(
        self, first: int, until: int, prefixes: Sequence[bytes], most: int = FETCH_BYTES
    ) -> RangeReader:
        if self._generation is None:
            self._generation = self.ends().generation
        return RangeReader(
            self._requests, self._queue_id, self._generation, first, until, prefixes,
            where=self._where, most=most,
        )  # fmt: skip

    def _batches(self, reading: RangeReader) -> Iterator[LogBatch]:
        """What comes for the question that was asked."""
        deadline = time.monotonic() + reading.patience
        while reading.asking:
            parts = self._receive(deadline)
            if parts is None:
                self.ends()  # is it there at all?
                reading.late()
                return
            batch = reading.received(parts, time.monotonic())
            if batch is not None:
                yield batch
                deadline = time.monotonic() + reading.patience

    def close(self) -> None:
        """Give the socket back; idempotent."""
        self._closed = True
        self._drop_socket()
        if self._own_context:
            self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- questions --------------------------------------------------------------------------------

    def _ask(self, letter: bytes, kind: type[A], **fields: object) -> A:
        deadline = time.monotonic() + self._timeout
        while True:
            self._send(self._requests.ask(letter, time.monotonic(), **fields)[1].frames)
            again = min(deadline, time.monotonic() + ASK_AGAIN_SECONDS)
            while (parts := self._receive(again)) is not None:
                answer = answer_to(letter, kind, parts, self._requests, self._where)
                if answer is not None:
                    return answer
            self._check_patience(deadline)

    def _send(self, frames: list[bytes]) -> None:
        if self._closed:
            raise Closed(f"the reader of exchange {self._where} is closed")
        if self._socket is None:
            self._socket = sockets.dealer(self._context, maximum_bytes=-1)
            self._answers = Answers()
            self._socket.setsockopt(zmq.RCVHWM, RECEIVE_MARK)
            self._socket.setsockopt(zmq.HEARTBEAT_IVL, 0)  # those of the exchange suffice
            self._socket.connect(self._address)
        sockets.send_to(self._socket, frames)

    def _receive(self, deadline: float) -> list[bytes] | None:
        """The next message; None if there is none in time, and then the connection is a new one."""
        assert self._socket is not None  # noqa: S101 - narrows the type; `_send` came before
        parts = None
        while parts is None:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)  # of a batch that is there, nobody waits
            except zmq.Again:
                left = deadline - time.monotonic()
                if left > 0 and self._socket.poll(int(left * 1_000) + 1):
                    continue
                self._drop_socket()  # an answer that comes late must not be taken for another one
                self._requests.abandon()
                return None
            if self._socket.getsockopt(zmq.RCVMORE):
                self._drop_socket()
                raise OtherVersion(other_version(f"exchange {self._where}", FIRST))
            parts = self._answers.take(frame)
        return parts

    def _check_log(self, generation: int) -> None:
        if self._generation is not None and generation != self._generation:
            raise StaleEpoch(
                f"the log of exchange {self._where} has generation {generation} now, not "
                f"{self._generation}: the exchange was started anew, and the log of before is gone"
            )

    def _check_patience(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"exchange {self._where} has not answered for {self._timeout:g} s: is it running?"
            )

    @property
    def _where(self) -> str:
        return f"x{self._number} at {self._address}"

    def _drop_socket(self) -> None:
        if self._socket is not None:
            self._socket.close(0)
            self._socket = None
