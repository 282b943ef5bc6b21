"""Configuration managers that answer when a test lets them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


class PaperManagers:
    """In the place of a client's `Management`.

    Attributes:
        addresses: of the managers.
        asked: the answers that are waited for, in order.
        requests: what was asked, but for `info`.
    """

    def __init__(self) -> None:
        self.addresses = ["a", "b", "c"]
        self.asked: list[Future[Any]] = []
        self.requests: list[Any] = []

    def info(self, _seconds: float) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]

    def ask(self, request: Any, seconds: float) -> Future[Any]:
        self.requests.append(request)
        return self.info(seconds)
