"""The global configuration manager, decided: who gets which answer, what is started where.

One manager leads and answers; the others name it. The leader's state is the registry's, read once
when it begins to lead, plus what host managers report. While the registry is out of reach
everything that only reads goes on from memory and changes are refused. A manager that loses
leadership ends all operations at once with the address of the new leader; definitions tell that one
where each stood.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from roq.errors import InvalidRequest, NotLeader, QueueStopped, RegistryAway, RequestError
from roq.gcm import views
from roq.gcm.events import (
    Answered,
    Broadcast,
    ClientFrame,
    ClusterNamed,
    CommitFailed,
    Committed,
    Effect,
    Elected,
    Event,
    Following,
    HostsPresent,
    ListenerGone,
    ManagementFrame,
    ManagersChanged,
    Note,
    RegistryBack,
    RegistryLost,
    Reply,
    Subscribed,
    Unanswered,
)
from roq.gcm.hosts import Host, Hosts
from roq.gcm.operations import Emit, Operations, Saga
from roq.gcm.queues import MONITOR, Queues
from roq.gcm.records import Manager
from roq.gcm.rules import Rules
from roq.gcm.sagas import Sagas
from roq.machine import Tick
from roq.protocol import broadcast, documents, public
from roq.protocol.control import (
    ClusterInfo,
    ClusterInfoRequest,
    HostReport,
    HostReportAck,
    Located,
    LocateRequest,
)
from roq.protocol.documents import RawDocument
from roq.protocol.public import Bad, LocateQueue, ManagementRequest
from roq.protocol.public_answers import NO, YES, done, failed, refusal

HOSTS_SECONDS: Final = 0.5
"""How often silence of hosts is looked for."""
STRAY_SECONDS: Final = 5.0
"""A host is told at most so often to stop the same unwanted process."""
STRAYS_MAX: Final = 10_000
_VERSION_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What a manager is told at its start."""

    manager: Manager
    period: float = 5.0
    """Seconds between broadcasts."""
    cloud: RawDocument = field(default_factory=dict)
    """The answer to 2009, without secrets."""


