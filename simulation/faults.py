"""What goes wrong while a queue works: connections break, exchanges stand still or die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulation.actors.exchange import Exchange
from simulation.cluster import Cluster

NOTICED_SECONDS: Final = (0.2, 2.0)
"""A dead exchange is missed by the monitor within this."""
RESTART_SECONDS: Final = (0.1, 1.0)
"""And another one started after this."""
PAUSE_SECONDS: Final = (0.05, 1.0)
STORM_SECONDS: Final = (0.1, 1.0)


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often things go wrong, in events per second of the whole queue; 0: never."""

    publisher_cuts: float = 0.0
    subscriber_cuts: float = 0.0
    drops: float = 0.0
    """Times in which fan-outs drop a part of their messages."""
    lags: float = 0.0
    """Times in which everything takes long."""
    pauses: float = 0.0
    kills: float = 0.0


class Faults:
    """Makes things go wrong in a cluster until it is told to stop.

    Attributes:
        happened: how often, by kind.
    """

    def __init__(self, cluster: Cluster, rates: FaultRates) -> None:
        self.happened: Counter[str] = Counter()
        self._cluster = cluster
        self._world = cluster.world
        self._stopped = False
        for name, rate, action in (
            ("cuts of publishers", rates.publisher_cuts, self._cut_publisher),
            ("cuts of subscribers", rates.subscriber_cuts, self._cut_subscriber),
            ("drops", rates.drops, self._drop),
            ("lags", rates.lags, self._lag),
            ("pauses", rates.pauses, self._pause),
            ("kills", rates.kills, self._kill),
        ):
            if rate:
                self._plan(name, rate, action)

    def stop(self) -> None:
        """Let the network be good from now on; what is broken is mended in its time."""
        self._stopped = True
        self._clear_up()

    def kill(self, exchange: Exchange) -> None:
        """Kill this exchange, and have another one in its place after a while."""
        cluster, random = self._cluster, self._world.random
        cluster.kill(exchange)

        def replace() -> None:
            cluster.add_exchange(exchange.info.number)

        def notice() -> None:
            cluster.monitor.remove(exchange.key)
            self._world.call_later(random.uniform(*RESTART_SECONDS), replace)

        self._world.call_later(random.uniform(*NOTICED_SECONDS), notice)

    def _plan(self, name: str, rate: float, action: Callable[[], bool]) -> None:
        def happen() -> None:
            if not self._stopped:
                self.happened[name] += action()
                self._plan(name, rate, action)

        self._world.call_later(self._world.random.expovariate(rate), happen)

    # --- kinds ------------------------------------------------------------------------------------

    def _cut_publisher(self) -> bool:
        self._world.random.choice(self._cluster.publishers).cut()
        return True

    def _cut_subscriber(self) -> bool:
        self._world.random.choice(self._cluster.subscribers).cut()
        return True

    def _drop(self) -> bool:
        random = self._world.random
        self._cluster.network.weather.drop = random.uniform(0.05, 0.5)
        self._world.call_later(random.uniform(*STORM_SECONDS), self._clear_up)
        return True

    def _lag(self) -> bool:
        random = self._world.random
        self._cluster.network.weather.delay_seconds = (0.001, random.uniform(0.01, 0.08))
        self._world.call_later(random.uniform(*STORM_SECONDS), self._clear_up)
        return True

    def _clear_up(self) -> None:
        weather = self._cluster.network.weather
        weather.drop, weather.delay_seconds = 0.0, (0.0002, 0.002)

    def _pause(self) -> bool:
        random = self._world.random
        random.choice(self._cluster.exchanges).pause(random.uniform(*PAUSE_SECONDS))
        return True

    def _kill(self) -> bool:
        exchanges = self._cluster.exchanges
        if len(exchanges) < 2:
            return False
        self.kill(self._world.random.choice(exchanges))
        return True
