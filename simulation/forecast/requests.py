"""What a queue asks of the configuration manager, and when it is answered."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final

from roq.errors import NoCapacity
from roq.monitor.events import Ask, Effect
from roq.monitor.scaling import Scaling
from roq.monitor.statistics_events import StatisticsEvents
from roq.protocol.control import Done, Failure, GcmRequest, ScaledOut, ScaleOut
from roq.simulation.forecast.host import Hosts
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.tally import Clock

if TYPE_CHECKING:
    from roq.simulation.forecast.queue import Queue

QUEUE_ID: Final = bytes(16)
NO_ROOM: Final = 1101
FULL: Final = NoCapacity("the queue has all exchanges that it grows to by itself")


class Requests:
    """The requests of one queue: an exchange more, an exchange less.

    The manager counts what its record of the queue wants: exchanges that serve, that are being made
    and that are being healed. It makes no more than the rules allow, whatever a monitor knows.

    Args:
        queue: asks.
        hosts: where new exchanges go.
        most: exchanges that the queue may have by itself.
        parameters: how long things take.
        clock: calls when it is time.
        random: draws how long.

    Attributes:
        scaling: that of the monitor.
        begun: exchanges that are being made.
    """

    def __init__(
        self,
        queue: Queue,
        hosts: Hosts,
        most: int,
        parameters: Parameters,
        clock: Clock,
        random: Random,
    ) -> None:
        self._queue, self._hosts, self._parameters = queue, hosts, parameters
        self._most = most
        self.begun = 0
        self._clock, self._random = clock, random
        self._serials = count(1)
        self.scaling = self._new()

    def forget(self) -> None:
        """Another monitor has taken over; what was asked before is not answered to it."""
        self.scaling = self._new()

    def _new(self) -> Scaling:
        def ask(message: GcmRequest, seconds: float) -> Ask:
            return Ask(next(self._serials), message, seconds)

        name = self._queue.name
        return Scaling(name, QUEUE_ID, 1, ask, StatisticsEvents(name, QUEUE_ID))

    def ask(self, effects: list[Effect], now: float) -> None:
        """What is asked of the configuration manager is answered after a while."""
        parameters, scaling = self._parameters, self.scaling
        for effect in effects:
            if not isinstance(effect, Ask):
                continue
            serial = effect.serial
            if not isinstance(effect.message, ScaleOut):
                self._clock.call(
                    now + parameters.stop_seconds,
                    lambda then, serial=serial: self._shrunk(scaling, serial, then),  # type: ignore[misc]
                )
            elif self._queue.wanted >= self._most:
                self._clock.call(
                    now,
                    lambda then, serial=serial: self._refused(scaling, serial, FULL, then),  # type: ignore[misc]
                )
            else:
                self.begun += 1
                takes = self._random.uniform(parameters.serve_least, parameters.serve_most)
                self._clock.call(
                    now + takes,
                    lambda then, serial=serial: self._grown(scaling, serial, now, then),  # type: ignore[misc]
                )

    def _refused(self, scaling: Scaling, serial: int, problem: NoCapacity, now: float) -> None:
        self._queue.tally.scale_failed += 1
        self._queue.tally.note(now, "out failed", 0)
        answer = Failure(RESULT=NO_ROOM, COMMENT=str(problem), CODE=problem.code)
        scaling.answered(serial, answer, self._serves, now)
        self._queue.wake(now)

    def _grown(self, scaling: Scaling, serial: int, asked: float, now: float) -> None:
        self.begun -= 1
        try:
            host = self._hosts.place_exchange(self._queue.beside(), (), now)
        except NoCapacity as error:
            self._refused(scaling, serial, error, now)
            return
        self._queue.pass_until(now)
        exchange = self._queue.population.add(host, now, scaled=True)
        scaling.answered(serial, ScaledOut(number=exchange.number, host=host), self._serves, now)
        self._queue.tally.scale_outs += 1
        self._queue.tally.serve_seconds.append(now - asked)
        self._queue.tally.note(now, "out", exchange.number)
        self._queue.serve(exchange, now)

    def _serves(self, number: int) -> bool:
        return number in self._queue.population.exchanges

    def _shrunk(self, scaling: Scaling, serial: int, now: float) -> None:
        self._queue.pass_until(now)
        number = scaling.shrinking()
        scaling.answered(serial, Done(), self._serves, now)
        exchange = self._queue.population.exchanges.get(number)
        if exchange is not None and exchange.died is None:
            self._hosts.free_exchange(exchange.host, now)
            self._queue.account.gone(exchange)
            self._queue.population.remove(number)
            self._queue.tally.scale_ins += 1
            self._queue.tally.note(now, "in", number)
        self._queue.changed(now)