class GcmMachine:
    """One global configuration manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._me = settings.manager
        self._cluster = ""
        self._leads = False
        self._caretaker = False
        self._leader: Manager | None = None
        self._managers: tuple[Manager, ...] = ()
        self._registry_away = False
        self.queues = Queues()
        self.hosts = Hosts()
        self.rules = Rules(self.queues)
        self.operations = Operations()
        self._sagas = Sagas(self.queues, self.hosts)
        self._strays: dict[tuple[str, bytes, int], float] = {}
        self._version = 0
        self._told: tuple[object, object] = ((), ())
        self._changed = False
        self._next_broadcast: float | None = None
        self._next_look: float | None = None

    @property
    def leads(self) -> bool:
        """Whether this manager leads."""
        return self._leads

    # --- the contract of a machine ----------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and give the effects to perform, in order."""
        effects = self._dispatch(event, now)
        if self._changed and self._leads:
            effects += self._announce_change(now)
        return effects

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted."""
        deadlines = (self._next_broadcast, self._next_look, self.operations.next_deadline())
        return min((each for each in deadlines if each is not None), default=None)

    def check(self) -> None:
        """Assert the invariants."""
        self.queues.check()
        self.hosts.check()
        self.operations.check()
        busy = self.operations.queues
        assert all(name in busy for name, _ in self.queues.reserved)  # noqa: S101
        assert self._leads or not busy  # noqa: S101 - check() is for tests and simulation

    def _dispatch(self, event: Event, now: float) -> list[Effect]:  # noqa: C901, PLR0911, PLR0912
        match event:
            case ClientFrame():
                return self._client_frame(event, now)
            case ManagementFrame():
                return self._management_frame(event, now)
            case Committed():
                return self._completed(self.operations.completed(event.token, None, now))
            case CommitFailed():
                return self._completed(self.operations.commit_failed(event.token, event.error, now))
            case Answered():
                return self._completed(self.operations.completed(event.token, event.answer, now))
            case Unanswered():
                return self._completed(self.operations.completed(event.token, event.reason, now))
            case Tick():
                return self._tick(now)
            case Elected():
                return self._elected(event, now)
            case Following():
                return self._following(event)
            case RegistryLost():
                return self._registry_lost(event)
            case RegistryBack():
                return self._registry_back(event)
            case ClusterNamed():
                self._cluster = event.cluster
                return []
            case ManagersChanged():
                self._managers = event.managers
                return []
            case HostsPresent():
                self.hosts.present(event.hosts)
                return []
            case Subscribed():
                return self._broadcast(now) if self._leads else []
            case ListenerGone():
                self.rules.listener_gone(event.address)
                return []

    # --- leadership and registry ------------------------------------------------------------------

    def _elected(self, event: Elected, now: float) -> list[Effect]:
        # What ran under an earlier epoch must not write under this one.
        effects = self.operations.abort(self._not_leader("management"))
        self._leads = True
        self._caretaker = False
        self._leader = self._me
        self._registry_away = False
        self._sagas.leader_epoch = event.epoch
        self._version = event.epoch << _VERSION_BITS
        self.queues.load(event.snapshot)
        self.rules.load(event.snapshot)
        self._next_look = now + HOSTS_SECONDS
        self._changed = True
        return effects

    def _following(self, event: Following) -> list[Effect]:
        self._leader = event.leader
        return self._resign() if self._leads else []

    def _registry_lost(self, event: RegistryLost) -> list[Effect]:
        self._registry_away = True
        if not event.session_ended or not self._leads:
            return []
        # Somebody else may lead by now, so nothing is changed any more; but as nobody can tell,
        # what is known goes on being told.
        self._caretaker = True
        return self.operations.abort(RegistryAway("registry away"))

    def _resign(self) -> list[Effect]:
        self._leads = self._caretaker = False
        effects = self.operations.abort(self._not_leader("management"))
        effects += self.rules.clear()
        self.queues.clear()
        self.hosts.clear()
        self._strays.clear()
        self._told = ((), ())
        self._next_broadcast = self._next_look = None
        return effects

    def _registry_back(self, event: RegistryBack) -> list[Effect]:
        self._registry_away = False
        if self._leads and event.snapshot is not None:
            # What was under way when the connection broke may or may not have been done.
            self.queues.load(event.snapshot, keep=self.operations.queues)
            self.rules.load(event.snapshot)
            self._changed = True
        return []

    def _not_leader(self, interface: str) -> NotLeader:
        leader = self._leader
        if leader is None or leader.id == self._me.id:
            return NotLeader("no configuration manager leads at the moment; try again in a second")
        endpoint = leader.management if interface == "management" else leader.client
        return NotLeader(f"{self._me.client} does not lead; ask {endpoint}", endpoint)

    # --- client port ------------------------------------------------------------------------------

    def _client_frame(self, event: ClientFrame, now: float) -> list[Effect]:
        request = public.parse_client(event.data)
        if isinstance(request, Bad):
            return [Reply(event.peer, request.answer()), _malformed(request)]
        try:
            if isinstance(request, ClusterInfoRequest):
                return [Reply(event.peer, documents.encode(self._cluster_info(request)))]
            if not self._leads:
                raise self._not_leader("client")
            match request:
                case LocateQueue():
                    return [Reply(event.peer, documents.encode_raw(self._locate(request.QName)))]
                case LocateRequest():
                    return [Reply(event.peer, documents.encode(self._located(request)))]
                case HostReport():
                    return self._host_report(event.peer, request, now)
        except RequestError as error:
            request_id = 0 if isinstance(request, LocateQueue) else request.id
            return [Reply(event.peer, refusal(error, request_id))]

    def _cluster_info(self, request: ClusterInfoRequest) -> ClusterInfo:
        managers = sorted(
            {manager.client for manager in self._managers} | {self._me.client},
            key=lambda client: (self._leader is None or client != self._leader.client, client),
        )
        return ClusterInfo(
            id=request.id,
            cluster=self._cluster,
            leader=self._leads and not self._caretaker,
            client=self._me.client,
            management=self._me.management,
            broadcast=self._me.broadcast,
            managers=managers,
        )

    def _locate(self, name: str) -> RawDocument:
        queue = self.queues.demand_running(name)
        return {"Monitor_host": queue.monitor, "Stat_Monitor_host": queue.statistics, "RESULT": 0}

    def _located(self, request: LocateRequest) -> Located:
        queue = self.queues.demand_running(request.QName)
        if not queue.monitor:
            raise QueueStopped(f"the monitor of queue {queue.name!r} is not known yet; try again")
        return Located(
            id=request.id,
            QName=queue.name,
            queue_id=queue.record.queue_id,
            monitor=queue.monitor,
            statistics=queue.statistics,
            limits=queue.record.limits,
        )

    # --- hosts ------------------------------------------------------------------------------------

    def _host_report(self, peer: Hashable, report: HostReport, now: float) -> list[Effect]:
        if report.cluster and self._cluster and report.cluster != self._cluster:
            raise InvalidRequest(
                f"host {report.host} belongs to cluster {report.cluster}, this is {self._cluster}"
            )
        before = self.hosts.live(report.host)
        if self.hosts.report(report, now):
            self._changed = True
        effects: list[Effect] = []
        host = self.hosts.get(report.host)
        if host is not None:
            if before is None:
                text = f"host {host.name} is live, its manager at {report.control}"
                effects.append(Note("host_live", text))
            effects += self._observe(host, now)
        if self._caretaker:
            raise NotLeader("the registry is away and leadership open; try the other managers")
        ack = HostReportAck(
            id=report.id, cluster=self._cluster, monitors=self.queues.monitors_for(report.host)
        )
        effects.append(Reply(peer, documents.encode(ack)))
        return effects

    def _observe(self, host: Host, now: float) -> list[Effect]:
        """Compare the processes of a host with what the definitions say."""
        effects: list[Effect] = []
        for child in host.children:
            queue = self.queues.get(child.queue)
            if queue is not None:
                queue.observe(child)
            if self._registry_away or self.operations.busy(child.queue):
                continue
            number = MONITOR if child.role == "monitor" else child.number
            if queue is not None and queue.unsaved and queue.running:
                effects += self._note_addresses(queue.name, now)
            elif child.state != "stopping" and self._sagas.is_stray(
                child.queue, child.queue_id, number
            ):
                effects += self._stop_stray(host.name, child.queue, child.queue_id, number, now)
        return effects

    def _note_addresses(self, name: str, now: float) -> list[Effect]:
        return self._submit(name, None, lambda: self._sagas.note_addresses(name), now)

    def _stop_stray(
        self, host: str, queue: str, queue_id: bytes, number: int, now: float
    ) -> list[Effect]:
        key = (host, queue_id, number)
        if now < self._strays.get(key, now):
            return []
        if len(self._strays) >= STRAYS_MAX:
            self._strays.clear()
        self._strays[key] = now + STRAY_SECONDS
        return self._submit(
            queue, None, lambda: self._sagas.stop_stray(host, queue, queue_id, number), now
        )

    # --- management port --------------------------------------------------------------------------

    def _management_frame(self, event: ManagementFrame, now: float) -> list[Effect]:
        request = public.parse_management(event.data)
        if isinstance(request, Bad):
            return [Reply(event.peer, request.answer()), _malformed(request)]
        try:
            if not self._leads:
                raise self._not_leader("management")
            change = self._change(request, event)
            if change is None:
                answer, effects = self._read(request)
                return [Reply(event.peer, documents.encode_raw(answer)), *effects]
            if self._registry_away:
                raise RegistryAway("registry away")
            name, make = change
            number = request.__struct_config__.tag
            return self._submit(name, event.peer, lambda: _noted(name, number, make()), now)
        except RequestError as error:
            return [Reply(event.peer, documents.encode_raw(failed(error)))]

    def _read(  # noqa: PLR0911 - one return per command
        self, request: ManagementRequest
    ) -> tuple[RawDocument, list[Effect]]:
        """Answer what needs no registry."""
        match request:
            case public.GetRules():
                return self.rules.answer(request.QName), []
            case public.RegisterListener():
                return done(), self.rules.listen(request.QName, request.Address)
            case public.CloudProperties():
                return {**done(), **self._settings.cloud}, []
            case public.QueueExistsRequest():
                if self.queues.get(request.QName) is None:
                    return {**failed(RequestError(NO)), "CODE": "queue_not_found"}, []
                return done(YES), []
            case public.ListQueues():
                return views.list_queues(self.queues), []
            case public.ListHosts():
                return views.list_hosts(self.hosts, self.queues), []
            case public.ListExchanges():
                return views.list_exchanges(self.queues.demand(request.QName), self.hosts), []
            case public.DescribeQueue():
                queue = self.queues.demand(request.QName)
                rules = self.rules.fields(queue.name)
                return views.describe_queue(queue, self.hosts, rules), []
            case _:
                raise InvalidRequest(public.INVALID_COMMAND)

    def _change(  # noqa: PLR0911 - one return per command
        self, request: ManagementRequest, event: ManagementFrame
    ) -> tuple[str, Callable[[], Saga]] | None:
        """The queue and the saga of a request that changes something."""
        sagas = self._sagas
        match request:
            case public.CreateQueueOn() | public.CreateQueue():
                return request.QName, lambda: sagas.create(
                    request.QName,
                    request.Host if isinstance(request, public.CreateQueueOn) else "",
                    queue_id=event.unique,
                    wall=event.wall,
                    limits=public.limits_of(request.Limits),
                    durability=request.Durability,
                )
            case public.CreateExchange():
                return request.QName, lambda: sagas.create_exchange(request)
            case public.StartQueue():
                return request.QName, lambda: sagas.start(request.QName)
            case public.StopQueue():
                return request.QName, lambda: sagas.stop(request.QName)
            case public.RemoveQueue():
                return request.QName, lambda: self._remove(request.QName)
            case public.SetRules():
                return request.QName, lambda: self.rules.set(request)
            case _:
                return None

    def _remove(self, name: str) -> Saga:
        answer = yield from self._sagas.remove(name)
        yield Emit(tuple(self.rules.forget(name)))
        return answer

    def _submit(
        self, name: str, peer: Hashable, make: Callable[[], Saga], now: float
    ) -> list[Effect]:
        return self._completed(self.operations.submit(name, peer, make, now))

    def _completed(self, effects: list[Effect]) -> list[Effect]:
        self._changed = True  # any step of an operation may have changed what is broadcast
        return effects

    # --- time and broadcast -----------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        effects = self.operations.expire(now)
        if self._next_look is not None and now >= self._next_look:
            self._next_look = now + HOSTS_SECONDS
            for host in self.hosts.expire(now):
                self._changed = True
                effects.append(Note(f"host_{host.state}", f"host {host.name} is {host.state}"))
        if self._next_broadcast is not None and now >= self._next_broadcast:
            effects += self._broadcast(now)
        if effects:
            self._changed = True
        return effects

    def _announce_change(self, now: float) -> list[Effect]:
        self._changed = False
        told = (views.broadcast_queues(self.queues), views.broadcast_hosts(self.hosts))
        if told == self._told and self._next_broadcast is not None:
            return []
        self._told = told
        self._version += 1
        return self._broadcast(now)

    def _broadcast(self, now: float) -> list[Effect]:
        self._next_broadcast = now + self._settings.period
        configuration = broadcast.Configuration(
            version=self._version,
            queues=views.broadcast_queues(self.queues),
            hosts=views.broadcast_hosts(self.hosts),
        )
        return [Broadcast(tuple(broadcast.encode(configuration)))]


_DEEDS: Final = {
    2001: "removed",
    2002: "stopped",
    2003: "created",
    2004: "given an exchange",
    2005: "started",
    2006: "given scaling rules",
    2010: "created",
}


def _malformed(request: Bad) -> Note:
    return Note("malformed_request", f"refused a request: {request.error}", provoked=True)


def _noted(name: str, number: object, saga: Saga) -> Saga:
    """The saga, and a line in the log about how it went."""
    deed = _DEEDS.get(number, "changed") if isinstance(number, int) else "changed"
    try:
        answer = yield from saga
    except RequestError as error:
        yield Emit((Note("queue_refused", f"queue {name} not {deed}: {error}", provoked=True),))
        raise
    more = "".join(f" {key.lower()}={answer[key]}" for key in ("Host", "Exchange") if key in answer)
    yield Emit((Note("queue_changed", f"queue {name} {deed}{more}"),))
    return answer
