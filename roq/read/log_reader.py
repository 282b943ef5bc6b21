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
from types import TracebackType
from typing import Final, Self, TypeVar

import zmq

from roq.errors import Closed, OtherVersion, RemoteProtocolError, StaleEpoch, Unavailable
from roq.protocol import documents
from roq.protocol.attributes import BatchAttributes
from roq.protocol.batch import Header, Kind, read_body, read_header
from roq.protocol.channel import (
    FETCH,
    FETCHED_ENTRY,
    HEADS,
    REFUSED,
    SEEK,
    Fetched,
    Heads,
    Refused,
    Seek,
    read_number,
)
from roq.protocol.entry import read_entry
from roq.protocol.framing import Answers
from roq.protocol.version import FIRST, other_version
from roq.ranges import in_range
from roq.read.log_requests import LogRequests
from roq.runtime import sockets

FETCH_BYTES: Final = 2 * 1024 * 1024
"""Asked for at once."""
ASK_AGAIN_SECONDS: Final = 2.0
BATCH_SECONDS_MAX: Final = 256.0
"""For one batch; the largest one takes so long over the slowest network."""
NOTHING_SO_NEW: Final = (1 << 63) - 1
TIMEOUT_SECONDS: Final = 10.0
RETRY_CODES: Final = frozenset({"full"})

A = TypeVar("A", Heads, Seek, Fetched)


