"""What a member has asked more time for, at one exchange. Pure.

The exchange forgets it with the connection, or when its process ends; so it is told again when the
member has joined again, for as long as the time is not over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roq.client.consume.holding import Holding
from roq.protocol import consuming
from roq.protocol.consuming import EXTEND, EXTENDED_MAX, Extend, Run

Granted = tuple[int, float]
"""A request, and until when the messages are held, by the clock of the loop; 0: they are not."""


@dataclass(slots=True)
class _Extension:
    """Messages of a holding, until when they are to be held, and who waits for an answer."""

    holding: Holding
    run: Run
    until: float
    requests: list[int] = field(default_factory=list)

    def frames(self, request: int, now: float) -> list[bytes] | None:
        """What asks for it; None: nothing of it is to be done any more."""
        holding, begin = self.holding, self.run.first - self.holding.first
        parts = [
            (lease, first, length)
            for lease, first, length in holding.leases_of(self.run)
            if holding.is_open(first - holding.first, length)
        ]
        over = self.until <= now or holding.is_lost(begin, self.run.length)
        if over or not 0 < len(parts) <= EXTENDED_MAX:
            return None
        return [EXTEND, consuming.encode(Extend(request, self.until - now, parts))]


class Extensions:
    """All of one exchange."""

    def __init__(self) -> None:
        self._every: dict[tuple[Holding, Run], _Extension] = {}
        self._asked: dict[int, tuple[Holding, Run]] = {}
        """By request that nobody has answered: what it has asked for."""

    def __len__(self) -> int:
        return len(self._every)

    def add(self, holding: Holding, run: Run, until: float, request: int) -> None:
        """Hold these until then; a time that was asked for before and is later counts on."""
        made = self._every.setdefault((holding, run), _Extension(holding, run, until))
        made.until = max(made.until, until)
        made.requests.append(request)
        self._asked[request] = holding, run

    def ask(self, now: float, *, of: int | None = None) -> tuple[list[list[bytes]], list[Granted]]:
        """What to send, and what is refused without asking.

        Args:
            of: this request alone; None: everything, as the exchange has forgotten it.
        """
        frames: list[list[bytes]] = []
        refused: list[Granted] = []
        keys = list(self._every)
        if of is not None:
            keys = [self._asked[of]] if of in self._asked else []
        for key in keys:
            each = self._every[key]
            # Of several that wait for the same one answer is for all.
            asked = each.frames(each.requests[-1] if each.requests else 0, now)
            if asked is None:
                refused += self._forget(key)
            else:
                frames.append(asked)
        return frames, refused

    def answered(self, request: int, seconds: float) -> list[Granted]:
        """The exchange has said for how long."""
        key = self._asked.get(request)
        if key is None:
            return []
        each = self._every[key]
        if not seconds:
            return self._forget(key)
        granted = [(asked, each.until) for asked in each.requests]
        for asked in each.requests:
            del self._asked[asked]
        each.requests.clear()
        return granted

    def expire(self, now: float) -> list[Granted]:
        """Forget what is over; gives the requests that nobody has answered."""
        refused: list[Granted] = []
        for key, each in list(self._every.items()):
            begin = each.run.first - each.holding.first
            if each.until <= now or not each.holding.is_open(begin, each.run.length):
                refused += self._forget(key)
        return refused

    def _forget(self, key: tuple[Holding, Run]) -> list[Granted]:
        """It is not asked for any more; gives the requests that nobody has answered."""
        requests = self._every.pop(key).requests
        for request in requests:
            del self._asked[request]
        return [(request, 0.0) for request in requests]
