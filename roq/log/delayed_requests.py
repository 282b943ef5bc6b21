"""Requests with other names than where they are: delayed, run again, or sent once more. Pure.

A delayed request waits as a delayed message (`roq.exchange.delayed_messages`), and is published
when it is due. So it stands in the log where nobody could know before, and it is known by the id of
that message instead: as a position that no log reaches. One that has ended and that an operator has
run again stands in the log once more, and is known by where it was first. One that its requester
has sent once more is known by where it is; that it was known otherwise before matters only to those
who have an answer to it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol, cast

from roq.errors import RemoteProtocolError
from roq.log.leases import bits_at
from roq.protocol.attributes import BatchAttributes
from roq.protocol.batch import HEADER_BYTES, read_body, read_header
from roq.protocol.columns import read_sent_again
from roq.protocol.orphaned_answers import before_of, maker_of, token_of
from roq.protocol.requesting import (
    AGAIN_PUBLISHER,
    DELAYED_FROM,
    Position,
    RequestState,
    delayed_message,
    named_by,
)

TOKENS_MAX: Final = 10_000
"""Of one service at one exchange; of what is more, no answer is taken that was given elsewhere."""
READS_MAX: Final = 10_000
"""Requests that are looked at for that between two ticks, as they may all say the same; of what is
more, likewise."""
_HEADER: Final = Struct("<6xH32xQ")
"""Of a batch: bytes of its extension area, and the link number; 0: the exchange has published it
itself."""


class FormerNames:
    """Those of one service.

    Attributes:
        tokens: by where a request is (`roq.protocol.orphaned_answers`).
        read: requests that were looked at for it so far; each takes some 30 µs.
    """

    def __init__(self) -> None:
        self.tokens: dict[Position, list[bytes]] = {}
        self.read = 0
        self._read_most = READS_MAX
        self._where: dict[bytes, Position] = {}

    @property
    def full(self) -> bool:
        """Whether no more are noted, at least before the next tick."""
        return len(self._where) >= TOKENS_MAX or self.read >= self._read_most

    def tick(self) -> int:
        """Time has passed, and others may be looked at; how many were so far."""
        self._read_most = self.read + READS_MAX
        return self.read

    def clear(self) -> None:
        """None is open."""
        self._where.clear()
        self.tokens.clear()

    def opened(
        self, place: Position, properties: dict[str, str], maker: bytes, payload: bytes
    ) -> None:
        """A request is open here that may have been sent once more.

        Args:
            maker: who has made it.
        """
        full = self.full
        self.read += 1
        for name in before_of(properties) if not full else ():
            if len(self._where) >= TOKENS_MAX:
                return
            token = token_of(*name, maker, payload)
            if self._where.setdefault(token, place) == place:
                tokens = self.tokens.setdefault(place, [])
                if token not in tokens:
                    tokens.append(token)

    def where(self, token: bytes) -> Position | None:
        """Where the request is that was known so; None: none is open here."""
        return self._where.get(token)

    def ended(self, place: Position) -> None:
        """The request that is here is open no more."""
        for token in self.tokens.pop(place, ()):
            del self._where[token]

    def check(self, opened: set[Position]) -> None:
        """Assert the invariants."""
        assert self.tokens.keys() <= opened  # noqa: S101
        assert len(self._where) <= TOKENS_MAX  # noqa: S101
        pairs = {token: place for place, tokens in self.tokens.items() for token in tokens}
        assert pairs == self._where  # noqa: S101


class Keeper(Protocol):
    """What keeps delayed messages."""

    def request(self, message: bytes) -> int | None:
        """Where the request with this id waits: the offset of its batch; None: it does not."""
        ...

    def withdraw(self, message: bytes) -> bool:
        """It is not to be published; False: it does not wait, or there is no room to say so."""
        ...


class DelayedRequests:
    """Those of one service that are open.

    Attributes:
        former: those that were sent once more.
        keeper: what has those that are not due; None: nothing does.
        since: what waits in batches below this offset is not published: a service of the name was
            deleted.
    """

    def __init__(self) -> None:
        self.keeper: Keeper | None = None
        self.since = 0
        self.former = FormerNames()
        self._tokens = self.former.tokens
        self._named: dict[Position, tuple[Position, bytes]] = {}
        """By where they are: as what they are known, and who has made them."""
        self._where: dict[Position, Position] = {}

    def __bool__(self) -> bool:
        return bool(self._named or self._tokens)

    def clear(self) -> None:
        """None is open."""
        self._named.clear()
        self._where.clear()
        self.former.clear()

    def opened(self, offset: int, bits: int, batch: object) -> list[Position]:
        """A batch was looked at, of which these are open; gives those that have ended before."""
        again: list[Position] = []
        data = cast("bytes", batch)  # it may be a message as it was received
        ext, link = _HEADER.unpack_from(data)
        if link and (self.former.full or not ext):
            return again
        if link and not read_sent_again(data, HEADER_BYTES, HEADER_BYTES + ext):
            return again
        try:
            header = read_header(data)
            payloads, packed = read_body(data, header)
            if packed is None:
                return again
            attributes = BatchAttributes(packed, 0, header.count)
            for index in range(header.count):
                if link and self.former.full:
                    break
                if bits & bits_at(index, 1):
                    properties, place = attributes.of(index).properties, Position(offset, index)
                    maker = header.publisher if link else maker_of(properties, header.publisher)
                    self.former.opened(place, properties, maker, payloads[index])
                    named = None if link else self._add(place, properties)
                    if named is not None and named.offset < DELAYED_FROM:
                        again.append(named)
        except (RemoteProtocolError, ValueError):
            pass  # its instance is told
        return again

    def _add(self, position: Position, properties: dict[str, str]) -> Position | None:
        named = named_by(properties)
        if named is None or named in self._where:
            return None
        delayed = named.offset >= DELAYED_FROM
        who = properties.get("roq.delayed.publisher" if delayed else AGAIN_PUBLISHER, "")
        publisher = bytes.fromhex(who)
        self._named[position] = named, publisher
        self._where[named] = position
        return named

    def waits(self, named: Position) -> RequestState | None:
        """How a request stands that is delayed and not published; None: it is none."""
        message = delayed_message(named)
        at = None if message is None or self.keeper is None else self.keeper.request(message)
        if at is None:
            return None
        return RequestState.CANCELLED if at < self.since else RequestState.DELAYED

    def withdraw(self, named: Position) -> bool:
        """It is not to be published; False: it does not wait, or there is no room to say so."""
        message = None if named in self._where else delayed_message(named)
        return message is not None and self.keeper is not None and self.keeper.withdraw(message)

    def where(self, position: Position) -> Position:
        """Where a request is that is known so."""
        return self._where.get(position, position)

    def name(self, position: Position) -> Position:
        """As what the request that is here is known."""
        found = self._named.get(position)
        return position if found is None else found[0]

    def ended(self, position: Position) -> tuple[Position, bytes] | None:
        """The request that is here is open no more: as what it was known, and who has made it;
        None: it was not delayed."""
        if self._tokens:
            self.former.ended(position)
        if not self._named:
            return None
        found = self._named.pop(position, None)
        if found is not None:
            del self._where[found[0]]
        return found

    def check(self, opened: set[Position]) -> None:
        """Assert the invariants."""
        self.former.check(opened)
        assert self._named.keys() <= opened  # noqa: S101
        assert {named: at for at, (named, _) in self._named.items()} == self._where  # noqa: S101
