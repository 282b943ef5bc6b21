"""Those who wait until children are gone."""

from __future__ import annotations

from dataclasses import dataclass

from roq.hcm.events import Peer


@dataclass(slots=True)
class Stop:
    """One request to stop something: answered when nothing of it is left."""

    peer: Peer
    request_id: int
    left: set[str]
    deadline: float


class Stops:
    """All such requests that are not answered yet."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []

    def __len__(self) -> int:
        return len(self._stops)

    def add(self, stop: Stop) -> None:
        """Wait for these children."""
        self._stops.append(stop)

    def gone(self, child: str) -> list[Stop]:
        """A child is gone; gives the requests that are complete now."""
        for stop in self._stops:
            stop.left.discard(child)
        complete = [stop for stop in self._stops if not stop.left]
        self._stops = [stop for stop in self._stops if stop.left]
        return complete

    def expire(self, now: float) -> list[Stop]:
        """Requests that took too long."""
        late = [stop for stop in self._stops if now >= stop.deadline]
        self._stops = [stop for stop in self._stops if now < stop.deadline]
        return late

    def next_deadline(self) -> float | None:
        """When the next one has taken too long."""
        return min((stop.deadline for stop in self._stops), default=None)
