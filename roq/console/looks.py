"""Questions whose answers all browsers share: each is asked once, however many look.

An answer that is older than it may be is given all the same, and asked for anew beside it, so a
page waits for the cluster only when it is the first to ask. What nobody looks at is not asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

from roq.errors import RoQError

LOOKS_MAX: Final = 512
FORGET_SECONDS: Final = 120.0
FIRST_SECONDS: Final = 4.0
"""So long a page waits for an answer that nobody has asked for before."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """What is known.

    Attributes:
        value: the last answer; None: there was none.
        at: when it came, on the clock of the looks.
        error: why there is no newer one.
    """

    value: T | None = None
    at: float = 0.0
    error: RoQError | None = None

    def get(self) -> T:
        """The last answer.

        Raises:
            RoQError: there was none, for this reason.
        """
        if self.value is None:
            assert self.error is not None  # noqa: S101 - a look has one of the two
            raise self.error
        return self.value


@dataclass(slots=True)
class _Entry:
    look: Look[Any] = field(default_factory=Look)
    asked: float = float("-inf")
    wanted: float = 0.0
    under_way: Future[None] | None = None


class Looks:
    """The shared answers. From any thread.

    Args:
        executor: asks.
        now: seconds; a monotonic clock.
    """

    def __init__(self, executor: Executor, now: Callable[[], float]) -> None:
        self._executor = executor
        self._now = now
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def look(
        self, key: Hashable, ask: Callable[[], T], period: float, wait: float = FIRST_SECONDS
    ) -> Look[T]:
        """The answer to a question.

        Args:
            key: the question.
            ask: asks it; what it raises of RoQ's errors is kept as the answer.
            period: seconds after which it is asked again.
            wait: seconds that may be waited if there is no answer at all.
        """
        with self._lock:
            entry = self._entry(key)
            if entry.under_way is None and self._now() - entry.asked >= period:
                entry.asked = self._now()
                entry.under_way = self._executor.submit(self._ask, entry, ask)
            under_way, look = entry.under_way, entry.look
        if look.value is None and under_way is not None:
            _wait(under_way, wait)
            look = entry.look
        if look.value is None and look.error is None:
            look = Look(error=RoQError(f"the cluster has not answered within {wait:g} s yet"))
        return cast("Look[T]", look)

    def forget(self) -> None:
        """Ask everything anew that is looked at: something was changed."""
        with self._lock:
            for entry in self._entries.values():
                entry.asked = float("-inf")

    def _ask(self, entry: _Entry, ask: Callable[[], object]) -> None:
        try:
            value = ask()
        except RoQError as error:
            entry.look = Look(entry.look.value, entry.look.at, error)
        else:
            entry.look = Look(value, self._now())
        finally:
            with self._lock:
                entry.under_way = None

    def _entry(self, key: Hashable) -> _Entry:
        now = self._now()
        entry = self._entries.pop(key, None) or _Entry()
        entry.wanted = now
        self._entries[key] = entry  # the one that is wanted last stands last
        oldest = next(iter(self._entries))
        gone = now - self._entries[oldest].wanted > FORGET_SECONDS
        if gone or len(self._entries) > LOOKS_MAX:
            del self._entries[oldest]
        return entry


def _wait(future: Future[None], seconds: float) -> None:
    try:
        future.result(seconds)
    except TimeoutError:
        return
