"""What goes wrong while a queue works: connections break, exchanges stand still or die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roq.simulation.virtual.actors.exchange import Exchange
from roq.simulation.virtual.network import Connection
from roq.simulation.virtual.queue import VirtualQueue

NOTICED_SECONDS: Final = (0.2, 2.0)
"""A dead exchange is missed by the monitor within this."""
RESTART_SECONDS: Final = (0.1, 1.0)
"""And another one started after this."""
PAUSE_SECONDS: Final = (0.05, 1.0)
STORM_SECONDS: Final = (0.1, 1.0)
STALL_SECONDS: Final = (0.05, 1.0)


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often things go wrong, in events per second of the whole queue; 0: never."""

    cuts: float = 0.0
    """Connections of publishers and subscribers that break."""
    stalls: float = 0.0
    """Connections on which nothing arrives for a while."""
    deaf: float = 0.0
    """Clients that hear the monitor late."""
    drops: float = 0.0
    """Times in which fan-outs drop a part of their messages."""
    lags: float = 0.0
    """Times in which everything takes long."""
    pauses: float = 0.0
    """Exchanges that stand still for a while."""
    kills: float = 0.0
    """Exchanges that die and are replaced; as often as not one that a publisher has just left."""


class Faults:
    """Makes things go wrong in a cluster until it is told to stop.

    Attributes:
        happened: how often, by kind.
    """

    def __init__(self, cluster: VirtualQueue, rates: FaultRates) -> None:
        self.happened: Counter[str] = Counter()
        self._cluster = cluster
        self._world = cluster.world
        self._stopped = False
        for name, action in (
            ("cuts", self._cut), ("stalls", self._stall), ("deaf", self._deafen),
            ("drops", self._drop), ("lags", self._lag), ("pauses", self._pause),
            ("kills", self._kill),
        ):  # fmt: skip
            rate: float = getattr(rates, name)
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

    def _cut(self) -> bool:
        connections = self._connections()
        if connections:
            self._world.random.choice(connections).cut()
        return bool(connections)

    def _stall(self) -> bool:
        connections, random = self._connections(), self._world.random
        if connections:
            up, down = random.choice([(True, True), (True, False), (False, True)])
            seconds = random.uniform(*STALL_SECONDS)
            random.choice(connections).stall(seconds, up=up, down=down)
        return bool(connections)

    def _deafen(self) -> bool:
        random = self._world.random
        random.choice(self._cluster.monitor.pipes).stall(random.uniform(*STALL_SECONDS))
        return True

    def _connections(self) -> list[Connection]:
        """Of a publisher or of a subscriber, all of them."""
        cluster, random = self._cluster, self._world.random
        if random.random() < 0.5:
            return random.choice(cluster.publishers).connections
        return random.choice(cluster.subscribers).connections

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
        exchanges, random = self._cluster.exchanges, self._world.random
        if len(exchanges) < 2:
            return False
        left = [each for each in exchanges if each.key == self._cluster.monitor.left]
        self.kill(random.choice(random.choice([exchanges, left or exchanges])))
        return True
