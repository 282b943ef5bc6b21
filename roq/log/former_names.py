"""Requests that were sent once more and are open: by which tokens they were known before. Pure."""

from __future__ import annotations

from typing import Final

from roq.protocol.homeless import before_of, token_of
from roq.protocol.requesting import Position

TOKENS_MAX: Final = 100_000
"""Of one service at one exchange; of what is more, no answer is taken that was given elsewhere."""


class FormerNames:
    """Those of one service.

    Attributes:
        tokens: by where a request is (`roq.protocol.homeless`).
    """

    def __init__(self) -> None:
        self.tokens: dict[Position, list[bytes]] = {}
        self._where: dict[bytes, Position] = {}

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
        for name in before_of(properties):
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
