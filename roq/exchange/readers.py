"""Answers what readers ask of the log: heads, streams, times; and takes their fetches in.

Every request gets an answer. One that cannot be read, belongs to another queue or is out of range
is refused with a code and a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from roq.errors import RemoteProtocolError
from roq.exchange.backpressure import Backpressure
from roq.exchange.counters import Counters
from roq.exchange.events import Effect, Send
from roq.exchange.fetches import Fetches
from roq.exchange.requests import Request
from roq.log.log import Log
from roq.log.streams import StreamTable
from roq.model import PUBLISHER_ID_BYTES, TOPIC_BYTES_MAX
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FIND,
    HEADS,
    PAGE_MAX,
    POSITION,
    PREFIXES_MAX,
    REFUSED,
    SEEK,
    STREAMS,
    WANTS_MAX,
    FetchRequest,
    FindRequest,
    Heads,
    HeadsRequest,
    KeyPlaces,
    Position,
    Reading,
    Refused,
    Seek,
    SeekRequest,
    Streams,
    StreamsRequest,
)
from roq.protocol.delayed import DELAYED_TOPIC

B = TypeVar("B")
R = TypeVar("R", HeadsRequest, StreamsRequest, SeekRequest, FindRequest, FetchRequest, Position)


class RefusedRequest(Exception):
    """A request that is not served; code and sentence go to the reader."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def refusal(
    route: bytes, code: str, text: str, link_number: int = 0, addresses: Sequence[str] = ()
) -> Send:
    """The effect that tells a peer No, and where else to go."""
    document = Refused(code=code, text=text, link_number=link_number, addresses=list(addresses))
    return Send(route, (REFUSED, documents.encode(document)))


class Readers(Generic[B]):
    """The reading half of the exchange core."""

    def __init__(
        self,
        queue: bytes,
        log: Log[B],
        streams: StreamTable,
        fetches: Fetches[B],
        counters: Counters,
        backpressure: Backpressure[B],
    ) -> None:
        self._queue = queue
        self._log = log
        self._streams = streams
        self._fetches = fetches
        self._counters = counters
        self._backpressure = backpressure
        self._handlers: Final[dict[bytes, Callable[[Request], list[Effect]]]] = {
            HEADS: self._heads,
            STREAMS: self._stream_page,
            SEEK: self._seek,
            FETCH: self._fetch,
            POSITION: self._position,
            FIND: self._find,
        }

    def serves(self, letter: bytes) -> bool:
        """Whether this first frame is a reader's."""
        return letter in self._handlers

    def handle(self, request: Request) -> list[Effect]:
        """Answer one request."""
        return answer_or_refuse(request, self._handlers[request.letter], self._counters)

    def _heads(self, asked: Request) -> list[Effect]:
        request = self._read(asked.document, HeadsRequest)
        prefixes, end = checked_prefixes(request.prefixes), self._log.committed
        heads, more = self._log.heads(prefixes, request.since, end, PAGE_MAX)
        return _answer(
            asked, HEADS,
            Heads(
                id=request.id, generation=self._log.generation, end=end, floor=self._log.floor,
                heads=_shown(heads), more=more,
            ),
        )  # fmt: skip

    def _stream_page(self, asked: Request) -> list[Effect]:
        request = self._read(asked.document, StreamsRequest)
        found, after = self._streams.page(
            checked_prefixes(request.prefixes), request.after, PAGE_MAX
        )
        return _answer(
            asked,
            STREAMS,
            Streams(
                id=request.id,
                generation=self._log.generation,
                next=after,
                streams=[each for each in found if each[1] != DELAYED_TOPIC],
            ),
        )

    def _seek(self, asked: Request) -> list[Effect]:
        request = self._read(asked.document, SeekRequest)
        end = self._log.committed
        return _answer(
            asked, SEEK,
            Seek(
                id=request.id, generation=self._log.generation,
                offset=min(self._log.seek(request.time_us), end), end=end, floor=self._log.floor,
            ),
        )  # fmt: skip

    def _find(self, asked: Request) -> list[Effect]:
        request = self._read(asked.document, FindRequest)
        self._check_log(request.generation)
        places, reached = self._log.find(request.key, request.before)
        return _answer(
            asked, FIND,
            KeyPlaces(
                id=request.id, generation=self._log.generation, places=places, reached=reached,
                floor=self._log.floor,
            ),
        )  # fmt: skip

    def _fetch(self, asked: Request) -> list[Effect]:
        request = self._read(asked.document, FetchRequest)
        self._check_log(request.generation)
        if len(request.wants) > WANTS_MAX:
            raise RefusedRequest(
                "invalid_request", f"{len(request.wants)} topics in one fetch; {WANTS_MAX} at most"
            )
        if checked_prefixes(request.prefixes) and request.wants:
            raise RefusedRequest("invalid_request", "a fetch has wants or prefixes, not both")
        self._counters.fetches += 1
        if not self._fetches.start(asked.route, request, asked.reader):
            raise RefusedRequest("full", "too many readers fetch at once; try again")
        return []

    def _position(self, asked: Request) -> list[Effect]:
        request = self._read(asked.document, Position)
        self._check_log(request.generation)
        if request.leaves:
            self._backpressure.leave(request.reader)
            return []
        behind = self._backpressure.report(
            request.reader, request.name[:PUBLISHER_ID_BYTES], request.read
        )
        until = min(request.until, self._log.committed)
        heads: list[tuple[bytes, int]] = []
        more = False
        if request.since < until:
            prefixes = checked_prefixes(request.prefixes)
            heads, more = self._log.heads(prefixes, request.since, until, PAGE_MAX)
        return _answer(
            asked, POSITION,
            Reading(
                id=request.id, generation=self._log.generation, floor=self._log.floor,
                until=until, heads=_shown(heads), next=heads[-1][1] + 1 if more else 0,
                behind=behind, near=self._backpressure.near,
            ),
        )  # fmt: skip

    def _check_log(self, generation: int) -> None:
        if generation != self._log.generation:
            raise RefusedRequest(
                "stale_epoch",
                f"the log of this exchange has generation {self._log.generation}, not {generation}",
            )

    def _read(self, document: bytes, kind: type[R]) -> R:
        request = documents.decode(document, kind)
        check_queue(request.queue, self._queue)
        return request