@dataclass(frozen=True, slots=True)
class LogEnds:
    """What stands in a log: offsets from `floor` up to, but without, `end`."""

    generation: int
    floor: int
    end: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One batch as it stands in the log.

    Attributes:
        offset: its place.
        appended_us: when it was appended, µs UTC; never decreases within a log.
        topic: UTF-8.
        header: publisher, sequences, creation time.
        data: header and body.
    """

    offset: int
    appended_us: int
    topic: bytes
    header: Header
    data: bytes

    def payloads(self) -> list[bytes]:
        """Its messages; none for a batch that stands in for messages that were given up.

        Raises:
            RemoteProtocolError: it was damaged.
        """
        return self.body()[0]

    def body(self) -> tuple[list[bytes], BatchAttributes | None]:
        """As `payloads`, and the attributes of its messages if there are any.

        Raises:
            RemoteProtocolError: it was damaged.
        """
        if self.header.kind != Kind.DATA:
            return [], None
        payloads, packed = read_body(self.data, self.header)
        first = self.header.first_sequence
        return payloads, None if packed is None else BatchAttributes(
            packed, first, self.header.count
        )


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
        position = first
        generation = self._generation if self._generation is not None else self.ends().generation
        self._generation = generation
        wait = ASK_AGAIN_SECONDS
        while position < until:
            asked = position
            self._send(
                FETCH, generation=generation, prefixes=list(prefixes), first=position, until=until,
                max_bytes=FETCH_BYTES,
            )  # fmt: skip
            deadline = time.monotonic() + wait
            answer: Fetched | None = None
            while answer is None:
                frames = self._receive(deadline)
                if frames is None:
                    # Only whole batches are seen here: it may be on its way over a slow network.
                    wait = self._longer(wait)
                    break  # asked again from where we are
                if frames[0] != FETCHED_ENTRY:
                    answer = self._answer(frames, FETCH, Fetched)
                elif (batch := self._entry(frames)) is not None:
                    self._check_place(batch.offset, position, until)
                    position = batch.offset + 1
                    yield batch
                    deadline = time.monotonic() + wait
            if answer is None:
                continue
            self.evicted += answer.evicted
            position = max(position, answer.reached)
            if answer.done:
                return
            if position == asked:
                raise RemoteProtocolError(
                    f"{self._where} has read up to offset {position} and says that there is more, "
                    "but brings nothing of it"
                )

    def close(self) -> None:
        """Give the socket back; idempotent."""
        self._closed = True
        self._drop_socket()
        if self._own_context:
            self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- questions --------------------------------------------------------------------------------

    def _ask(self, letter: bytes, kind: type[A], **fields: object) -> A:
        deadline = time.monotonic() + self._timeout
        while True:
            self._send(letter, **fields)
            again = min(deadline, time.monotonic() + ASK_AGAIN_SECONDS)
            while (frames := self._receive(again)) is not None:
                answer = self._answer(frames, letter, kind)
                if answer is not None:
                    return answer
            self._check_patience(deadline)

    def _send(self, letter: bytes, **fields: object) -> None:
        if self._closed:
            raise Closed(f"the reader of exchange {self._where} is closed")
        if self._socket is None:
            self._socket = sockets.dealer(self._context, maximum_bytes=-1)
            self._answers = Answers()
            self._socket.connect(self._address)
        _, ask = self._requests.ask(letter, time.monotonic(), **fields)
        sockets.send_to(self._socket, ask.frames)

    def _receive(self, deadline: float) -> list[bytes] | None:
        """The next message; None if there is none in time, and then the connection is a new one."""
        assert self._socket is not None  # noqa: S101 - narrows the type; `_send` came before
        parts = None
        while parts is None:
            left = deadline - time.monotonic()
            if left <= 0 or not self._socket.poll(int(left * 1_000) + 1):
                self._drop_socket()  # an answer that comes late must not be taken for another one
                self._requests.abandon()
                return None
            frame = self._socket.recv()
            if self._socket.getsockopt(zmq.RCVMORE):
                self._drop_socket()
                raise OtherVersion(other_version(f"exchange {self._where}", FIRST))
            parts = self._answers.take(frame)
        return parts

    def _answer(self, frames: list[bytes], letter: bytes, kind: type[A]) -> A | None:
        """The answer to our question; None for a late one to an earlier question."""
        if len(frames) != 2:
            raise RemoteProtocolError(f"{self._where} sent what no exchange sends")
        if frames[0] == REFUSED:
            self._refused(documents.decode(frames[1], Refused))
            return None
        if frames[0] != letter:
            return None
        answer = documents.decode(frames[1], kind)
        return None if self._requests.close(letter, answer.id) is None else answer

    def _entry(self, frames: list[bytes]) -> LogBatch | None:
        if len(frames) != 5:
            raise RemoteProtocolError(f"{self._where} sent an entry without a batch")
        entry = read_entry(frames[3])
        if self._requests.find(FETCH, read_number(frames[1]), time.monotonic()) is None:
            return None
        if entry.queue != self._queue_id or entry.generation != self._generation:
            raise StaleEpoch(f"exchange {self._where} serves another log by now")
        return LogBatch(
            entry.offset, entry.appended_us, frames[2], read_header(frames[4]), frames[4]
        )

    def _check_place(self, offset: int, first: int, until: int) -> None:
        if not first <= offset < until:
            raise RemoteProtocolError(
                f"{self._where} sent offset {offset}, asked for {first} to {until - 1}"
            )

    def _refused(self, refused: Refused) -> None:
        if refused.code in RETRY_CODES:
            return  # asked again when the time has passed
        if refused.code in {"stale_epoch", "foreign_queue"}:
            raise StaleEpoch(f"exchange {self._where}: {refused.text}")
        raise Unavailable(f"exchange {self._where} refused: {refused.text}")

    def _check_log(self, generation: int) -> None:
        if self._generation is not None and generation != self._generation:
            raise StaleEpoch(
                f"the log of exchange {self._where} has generation {generation} now, not "
                f"{self._generation}: the exchange was started anew, and the log of before is gone"
            )

    def _longer(self, waited: float) -> float:
        """For how long to wait the next time, if the exchange is there at all."""
        if waited >= BATCH_SECONDS_MAX:
            raise Unavailable(
                f"exchange {self._where} answers, but has not brought one batch in {waited:g} s: "
                "is the network slower than 4 MiB/s?"
            )
        self.ends()
        return waited * 2

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
