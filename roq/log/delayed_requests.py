"""Requests that were delayed: by which name their requesters know them, and where they are. Pure.

A delayed request waits as a delayed message (`roq.exchange.later`), and is published when it is
due. So it stands in the log where nobody could know before, and it is known by the id of that
message instead: as a position that no log reaches.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from roq.errors import RemoteProtocolError
from roq.log.leases import bits_at
from roq.protocol.attributes import BatchAttributes
from roq.protocol.batch import read_body, read_header
from roq.protocol.requesting import Position, delayed_position

_LINK_NUMBER: Final = slice(40, 48)
"""Of the header of a batch; zeros: the exchange has published it itself."""


class Keeper(Protocol):
    """What keeps delayed messages."""

    def waits(self, message: bytes) -> bool:
        """Whether the message with this id waits here."""
        ...

    def withdraw(self, message: bytes) -> bool:
        """It is not to be published; False: it does not wait, or there is no room to say so."""
        ...


class DelayedRequests:
    """Those of one service that are open.

    Attributes:
        keeper: what has those that are not due; None: nothing does.
    """

    def __init__(self) -> None:
        self.keeper: Keeper | None = None
        self._named: dict[Position, tuple[Position, bytes]] = {}
        """By where they are: as what they are known, and who has made them."""
        self._where: dict[Position, Position] = {}

    def clear(self) -> None:
        """None is open."""
        self._named.clear()
        self._where.clear()

    def opened(self, offset: int, bits: int, batch: object) -> None:
        """A batch was looked at, of which these are open."""
        data = cast("bytes", batch)
        if any(memoryview(data)[_LINK_NUMBER]):  # it may be a message as it was received
            return
        try:
            header = read_header(data)
            _, packed = read_body(data, header)
            if packed is None:
                return
            attributes = BatchAttributes(packed, 0, header.count)
            for index in range(header.count):
                if bits & bits_at(index, 1):
                    self._add(Position(offset, index), attributes.of(index).properties)
        except (RemoteProtocolError, ValueError):
            return  # its instance is told

    def _add(self, position: Position, properties: dict[str, str]) -> None:
        named = delayed_position(properties.get("roq.delayed.id", ""))
        if named is not None and named not in self._where:
            publisher = bytes.fromhex(properties.get("roq.delayed.publisher", ""))
            self._named[position] = named, publisher
            self._where[named] = position

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
        if not self._named:
            return None
        found = self._named.pop(position, None)
        if found is not None:
            del self._where[found[0]]
        return found

    def check(self, opened: set[Position]) -> None:
        """Assert the invariants."""
        assert self._named.keys() <= opened  # noqa: S101
        assert {named: at for at, (named, _) in self._named.items()} == self._where  # noqa: S101
