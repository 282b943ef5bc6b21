"""Sends publishers from exchange to exchange, at random."""

from __future__ import annotations

from roq.simulation.virtual.queue import VirtualQueue


class Dispatcher:
    """Relocates publishers until it is told to stop.

    Args:
        rate: relocations per second, of all publishers together.
        stripes: the part of them that go to several exchanges.
    """

    def __init__(self, cluster: VirtualQueue, rate: float, stripes: float = 0.0) -> None:
        self._cluster = cluster
        self._random = cluster.world.random
        self._rate = rate
        self._stripes = stripes
        self._stopped = False
        self._plan()

    def stop(self) -> None:
        """Leave all publishers where they are."""
        self._stopped = True

    def _plan(self) -> None:
        wait = self._random.expovariate(self._rate)
        self._cluster.world.call_later(wait, self._relocate)

    def _relocate(self) -> None:
        if self._stopped:
            return
        monitor, random = self._cluster.monitor, self._random
        publisher = random.choice(self._cluster.publishers)
        serving = list(monitor.serving.values())
        if serving and not monitor.is_moving(publisher.id):
            wanted = random.randint(2, 4) if random.random() < self._stripes else 1
            targets = random.sample(serving, min(wanted, len(serving)))
            if tuple(target.key for target in targets) != monitor.where(publisher.id):
                monitor.relocate(publisher.id, targets)
        self._plan()
