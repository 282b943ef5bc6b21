"""Exchanges of one queue that die: who notices when, and where they are made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roq.errors import NoCapacity
from roq.simulation.forecast.exchange import Exchange
from roq.simulation.forecast.host import Hosts
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.tally import Clock
from roq.timing import EXCHANGE_LOST_SECONDS

if TYPE_CHECKING:
    from roq.simulation.forecast.queue import Queue

HEAL_PAUSE_SECONDS: Final = 1.0
"""Doubled with each further attempt to find a host, as the configuration manager does."""
HEAL_PAUSE_MAX_SECONDS: Final = 30.0


class Losses:
    """What follows from the death of an exchange.

        publishers ask for another one      after `reconnect_seconds`
        the monitor knows that it is lost   after 3 s
        it serves again on another host     after `heal_seconds`, if one has room

    Args:
        queue: whose exchanges.
        hosts: where they run.
        parameters: how long things take.
        clock: calls when it is time.

    Attributes:
        healing: numbers of those that are to be made anew.
    """

    def __init__(self, queue: Queue, hosts: Hosts, parameters: Parameters, clock: Clock) -> None:
        self.healing: set[int] = set()
        self._queue, self._hosts = queue, hosts
        self._parameters, self._clock = parameters, clock

    def lose(self, exchange: Exchange, now: float) -> None:
        """An exchange dies: its publishers go elsewhere, and it is made anew on another host."""
        self._queue.pass_until(now)
        self._queue.tally.deaths += 1
        self._queue.tally.note(now, "death", exchange.number)
        loads = self._queue.viewer.loads(self._queue.population.exchanges, now)
        exchange.frozen = (loads[exchange.number][0], loads[exchange.number][1])
        exchange.died = now
        exchange.version += 1
        self._hosts.free_exchange(exchange.host, now)
        self._queue.account.gone(exchange)
        for publisher in sorted(exchange.members):
            flight = self._queue.flights.find(publisher)
            self._queue.population.leave(publisher, flight)
            if flight is not None:
                self._queue.flights.end(flight)
            self._queue.viewer.young.pop(publisher, None)
            self._queue.account.unserved += 1
        parameters, number = self._parameters, exchange.number
        self._clock.call(now + parameters.reconnect_seconds, self._queue.reconnect)
        self._clock.call(now + EXCHANGE_LOST_SECONDS, lambda then: self._miss(exchange, then))
        if not exchange.leaving:
            self.healing.add(number)
            self._clock.call(
                now + parameters.heal_seconds,
                lambda then: self._heal(number, exchange.scaled, HEAL_PAUSE_SECONDS, then),
            )
        self._queue.changed(now)

    def _miss(self, exchange: Exchange, now: float) -> None:
        """The monitor knows now that it is lost."""
        self._queue.pass_until(now)
        if self._queue.population.exchanges.get(exchange.number) is exchange:
            self._queue.population.remove(exchange.number)
        if exchange.leaving:
            self._queue.requests.scaling.removed_by_others(exchange.number, now)
        self._queue.changed(now)

    def _heal(self, number: int, scaled: bool, pause: float, now: float) -> None:
        """The configuration manager starts it anew on another host."""
        try:
            host = self._hosts.place_exchange(self._queue.beside(), (), now)
        except NoCapacity:
            longer = min(2 * pause, HEAL_PAUSE_MAX_SECONDS)
            self._clock.call(now + pause, lambda then: self._heal(number, scaled, longer, then))
            return
        self.healing.discard(number)
        self._queue.pass_until(now)
        self._queue.tally.note(now, "serves", number)
        self._queue.serve(self._queue.population.add(host, now, scaled=scaled, number=number), now)
