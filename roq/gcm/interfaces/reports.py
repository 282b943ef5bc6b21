"""What host managers report: how their hosts are, and which processes run there.

Each process is compared with the definitions: addresses that have changed are written down, and a
process that no definition wants is stopped. A log that was removed while its host was away goes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Final

from roq.errors import InvalidRequest, NotLeader
from roq.gcm.change.host import READ_SECONDS
from roq.gcm.change.operations import Operations
from roq.gcm.change.sagas import Sagas
from roq.gcm.events import Effect, LeadAnew, LogLine, Reply
from roq.gcm.repair.draining import Draining
from roq.gcm.repair.schedule import RepairSchedule
from roq.gcm.state.hosts import Host, Hosts, Schedule
from roq.gcm.state.queues import MONITOR, Queues
from roq.gcm.state.records import EVERYTHING, LOGS, RemovedLog
from roq.gcm.state.removed_logs import RemovedLogs
from roq.gcm.state.role import Role
from roq.protocol import documents
from roq.protocol.control import HostReport, HostReportAck

STRAY_SECONDS: Final = 5.0
"""A host is told at most so often to stop the same unwanted process."""
STRAY_FORGOTTEN_SECONDS: Final = 60.0
"""One of which no host has reported for so long is another one when it comes back."""
STRAYS_MAX: Final = 10_000


class Reports:
    """Takes the reports of all hosts in."""

    def __init__(
        self,
        role: Role,
        queues: Queues,
        removed: RemovedLogs,
        hosts: Hosts,
        operations: Operations,
        sagas: Sagas,
        repairs: RepairSchedule,
        draining: Draining,
    ) -> None:
        self._role = role
        self._queues = queues
        self._removed = removed
        self._hosts = hosts
        self._operations = operations
        self._sagas = sagas
        self._repairs = repairs
        self._draining = draining
        self._strays: dict[tuple[str, bytes, int], tuple[float, float]] = {}
        """Since when it is known, and when its host is told next."""

    def take(self, peer: Hashable, report: HostReport, now: float) -> list[Effect]:
        """Take one report in and answer it.

        Raises:
            InvalidRequest: a host of another cluster, or an impossible report.
            StaleEpoch: a later process manages this host.
            NoCapacity: far too many hosts.
            NotLeader: it is open who leads.
        """
        cluster = self._role.cluster
        if report.cluster and cluster and report.cluster != cluster:
            raise InvalidRequest(
                f"host {report.host} belongs to cluster {report.cluster}, this is {cluster}: it "
                "goes on by itself. Stop its host manager and start it anew to have it join this "
                "cluster, without what runs there now"
            )
        before = self._hosts.live(report.host)
        manager = "" if before is None else before.control
        host = self._hosts.report(report, now)
        effects: list[Effect] = []
        if manager not in {"", host.control}:
            # It was started anew elsewhere: what the one before was asked is answered by nobody.
            effects += self._operations.gone(host.name, manager, now)
        if before is None:
            text = f"host {host.name} is live, its manager at {report.control}"
            effects.append(LogLine("host_live", text))
            self._repairs.nudge()
        removed = self._removed.due(host.name, host.epoch, now)
        removed = [] if self._role.registry_away else removed
        effects += self._observe(host, removed, now)
        for each in removed:
            if not self._operations.busy(each.queue):
                effects += self._remove_log(each, now)
        effects += self._draining.reported(report, now)
        if report.leader_epoch > self._sagas.leader_epoch:
            effects.append(LeadAnew(report.leader_epoch))
        if self._role.caretaker:
            raise NotLeader("the registry is away and leadership open; try the other managers")
        ack = HostReportAck(
            id=report.id,
            cluster=cluster,
            monitors=self._queues.monitors_for(report.host),
            leader_epoch=self._sagas.leader_epoch,
            drains=self._hosts.schedule(host.name) is Schedule.DRAINING,
            stuck=self._draining.stuck(host.name, leaving=True) if report.leaving else "",
        )
        effects.append(Reply(peer, documents.encode(ack)))
        return effects

    def look(self, now: float) -> list[Effect]:
        """Write down which logs have gone since: those of all hosts together."""
        unsaved = self._removed.unsaved and not self._role.registry_away
        if not unsaved or self._operations.busy(LOGS):
            return []
        return self._operations.submit(LOGS, None, self._sagas.upkeep.save_removed, now)

    def clear(self) -> None:
        """This manager does not lead any more."""
        self._strays.clear()

    def _observe(self, host: Host, removed: Collection[RemovedLog], now: float) -> list[Effect]:
        effects: list[Effect] = []
        known = {(each.queue_id, each.number) for each in removed}
        for child in host.children:
            queue = self._queues.get(child.queue)
            if queue is not None:
                queue.observe(child, host.name)
            if self._role.registry_away or self._operations.busy(child.queue):
                continue
            number = MONITOR if child.role == "monitor" else child.number
            if queue is not None and queue.unsaved and queue.running:
                effects += self._note_addresses(queue.name, now)
            elif {(child.queue_id, EVERYTHING), (child.queue_id, number)} & known:
                continue  # it is stopped with its log
            elif child.state != "stopping" and self._sagas.upkeep.is_stray(
                host.name, child.queue, child.queue_id, number
            ):
                effects += self._stop_stray(host.name, child.queue, child.queue_id, number, now)
        return effects

    def _note_addresses(self, name: str, now: float) -> list[Effect]:
        return self._operations.submit(
            name, None, lambda: self._sagas.upkeep.note_addresses(name), now
        )

    def _stop_stray(
        self, host: str, queue: str, queue_id: bytes, number: int, now: float
    ) -> list[Effect]:
        since = self._due(host, queue_id, number, now)
        if since is None:
            return []
        late = now - since >= READ_SECONDS
        return self._operations.submit(
            queue, None,
            lambda: self._sagas.upkeep.stop_stray(host, queue, queue_id, number, late=late), now,
        )  # fmt: skip

    def _remove_log(self, record: RemovedLog, now: float) -> list[Effect]:
        if self._due(record.host, record.queue_id, record.number, now) is None:
            return []
        return self._operations.submit(
            record.queue, None, lambda: self._sagas.upkeep.remove_log(record), now
        )

    def _due(self, host: str, queue_id: bytes, number: int, now: float) -> float | None:
        """Since when a host is told of something that nobody wants; None: it was told just now."""
        key = (host, queue_id, number)
        since, due = self._strays.get(key, (now, now))
        if now < due:
            return None
        if now - due >= STRAY_FORGOTTEN_SECONDS:
            since = now
        if len(self._strays) >= STRAYS_MAX:
            self._strays.clear()
        self._strays[key] = since, now + STRAY_SECONDS
        return since
