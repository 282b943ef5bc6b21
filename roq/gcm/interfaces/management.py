"""The management port: consoles and the command line create, change and look at queues."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from roq.errors import InvalidRequest, QueueNotFound, RegistryAway, RequestError
from roq.gcm.change.operations import Operations
from roq.gcm.change.saga_steps import Call, Calls, Emit, NoRoom, Part, Saga
from roq.gcm.change.sagas import Sagas
from roq.gcm.change.scaling_rules import Rules
from roq.gcm.events import Effect, LogLine, ManagementFrame, Reply
from roq.gcm.interfaces import views
from roq.gcm.interfaces.client import malformed
from roq.gcm.provision.hosts import Provisioning
from roq.gcm.repair.draining import Draining
from roq.gcm.repair.schedule import RepairSchedule
from roq.gcm.state.hosts import Hosts
from roq.gcm.state.queues import Queues
from roq.gcm.state.records import HOSTS
from roq.gcm.state.role import Role
from roq.policy.catalogue import DEFAULT, POLICIES
from roq.protocol import documents, public
from roq.protocol.control import Configure
from roq.protocol.defined_services import checked_services
from roq.protocol.documents import RawDocument
from roq.protocol.public import (
    Bad,
    CordonHost,
    DrainHost,
    HostCommand,
    ManagementRequest,
    RemoveHost,
    UncordonHost,
)
from roq.protocol.public_answers import NO, YES, done, failed, from_memory

CONFIGURE_SECONDS: Final = 0.5
"""What a monitor may take to hear of new rules before the console gets its answer."""


class ManagementPort:
    """Answers management commands: what reads, at once; what changes, through an operation.

    Args:
        cloud: the answer to 2009, without secrets.
        policies: gives the names of the policies that are installed.
        durability: of queues whose creator names none.
    """

    def __init__(
        self,
        role: Role,
        queues: Queues,
        hosts: Hosts,
        rules: Rules,
        operations: Operations,
        sagas: Sagas,
        provisioning: Provisioning,
        repairs: RepairSchedule,
        draining: Draining,
        cloud: RawDocument,
        policies: Callable[[], Collection[str]],
        durability: str,
    ) -> None:
        self._role = role
        self._queues = queues
        self._hosts = hosts
        self._rules = rules
        self._operations = operations
        self._sagas = sagas
        self._provisioning = provisioning
        self._repairs = repairs
        self._draining = draining
        self._cloud = cloud
        self._policies = policies
        self._durability = durability

    def frame(self, event: ManagementFrame, now: float) -> list[Effect]:
        """Answer one frame, at once or through an operation."""
        request = public.parse_management(event.data)
        if isinstance(request, Bad):
            return [Reply(event.peer, request.answer()), malformed(request)]
        try:
            if not self._role.answers:
                raise self._role.not_leader("management")
            change = self._change(request, event)
            if change is None:
                answer = {**self._read(request), **self._memory(now)}
                return [Reply(event.peer, documents.encode_raw(answer))]
            if self._role.registry_away:
                raise RegistryAway("registry away")
            name, make = change
            number = request.__struct_config__.tag
            return self._operations.submit(
                name,
                event.peer,
                lambda: _noted(_subject(request), number, self._provided_for(name, make())),
                now,
                party=event.party,
            )
        except RequestError as known:
            error = self._role.as_far_as_known(known)
            return [Reply(event.peer, documents.encode_raw(failed(error)))]

    def _read(self, request: ManagementRequest) -> RawDocument:  # noqa: PLR0911 - one per command
        """Answer what needs no registry."""
        queues, hosts, repairs = self._queues, self._hosts, self._repairs
        match request:
            case public.GetRules():
                return self._rules.answer(request.QName)
            case public.CloudProperties():
                return {**done(), **self._cloud}
            case public.QueueExistsRequest():
                if queues.get(request.QName) is None and request.QName not in queues.unreadable:
                    raise QueueNotFound(NO)
                return done(YES)
            case public.ListQueues():
                return views.list_queues(queues, repairs, self._rules)
            case public.ListHosts():
                return views.list_hosts(hosts, queues, self._provisioning.names(), self._draining)
            case public.ListExchanges():
                return views.list_exchanges(queues.demand(request.QName), hosts, repairs)
            case public.DescribeQueue():
                queue = queues.demand(request.QName)
                rules = self._rules.fields(queue.name)
                return views.describe_queue(queue, hosts, repairs, rules)
            case _:
                raise InvalidRequest(public.INVALID_COMMAND)

    def _memory(self, now: float) -> RawDocument:
        """That another manager may know better, if that is so."""
        role = self._role
        if not role.caretaker:
            return {}
        reason = role.problem or f"{role.registry} cannot be reached"
        return from_memory(now - role.away_since, reason)

    def _change(  # noqa: PLR0911 - one return per command
        self, request: ManagementRequest, event: ManagementFrame
    ) -> tuple[str, Callable[[], Saga]] | None:
        """The queue and the saga of a request that changes something."""
        sagas = self._sagas
        match request:
            case public.CreateQueueOn() | public.CreateQueue():
                create = sagas.queue.create
                durability = request.Durability or self._durability
                limits = public.check_limits(public.limits_of(request.Limits), durability)
                return request.QName, lambda: self._begun(
                    request.QName,
                    create(
                        request.QName,
                        request.Host if isinstance(request, public.CreateQueueOn) else "",
                        queue_id=event.unique,
                        wall=event.wall,
                        limits=limits,
                        durability=durability,
                        services=checked_services(request.Services),
                        transaction=str(request.TransactionID),
                    ),
                )
            case public.CreateExchange():
                return request.QName, lambda: sagas.exchange.create(request)
            case public.RemoveExchange():
                return request.QName, lambda: sagas.exchange.remove(request)
            case public.StartQueue():
                start = sagas.queue.start
                return request.QName, lambda: self._begun(request.QName, start(request.QName))
            case public.StopQueue():
                return request.QName, lambda: sagas.queue.stop(request.QName)
            case public.RemoveQueue():
                return request.QName, lambda: self._remove(request.QName)
            case public.SetRules():
                self._check_policy(request)
                return request.QName, lambda: self._told(request.QName, self._rules.set(request))
            case public.DefineServices():
                services = checked_services(request.Services)
                define = sagas.queue.define_services
                return request.QName, lambda: self._told(
                    request.QName, define(request.QName, services)
                )
            case CordonHost() | UncordonHost() | DrainHost() | RemoveHost():
                return HOSTS, lambda: self._change_host(request)
            case public.RegisterListener():
                return request.QName, lambda: self._rules.listen(request.QName, request.Address)
            case _:
                return None

    def _change_host(self, request: HostCommand) -> Saga:
        sagas = self._sagas.host
        match request:
            case CordonHost():
                return sagas.cordon(request.Host)
            case UncordonHost():
                return sagas.uncordon(request.Host)
            case DrainHost():
                return sagas.drain(request.Host)
            case RemoveHost():
                return sagas.remove(request.Host, force=request.Force)

    def _provided_for(self, name: str, saga: Saga) -> Saga:
        """The saga; if no host has room for it, a provider makes one for the next attempt."""
        try:
            return (yield from saga)
        except NoRoom as error:
            raise self._provisioning.room_for_next_attempt(name, error) from None

    def _remove(self, name: str) -> Saga:
        unreadable = name in self._queues.unreadable
        remove = self._sagas.queue.remove_unreadable if unreadable else self._sagas.queue.remove
        answer = yield from remove(name)
        yield Emit(tuple(self._rules.forget(name)))
        return answer

    def _check_policy(self, request: public.SetRules) -> None:
        """A policy that nobody offers would be replaced by another one, and hardly be missed.

        Raises:
            InvalidRequest: there is none of this name; the text tells those that there are.
        """
        part = request.AUTOSCALING_ROQ
        name = part.AUTOSCALING_ROQ_POLICY if part is not None else DEFAULT
        if name in POLICIES or name in (known := self._policies()):
            return
        raise InvalidRequest(
            f"there is no policy {name!r}; there are {', '.join(sorted(known))}. Install the "
            "package that offers it where the configuration managers and the hosts run"
        )

    def _begun(self, name: str, saga: Saga) -> Saga:
        """The saga that starts a queue; its monitor, which was told nothing before, is to ask again
        at once if its exchanges have to know something of services."""
        answer = yield from saga
        if self._queues.demand(name).record.services:
            yield from self._tell_monitor(name)
        return answer

    def _told(self, name: str, saga: Saga) -> Saga:
        """The saga, and the monitor is told that it has changed what it decides by."""
        answer = yield from saga
        yield from self._tell_monitor(name)
        return answer

    def _tell_monitor(self, name: str) -> Part[None]:
        queue = self._queues.demand(name)
        if queue.running and queue.monitor:
            # It would ask by itself within two seconds, so whether it hears this does not matter.
            message = Configure(queue_id=queue.record.queue_id)
            yield Calls((Call(queue.record.host, queue.monitor, message, CONFIGURE_SECONDS),))


_DEEDS: Final = {
    2001: "removed",
    2002: "stopped",
    2003: "created",
    2004: "given an exchange",
    2005: "started",
    2006: "given scaling rules",
    2008: "given a listener",
    2010: "created",
    2100: "rid of an exchange",
    2105: "given settings of services",
    2110: "cordoned",
    2111: "uncordoned",
    2112: "to be drained",
    2113: "forgotten",
}


def _subject(request: ManagementRequest) -> str:
    host = getattr(request, "Host", "")
    return f"queue {request.QName}" if hasattr(request, "QName") else f"host {host}"


def _noted(what: str, number: object, saga: Saga) -> Saga:
    """The saga, and a line in the log about how it went."""
    deed = _DEEDS.get(number, "changed") if isinstance(number, int) else "changed"
    try:
        answer = yield from saga
    except RequestError as error:
        yield Emit((LogLine("queue_refused", f"{what} not {deed}: {error}", provoked=True),))
        raise
    told = answer if isinstance(answer, dict) else {}
    more = "".join(f" {key.lower()}={told[key]}" for key in ("Host", "Exchange") if key in told)
    yield Emit((LogLine("queue_changed", f"{what} {deed}{more}"),))
    return answer
