"""Moves that are under way in one queue, and publishers that rest after one that failed."""

from __future__ import annotations

from dataclasses import dataclass

from roq.monitor.moves import FAILED_REST_SECONDS, REST_MAX_SECONDS, UNDER_WAY_MAX
from roq.simulation.forecast.exchange import Place


@dataclass(frozen=True, slots=True)
class Flight:
    """One publisher on its way."""

    publisher: int
    sources: Place
    targets: Place
    begun: float
    serial: int


class Flights:
    """All of a queue."""

    def __init__(self) -> None:
        self._under_way: dict[int, Flight] = {}
        self._rests: dict[int, tuple[float, int]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def room(self) -> int:
        """How many more may be begun."""
        return UNDER_WAY_MAX - len(self._under_way)

    def busy(self, now: float) -> set[int]:
        """Who is to be left alone."""
        resting = {each for each, (until, _) in self._rests.items() if now < until}
        return resting | self._under_way.keys()

    def begin(self, publisher: int, sources: Place, targets: Place, now: float) -> Flight | None:
        """Send a publisher; None if it is on its way, or too many are."""
        if publisher in self._under_way or self.room <= 0:
            return None
        self._serial += 1
        flight = Flight(publisher, sources, targets, now, self._serial)
        self._under_way[publisher] = flight
        return flight

    def find(self, publisher: int) -> Flight | None:
        """The move of this publisher, if it is on its way."""
        return self._under_way.get(publisher)

    def end(self, flight: Flight) -> bool:
        """It has come to its end; whether it was still under way."""
        if self._under_way.get(flight.publisher) is not flight:
            return False
        del self._under_way[flight.publisher]
        return True

    def arrived(self, publisher: int) -> None:
        """All is well again."""
        self._rests.pop(publisher, None)

    def failed(self, publisher: int, now: float) -> float:
        """It rests, each time longer; gives when it may be moved again."""
        failures = self._rests.get(publisher, (0.0, 0))[1] + 1
        rest = min(FAILED_REST_SECONDS * 2.0 ** min(failures - 1, 10), REST_MAX_SECONDS)
        self._rests[publisher] = (now + rest, failures)
        return now + rest
