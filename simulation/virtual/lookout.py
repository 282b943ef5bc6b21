"""Looks twice a second: who gets nothing must say why; what hangs or died must be replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roq.client.session.status import Status
from roq.simulation.virtual.clients import PublisherShell, SubscriberShell
from roq.simulation.virtual.hosts import Host

if TYPE_CHECKING:
    from roq.simulation.virtual.cluster import Cluster

LOOK_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 4.5
"""A client that does not get on for so long tells a reason. The watchdog's two seconds
may begin twice: with an exchange that goes, and with the one that takes its place,"""
AGAIN_SECONDS: Final = 2.0
"""and once more with each further one that goes meanwhile."""
HANGS_SECONDS: Final = 2.5
"""A child that hangs is ended within this: a second of silence, and what it takes to notice it."""
DEAD_SECONDS: Final = 3.5
"""One that died is started again within this: two seconds at most before the fourth time."""
HEARD_SECONDS: Final = 2.5
"""A host manager and its child have heard of each other after so long, whatever the network does.
"""


class Lookout:
    """See the module. Looks to the end of the trial."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since: dict[tuple[object, ...], float] = {}
        self._seen: set[tuple[object, ...]] = set()
        self._told: set[tuple[object, ...]] = set()
        self._heard: set[tuple[object, ...]] = set()
        """Children of which their host manager has heard."""
        self._look()

    def _look(self) -> None:
        cluster = self._cluster
        self._seen = set()
        for publisher in cluster.publishers:
            if publisher.process.alive and not publisher.process.paused:
                self._look_at(publisher, publisher.stands_still)
        for subscriber in cluster.subscribers:
            if subscriber.process.alive and not subscriber.process.paused:
                self._look_at(subscriber, subscriber.stands_still)
        for host in cluster.hosts:
            self._look_at_children(host)
        self._since = {key: at for key, at in self._since.items() if key in self._seen}
        cluster.world.call_later(LOOK_SECONDS, self._look)

    def _lasts(self, key: tuple[object, ...]) -> float:
        """For how long this has been so at each look."""
        self._seen.add(key)
        return self._cluster.world.now - self._since.setdefault(key, self._cluster.world.now)

    # --- no process goes quiet --------------------------------------------------------------------

    def _look_at(self, client: PublisherShell | SubscriberShell, still: str) -> None:
        if not still:
            return
        if self._cluster.members and self._cluster.shape.restless:
            return  # who waits for a group, and is moved meanwhile, is told why anew at each place
        watch, name = self._cluster.watch, client.process.name
        watch.checked["a client that gets nothing says why"] += 1
        standing: Status = client.standing
        if standing.reason:
            return  # how long it has been silent counts from the last reason that it told
        lasts = self._lasts((client, still))
        ended = sum(at >= self._cluster.world.now - lasts for at in watch.exchanges_ended)
        patience = QUIET_SECONDS + AGAIN_SECONDS * max(0, ended - 1)
        if lasts >= patience and (client, still) not in self._told:
            self._told.add((client, still))
            watch.found(f"{name} {still}, and says that it is {standing.state}")

    # --- children ---------------------------------------------------------------------------------

    def _look_at_children(self, host: Host) -> None:
        manager = host.manager
        if manager is None or not host.managed or manager.process.paused:
            return
        wanted = self._wanted_at(host.machine)
        for name in wanted & host.running.keys():
            child = host.running[name]
            runs = child.shell is not None and not child.process.paused
            if runs and self._lasts((manager, child.pid)) >= HEARD_SECONDS:
                self._heard.add((manager, name))
            if child.process.paused and (manager, name) in self._heard:
                key = (manager, name, "hangs")
                self._judge(key, HANGS_SECONDS, f"{name} on {host.machine} hangs and is not ended")
        for name in wanted - host.running.keys():
            if (manager, name) in self._heard:
                key = (manager, name, "dead")
                text = f"{name} on {host.machine} died and is not started again"
                self._judge(key, DEAD_SECONDS, text)

    def _judge(self, key: tuple[object, ...], seconds: float, text: str) -> None:
        watch = self._cluster.watch
        watch.checked["what hangs or died is replaced in time"] += 1
        if self._lasts(key) >= seconds and key not in self._told:
            self._told.add(key)
            watch.found(text)

    def _wanted_at(self, machine: str) -> set[str]:
        """The children that belong there, by the definitions."""
        found: set[str] = set()
        for leader in self._cluster.leaders[:1]:
            for queue in leader.machine.queues:
                record = queue.record
                if not queue.running:
                    continue
                found |= {f"{record.name}.monitor"} if record.host == machine else set()
                found |= {
                    f"{record.name}.x{each.number}"
                    for each in record.exchanges
                    if each.host == machine and each.state == "created"
                }
        return found
