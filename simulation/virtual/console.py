"""A program that asks for the same change again and again, as it does when it got no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from roq.protocol import documents
from roq.protocol.public import CreateExchange, Public

if TYPE_CHECKING:
    from roq.simulation.virtual.cluster import Cluster

AGAIN_SECONDS: Final = (0.0, 0.4, 2.0)
"""After the first time; by then another manager may lead."""

ASK_SECONDS: Final = 0.5
ASKED_MOST: Final = 20
"""Of what is to be done in the end, whatever fails meanwhile."""


class Console:
    """A management connection to the leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: dict[int, str] = {}

    def insist(self, request: CreateExchange) -> None:
        """Ask for an exchange several times, under one TransactionID."""

        def again() -> None:
            self.ask(request)

        for seconds in AGAIN_SECONDS:
            self._cluster.world.call_later(seconds, again)

    def see_to(self, request: Public) -> None:
        """Ask until it is done, as a person does who wants it."""
        done: list[bool] = []

        def answered(code: object) -> None:
            if code in {0, "0"}:
                done.append(True)

        def again() -> None:
            if not done:
                self.ask(request, answered)

        for turn in range(ASKED_MOST):
            self._cluster.world.call_later(turn * ASK_SECONDS, again)

    def ask(self, request: Public, on_code: Callable[[object], None] = lambda _code: None) -> bool:
        """Ask once, and hear the code of the answer; False if no manager leads."""
        world = self._cluster.world

        def answered(data: bytes) -> None:
            answer = documents.decode_raw(data)
            world.note("console", f"{answer}")
            on_code(answer.get("RESULT"))
            if isinstance(request, CreateExchange) and answer.get("RESULT") in {0, "0"}:
                self._created(request.TransactionID, str(answer.get("Exchange")))

        for leader in self._cluster.leaders[:1]:
            leader.ask(documents.encode(request), answered)
            return True
        return False

    def _created(self, transaction: int | str, name: str) -> None:
        known = self._made.setdefault(int(transaction), name)
        self._cluster.watch.made(int(transaction), known, name)