def checked_prefixes(prefixes: Sequence[bytes]) -> tuple[bytes, ...]:
    """These beginnings of topics, if they can be some.

    Raises:
        RefusedRequest: they are too many, or too long.
    """
    if len(prefixes) > PREFIXES_MAX or any(len(prefix) > TOPIC_BYTES_MAX for prefix in prefixes):
        raise RefusedRequest(
            "invalid_request",
            f"at most {PREFIXES_MAX} prefixes of at most {TOPIC_BYTES_MAX} bytes in one request",
        )
    return tuple(prefixes)


def tagged(answer: Send, asked: Request) -> Send:
    """The answer, for this reader of those that share the connection."""
    letter, *rest = answer.parts
    return Send(answer.route, (letter + asked.reader, *rest))


def answer_or_refuse(
    asked: Request, handler: Callable[[Request], list[Effect]], counters: Counters
) -> list[Effect]:
    """What the handler answers; a refusal if it cannot be read, or is not to be served."""
    try:
        return handler(asked)
    except RemoteProtocolError as error:
        counters.malformed += 1
        code, text = "malformed", str(error)
    except RefusedRequest as error:
        counters.refused_requests += 1
        code, text = error.code, str(error)
    return [tagged(refusal(asked.route, code, text), asked)]


def _answer(asked: Request, letter: bytes, document: msgspec.Struct) -> list[Effect]:
    return [Send(asked.route, (letter + asked.reader, documents.encode(document)))]


def _shown(heads: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
    """Without what nobody is shown."""
    return [each for each in heads if each[0] != DELAYED_TOPIC]


def check_queue(asked: bytes, served: bytes) -> None:
    """Whether who asks means the queue of this exchange.

    Raises:
        RefusedRequest: it does not.
    """
    if asked != served:
        raise RefusedRequest(
            "foreign_queue", "this exchange serves another queue: locate yours again"
        )
