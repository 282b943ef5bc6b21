"""Reads a range of one log, in order of offset: what to ask, and what the answers mean. Pure.

ask --> entries, one batch each --> Fetched: asked for more, or done
    --> nothing in time ----------> late: asked again from where it is, with more patience
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from roq.errors import RemoteProtocolError, StaleEpoch, Unavailable
from roq.protocol import documents
from roq.protocol.attributes import BatchAttributes
from roq.protocol.batch import Header, Kind, read_body, read_header
from roq.protocol.channel import (
    FETCH,
    FETCH_BYTES_MAX,
    FETCHED_ENTRY,
    REFUSED,
    Fetched,
    Heads,
    KeyPlaces,
    Refused,
    Seek,
    read_number,
)
from roq.protocol.entry import read_entry
from roq.read.log_requests import LogRequests

FETCH_BYTES: Final = FETCH_BYTES_MAX
"""Asked for at once: while an exchange waits for the next question, nothing is on its way."""
ASK_AGAIN_SECONDS: Final = 2.0
BATCH_SECONDS_MAX: Final = 256.0
"""For one batch; the largest one takes so long over the slowest network."""
RETRY_CODES: Final = frozenset({"full"})

A = TypeVar("A", Heads, Seek, Fetched, KeyPlaces)


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


class RangeReader:
    """One reading of one range.

    Args:
        requests: the questions that are under way on the connection.
        queue_id: 16 bytes; batches of another queue are refused.
        generation: of the log; likewise.
        first: offset to begin with.
        until: offset to end before.
        prefixes: topics begin with one of these.
        where: the exchange, for errors.
        most: bytes that are asked for at once; one batch comes in any case.

    Attributes:
        position: everything below this offset was given, or is not there.
        evicted: offsets that had left the log.
        asking: an answer is waited for.
        done: there is nothing more.
        patience: seconds to wait for the next word.
    """

    def __init__(
        self,
        requests: LogRequests,
        queue_id: bytes,
        generation: int,
        first: int,
        until: int,
        prefixes: Sequence[bytes],
        *,
        where: str,
        most: int = FETCH_BYTES,
    ) -> None:
        self.position = first
        self.evicted = 0
        self.asking = False
        self.done = first >= until
        self.patience = ASK_AGAIN_SECONDS
        self._requests = requests
        self._queue_id = queue_id
        self._generation = generation
        self._until = until
        self._prefixes = list(prefixes)
        self._where = where
        self._most = most
        self._asked = first

    def ask(self, now: float) -> list[bytes]:
        """The frames of the next question."""
        self._asked = self.position
        self.asking = True
        _, ask = self._requests.ask(
            FETCH, now, generation=self._generation, prefixes=self._prefixes, first=self.position,
            until=self._until, max_bytes=self._most,
        )  # fmt: skip
        return ask.frames

    def received(self, parts: list[bytes], now: float) -> LogBatch | None:
        """Take a message of the exchange; the batch in it, if it holds one.

        Raises:
            StaleEpoch: the exchange serves another log.
            Unavailable: it refuses.
            RemoteProtocolError: no exchange says this.
        """
        if parts[0] == FETCHED_ENTRY:
            return self._entry(parts, now)
        answer = answer_to(FETCH, Fetched, parts, self._requests, self._where)
        if answer is not None:
            self._fetched(answer)
        return None

    def late(self) -> None:
        """Nothing has come in time, though the exchange answers other questions.

        Only whole batches are seen here: one may be on its way over a slow network.

        Raises:
            Unavailable: that cannot be it any more.
        """
        self.asking = False
        if self.patience >= BATCH_SECONDS_MAX:
            raise Unavailable(
                f"exchange {self._where} answers, but has not brought one batch in "
                f"{self.patience:g} s: is the network slower than 4 MiB/s?"
            )
        self.patience *= 2

    def _entry(self, parts: list[bytes], now: float) -> LogBatch | None:
        if len(parts) != 5:
            raise RemoteProtocolError(f"{self._where} sent an entry without a batch")
        entry = read_entry(parts[3])
        if self._requests.find(FETCH, read_number(parts[1]), now) is None:
            return None
        if entry.queue != self._queue_id or entry.generation != self._generation:
            raise StaleEpoch(f"exchange {self._where} serves another log by now")
        if not self.position <= entry.offset < self._until:
            raise RemoteProtocolError(
                f"{self._where} sent offset {entry.offset}, asked for {self.position} to "
                f"{self._until - 1}"
            )
        self.position = entry.offset + 1
        return LogBatch(entry.offset, entry.appended_us, parts[2], read_header(parts[4]), parts[4])

    def _fetched(self, answer: Fetched) -> None:
        self.asking = False
        self.evicted += answer.evicted
        self.position = max(self.position, answer.reached)
        self.done = answer.done or self.position >= self._until
        if not self.done and self.position == self._asked:
            raise RemoteProtocolError(
                f"{self._where} has read up to offset {self.position} and says that there is more, "
                "but brings nothing of it"
            )


def answer_to(
    letter: bytes, kind: type[A], parts: list[bytes], requests: LogRequests, where: str
) -> A | None:
    """The answer to the question that is under way; None for anything else.

    Raises:
        StaleEpoch, Unavailable, RemoteProtocolError: as `RangeReader.received`.
    """
    if len(parts) != 2:
        raise RemoteProtocolError(f"{where} sent what no exchange sends")
    if parts[0] == REFUSED:
        _refused(documents.decode(parts[1], Refused), where)
        return None
    if parts[0] != letter:
        return None
    answer = documents.decode(parts[1], kind)
    return None if requests.close(letter, answer.id) is None else answer


def _refused(refused: Refused, where: str) -> None:
    if refused.code in RETRY_CODES:
        return  # asked again when the time has passed
    if refused.code in {"stale_epoch", "foreign_queue"}:
        raise StaleEpoch(f"exchange {where}: {refused.text}")
    raise Unavailable(f"exchange {where} refused: {refused.text}")
