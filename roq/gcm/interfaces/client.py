"""The client port: where is what, how are the hosts, and what monitors want of the leader."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from roq.errors import (
    InvalidRequest,
    NotLeader,
    QueueStopped,
    RegistryAway,
    RequestError,
)
from roq.gcm.change.operations import Operations
from roq.gcm.change.saga_steps import Emit, NoRoom, Part, Saga
from roq.gcm.change.sagas import Sagas
from roq.gcm.change.scaling_rules import Rules
from roq.gcm.events import ClientFrame, Effect, LogLine, Reply
from roq.gcm.interfaces.reports import Reports
from roq.gcm.provision.hosts import Provisioning
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import LIVE, Hosts
from roq.gcm.state.losses import GONE, loss
from roq.gcm.state.queues import MONITOR, Queue, Queues
from roq.gcm.state.records import EXCHANGES_MAX
from roq.gcm.state.role import Role
from roq.model import ElasticRules, exchange_name
from roq.protocol import documents, public
from roq.protocol.control import (
    ClusterInfo,
    ClusterInfoRequest,
    Elasticity,
    ElasticityRequest,
    GcmRequest,
    Health,
    HealthRequest,
    HostReport,
    Located,
    LocateRequest,
    ScaledOut,
    ScaleIn,
    ScaleOut,
)
from roq.protocol.documents import RawDocument
from roq.protocol.public import Bad, LocateQueue
from roq.protocol.public_answers import refusal
from roq.protocol.reports import HostUse


class ClientPort:
    """Answers clients, host managers and monitors."""

    def __init__(
        self,
        role: Role,
        queues: Queues,
        hosts: Hosts,
        heartbeats: Heartbeats,
        rules: Rules,
        operations: Operations,
        sagas: Sagas,
        reports: Reports,
        provisioning: Provisioning,
        health: Callable[[int], Health],
    ) -> None:
        self._role = role
        self._queues = queues
        self._hosts = hosts
        self._heartbeats = heartbeats
        self._rules = rules
        self._operations = operations
        self._sagas = sagas
        self._reports = reports
        self._provisioning = provisioning
        self._health = health

    def frame(self, event: ClientFrame, now: float) -> list[Effect]:
        """Answer one frame, at once or through an operation."""
        request = public.parse_client(event.data)
        if isinstance(request, Bad):
            return [Reply(event.peer, request.answer()), malformed(request)]
        try:
            return self._answer(event, request, now)
        except RequestError as known:
            error = self._role.as_far_as_known(known, follows=True)
            request_id = 0 if isinstance(request, LocateQueue) else request.id
            reply = Reply(event.peer, refusal(error, request_id))
            if isinstance(request, HostReport) and not isinstance(error, NotLeader):
                text = f"refused the report of a host manager: {error}"
                return [reply, LogLine("report_refused", text, provoked=True)]
            return [reply]

    def _answer(  # noqa: PLR0911 - one per message
        self, event: ClientFrame, request: LocateQueue | GcmRequest, now: float
    ) -> list[Effect]:
        if isinstance(request, ClusterInfoRequest):
            return [Reply(event.peer, documents.encode(self._cluster_info(request)))]
        if isinstance(request, HealthRequest):
            return [Reply(event.peer, documents.encode(self._health(request.id)))]
        if not self._role.answers:
            raise self._role.not_leader("client")
        match request:
            case LocateQueue():
                return [Reply(event.peer, documents.encode_raw(self._locate(request.QName)))]
            case LocateRequest():
                return [Reply(event.peer, documents.encode(self._located(request)))]
            case HostReport():
                return self._reports.take(event.peer, request, now)
            case ElasticityRequest():
                return [Reply(event.peer, documents.encode(self._elasticity(request, now)))]
            case ScaleOut() | ScaleIn():
                return self.scale(event.peer, request, now)

    def scale(self, peer: Hashable, request: ScaleOut | ScaleIn, now: float) -> list[Effect]:
        """A monitor wants one exchange more or less; answered when it is there or gone.

        Raises:
            RequestError: it cannot be begun.
        """
        if self._role.registry_away:
            raise RegistryAway("registry away")
        if isinstance(request, ScaleOut):
            _check_transaction(request.transaction)
        return self._operations.submit(
            request.queue,
            peer,
            lambda: self._scaling(peer, request),
            now,
            lambda error: refusal(self._as_told_here(error), request.id),
        )

    def _as_told_here(self, error: RequestError) -> RequestError:
        # Operations that end with leadership name the management interface of the next leader.
        return self._role.not_leader("client") if isinstance(error, NotLeader) else error

    def _scaling(self, peer: Hashable, request: ScaleOut | ScaleIn) -> Saga:
        name = self._queues.demand_same(request.queue, request.queue_id).name
        wanted = f"queue {name} {'grows' if isinstance(request, ScaleOut) else 'shrinks'}"
        rules = self._rules.elastic(name)
        yield Emit((LogLine("queue_scaling", f"{wanted}: {request.reason:.200}"),))
        try:
            if isinstance(request, ScaleIn):
                return (yield from self._sagas.exchange.scale_in(request, rules))
            made = yield from self._grow(peer, request, rules)
            if made is None:
                return None  # answered when there is a host for it
        except RequestError as error:
            yield Emit((LogLine("queue_not_scaled", f"{wanted}, but cannot: {error}"),))
            raise
        text = f"queue {name} has {exchange_name(made.number)} on host {made.host}"
        yield Emit((LogLine("queue_scaled", text),))
        return made

    def _grow(
        self, peer: Hashable, request: ScaleOut, rules: ElasticRules
    ) -> Part[ScaledOut | None]:
        try:
            return (yield from self._sagas.exchange.scale_out(request, rules))
        except NoRoom as error:
            self._provisioning.want(peer, request, error)
            return None

    def _elasticity(self, request: ElasticityRequest, now: float) -> Elasticity:
        queue = self._queues.demand_same(request.queue, request.queue_id)
        self._heartbeats.take(queue, request, now)
        if self._hosts.live(queue.place(MONITOR)) is None:
            queue.hear(request.epoch, request.control)
        record = queue.record
        hosts = [self._hosts.get(name) for name in record.hosts]
        return Elasticity(
            id=request.id,
            queue_id=record.queue_id,
            rules=self._rules.elastic(queue.name),
            services=record.services,
            exchanges=[each.number for each in record.exchanges if not each.away],
            logs=[each.number for each in record.exchanges] if record.durable else [],
            unwanted=self._unwanted(queue, request),
            scaled=record.removable,
            hosts=[
                HostUse(
                    host=host.name,
                    cpu_percent=host.report.cpu_percent,
                    memory_used_bytes=host.report.memory_bytes,
                    live=host.state is LIVE,
                )
                for host in hosts
                if host is not None and host.report is not None
            ],
        )

    def _unwanted(self, queue: Queue, request: ElasticityRequest) -> list[int]:
        """What a monitor hears of and no definition wants, as far as that is certain.

        A definition is there before its process, and no number is given twice. What a host manager
        reports, that manager is told to stop; this is for hosts without a manager.
        """
        role = self._role
        if role.registry_away or role.caretaker or self._operations.busy(queue.name):
            return []
        known = {exchange.number for exchange in queue.record.exchanges}
        unknown = [number for number, _ in request.exchanges if number not in known]
        return [each for each in unknown if not self._is_managed(queue, each)][:EXCHANGES_MAX]

    def _is_managed(self, queue: Queue, number: int) -> bool:
        """Whether the manager of a live host reports this exchange."""
        queue_id = queue.record.queue_id
        return any(host.state is LIVE and host.child(queue_id, number) for host in self._hosts)

    def _cluster_info(self, request: ClusterInfoRequest) -> ClusterInfo:
        role = self._role
        leader = role.known_leader
        managers = sorted(
            {manager.client for manager in role.managers} | {role.me.client},
            key=lambda client: (leader is None or client != leader.client, client),
        )
        return ClusterInfo(
            id=request.id,
            cluster=role.cluster,
            leader=role.answers and not role.caretaker,
            client=role.me.client,
            management=role.me.management,
            broadcast=role.me.broadcast,
            managers=managers,
        )

    def _locate(self, name: str) -> RawDocument:
        queue = self._queues.demand_running(name)
        return {"Monitor_host": queue.monitor, "Stat_Monitor_host": queue.statistics, "RESULT": 0}

    def _located(self, request: LocateRequest) -> Located:
        queue = self._queues.demand_running(request.QName)
        if not queue.monitor:
            raise QueueStopped(f"the monitor of queue {queue.name!r} is not known yet; try again")
        lost = loss(queue, MONITOR, self._hosts, self._heartbeats)
        if lost is not None and lost.kind is GONE:
            # Nobody is to wait for answers from there; it runs elsewhere in a moment.
            raise RequestError(f"{lost.name} of queue {queue.name!r} {lost.why}; try again")
        return Located(
            id=request.id,
            QName=queue.name,
            queue_id=queue.record.queue_id,
            monitor=queue.monitor,
            statistics=queue.statistics,
            limits=queue.record.limits,
        )


def _check_transaction(transaction: str) -> None:
    if not 0 < len(transaction) <= public.TRANSACTION_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a transaction has 1 to {public.TRANSACTION_CHARACTERS_MAX} characters, "
            f"not {len(transaction)}"
        )


def malformed(request: Bad) -> LogLine:
    """The line in the log about a frame that is no request."""
    return LogLine("malformed_request", f"refused a request: {request.error}", provoked=True)
