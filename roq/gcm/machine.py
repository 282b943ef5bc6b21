"""The global configuration manager, decided: who gets which answer, what is started where.

One manager leads and answers; the others name it. The leader's state is the registry's, read once
when it begins to lead, plus what host managers report. While the registry is out of reach
everything that only reads goes on from memory and changes are refused. A manager that loses
leadership ends all operations at once with the address of the new leader; definitions tell that one
where each stood.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from roq.errors import RegistryAway, RequestError
from roq.gcm.change.operations import Operations
from roq.gcm.change.sagas import Sagas
from roq.gcm.change.scaling_rules import Rules
from roq.gcm.events import (
    Answered,
    Broadcast,
    ClientFrame,
    ClusterNamed,
    CommitFailed,
    Committed,
    Doubted,
    Effect,
    Elected,
    EpochDrawn,
    EpochsDamaged,
    Event,
    Following,
    HostsPresent,
    ListenerGone,
    LogLine,
    ManagementFrame,
    ManagersChanged,
    Measured,
    ProviderAnswered,
    ReadAgain,
    RegistryBack,
    RegistryLost,
    Reply,
    Subscribed,
    Unanswered,
)
from roq.gcm.interfaces import views
from roq.gcm.interfaces.client import ClientPort
from roq.gcm.interfaces.health import of_manager
from roq.gcm.interfaces.management import ManagementPort
from roq.gcm.interfaces.metrics import figures
from roq.gcm.interfaces.reports import Reports
from roq.gcm.provision.hosts import Provisioning, ProvisionSettings
from roq.gcm.repair.draining import Draining
from roq.gcm.repair.schedule import LOOK_SECONDS, RepairSchedule
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import Hosts
from roq.gcm.state.queues import Queues
from roq.gcm.state.records import HOSTS, Manager, Snapshot
from roq.gcm.state.removed_logs import RemovedLogs
from roq.gcm.state.role import Rank, Role
from roq.machine import Tick
from roq.model import FLUSH
from roq.policy.catalogue import POLICIES
from roq.protocol import broadcast
from roq.protocol.control import Health
from roq.protocol.documents import RawDocument
from roq.protocol.metrics import Sample
from roq.protocol.public_answers import refusal

_VERSION_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What a manager is told at its start."""

    manager: Manager
    period: float = 5.0
    """Seconds between broadcasts."""
    cloud: RawDocument = field(default_factory=dict)
    """The answer to 2009, without secrets."""
    provision: ProvisionSettings | None = None
    """None: there is no provider of hosts."""
    policies: Callable[[], Collection[str]] = POLICIES.keys
    """Gives the names of the policies that are installed here."""
    registry: str = "ZooKeeper"
    """What the registry is called in a sentence."""
    durability: str = FLUSH
    """Of queues whose creator names none."""


class GcmMachine:
    """One global configuration manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._role = Role(settings.manager, settings.registry)
        self.queues = Queues()
        self.hosts = Hosts()
        self.rules = Rules(self.queues)
        self.operations = Operations()
        self._heartbeats = Heartbeats(self.hosts)
        self._removed = RemovedLogs(self.queues)
        self._sagas = Sagas(self.queues, self._removed, self.hosts, self._heartbeats)
        self.provisioning = Provisioning(settings.provision, self.queues, self.hosts)
        self.repairs = RepairSchedule(
            self._role,
            self.queues,
            self.hosts,
            self._heartbeats,
            self.operations,
            self._sagas,
            self.provisioning,
        )
        self.draining = Draining(
            self._role,
            self.queues,
            self.hosts,
            self.operations,
            self._sagas,
            self.provisioning,
        )
        self._reports = Reports(
            self._role,
            self.queues,
            self._removed,
            self.hosts,
            self.operations,
            self._sagas,
            self.repairs,
            self.draining,
        )
        self._clients = ClientPort(
            self._role,
            self.queues,
            self.hosts,
            self._heartbeats,
            self.rules,
            self.operations,
            self._sagas,
            self._reports,
            self.provisioning,
            self.health,
        )
        self._management = ManagementPort(
            self._role,
            self.queues,
            self.hosts,
            self.rules,
            self.operations,
            self._sagas,
            self.provisioning,
            self.repairs,
            self.draining,
            settings.cloud,
            settings.policies,
            settings.durability,
        )
        self._version = 0
        self._told: tuple[object, object] = ((), ())
        self._changed = False
        self._next_broadcast: float | None = None
        self._next_look: float | None = None

    @property
    def leads(self) -> bool:
        """Whether this manager leads."""
        return self._role.leads

    @property
    def cluster(self) -> str:
        """Identity of the cluster; empty until the registry has told it."""
        return self._role.cluster

    @property
    def manager_addresses(self) -> list[str]:
        """Client addresses of all configuration managers, this one first."""
        role = self._role
        others = (manager.client for manager in role.managers)
        return list(dict.fromkeys([role.me.client, *others]))

    def health(self, request_id: int = 0) -> Health:
        """How it is."""
        return of_manager(
            self._role,
            self.queues,
            self._removed,
            self.hosts,
            self.repairs,
            self.draining,
            request_id,
        )

    def figures(self) -> Iterator[Sample]:
        """`roq.gcm.interfaces.metrics.METRICS` as they stand now."""
        return figures(self._role, self.queues, self.hosts, self.operations, self.repairs)

    # --- the contract of a machine ----------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and give the effects to perform, in order."""
        self.hosts.now = now
        effects = self._dispatch(event, now)
        if self._role.doubtful:
            return effects  # and does nothing, until the registry has told who leads
        if self.leads:
            effects += self.repairs.advance(now)
        effects += self._provide(now)
        if (self._changed or self.hosts.changed) and self.leads:
            effects += self._announce_change(now)
        return effects

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted."""
        if self._role.doubtful:
            return None
        deadlines = (
            self._next_broadcast,
            self._next_look,
            self.operations.next_deadline(),
            self.provisioning.next_deadline(),
        )
        return min((each for each in deadlines if each is not None), default=None)

    def check(self) -> None:
        """Assert the invariants."""
        self.queues.check()
        self.hosts.check()
        self.operations.check()
        self.provisioning.check()
        self.repairs.check()
        self.draining.check()
        busy = self.operations.queues
        assert all(name in busy for name, _ in self.queues.reserved)  # noqa: S101
        assert self.leads or not busy  # noqa: S101 - check() is for tests and simulation

    def _dispatch(self, event: Event, now: float) -> list[Effect]:  # noqa: C901, PLR0911, PLR0912
        match event:
            case ClientFrame():
                return self._clients.frame(event, now)
            case ManagementFrame():
                return self._management.frame(event, now)
            case Committed() if self.leads and not self.operations.awaits(event.token):
                return [ReadAgain()]
            case Committed():
                return self._completed(self.operations.completed(event.token, None, now))
            case CommitFailed():
                return self._completed(self.operations.commit_failed(event.token, event.error, now))
            case EpochDrawn():
                return self._completed(self.operations.completed(event.token, event.epoch, now))
            case Answered():
                return self._completed(self.operations.completed(event.token, event.answer, now))
            case Unanswered():
                return self._completed(self.operations.completed(event.token, event.reason, now))
            case Tick():
                return [] if self._role.doubtful else self._tick(now)
            case Elected():
                return self._elected(event, now)
            case Following():
                return self._following(event)
            case Doubted():
                return self._doubted()
            case RegistryLost():
                return self._registry_lost(event, now)
            case RegistryBack():
                return self._registry_back(event, now)
            case EpochsDamaged():
                self._role.epochs_problem = event.problem
                return []
            case ClusterNamed():
                self._role.cluster = event.cluster
                return []
            case ManagersChanged():
                self._role.managers = event.managers
                return []
            case HostsPresent():
                self.hosts.present(event.hosts, now)
                # A host that is not there any more may be lost: look at once.
                self._next_look = now if self._next_look is not None else None
                return []
            case ProviderAnswered():
                self.provisioning.answered(event.token, event.answer, now)
                return []
            case Measured():
                self._role.measured = event.checks
                return []
            case Subscribed():
                return self._broadcast(now) if self._role.answers else []
            case ListenerGone():
                self.rules.listener_gone(event.address)
                return []

    def _completed(self, effects: list[Effect]) -> list[Effect]:
        self._changed = True  # any step of an operation may have changed what is broadcast
        return effects

    # --- leadership and registry ------------------------------------------------------------------

    def _elected(self, event: Elected, now: float) -> list[Effect]:
        # What ran under an earlier epoch must not write under this one.
        effects = self._abort(self._role.not_leader("management"))
        effects += self._stop_providing(self._role.not_leader("client"))
        self._role.become(Rank.LEADER)
        self._role.leader = self._role.me
        self._role.regain_registry()
        self._sagas.lead(event.epoch, self._role.cluster)
        self.provisioning.lead(event.epoch, now)
        self._version = max(self._version, event.epoch << _VERSION_BITS)
        self.hosts.lead(now)
        self._heartbeats.clear()
        self.repairs.clear()
        self.draining.clear()
        self._next_look = now + LOOK_SECONDS
        return effects + self._load(event.snapshot, now)

    def _following(self, event: Following) -> list[Effect]:
        self._role.leader = event.leader
        return self._resign() if self.leads else []

    def _doubted(self) -> list[Effect]:
        if self._role.rank in {Rank.FOLLOWER, Rank.CARETAKER}:
            return []
        self._role.become(Rank.DOUBTFUL)
        effects = self._abort(self._role.not_leader("management"))
        return effects + self._stop_providing(self._role.not_leader("client"))

    def _registry_lost(self, event: RegistryLost, now: float) -> list[Effect]:
        self._role.lose_registry(event.problem, now)
        self.hosts.registry_lost()
        if not event.session_ended or not self.leads:
            return []
        self._role.become(Rank.CARETAKER)
        effects = self._abort(RegistryAway("registry away"))
        return effects + self._stop_providing(RegistryAway("registry away"))

    def _resign(self) -> list[Effect]:
        self._role.become(Rank.FOLLOWER)
        effects = self._abort(self._role.not_leader("management"))
        effects += self._stop_providing(self._role.not_leader("client"))
        effects += self.rules.clear()
        self.queues.clear()
        self._removed.clear()
        self.hosts.clear()
        self._heartbeats.clear()
        self.repairs.clear()
        self.draining.clear()
        self._reports.clear()
        self._told = ((), ())
        self._next_broadcast = self._next_look = None
        return effects

    def _registry_back(self, event: RegistryBack, now: float) -> list[Effect]:
        self._role.regain_registry()
        if not self.leads or event.snapshot is None:
            return []
        # What was under way when the connection broke may or may not have been done.
        return self._load(event.snapshot, now)

    def _load(self, snapshot: Snapshot, now: float) -> list[Effect]:
        known = dict(self.queues.unreadable)
        self.queues.load(snapshot, keep=self.operations.queues)
        self._removed.add(snapshot.removed)
        self.rules.load(snapshot)
        if not self.operations.busy(HOSTS):
            self.hosts.marks = dict(snapshot.marks)
        self.hosts.expect(self.queues.hosts_in_use(), now)
        self._changed = True
        return [
            LogLine("unreadable", f"the definition of queue {name} is unreadable: {why}")
            for name, why in self.queues.unreadable.items()
            if known.get(name) != why
        ]

    # --- provided hosts ---------------------------------------------------------------------------

    def _provide(self, now: float) -> list[Effect]:
        """Let the provider's hosts come and go, and those grow who have waited for one."""
        if not self._role.cluster:
            return []
        step = self.provisioning.advance(now)
        effects = step.effects
        for demand in step.ready:
            if demand.request is None:
                continue  # a queue that has lost something has heard of the new host already
            try:
                effects += self._clients.scale(demand.peer, demand.request, now)
            except RequestError as error:
                effects.append(Reply(demand.peer, refusal(error, demand.request.id)))
        return effects

    def _abort(self, error: RequestError) -> list[Effect]:
        self.repairs.aborted()
        self.draining.aborted()
        return self.operations.abort(error)

    def _stop_providing(self, error: RequestError) -> list[Effect]:
        return [
            Reply(demand.peer, refusal(error, demand.request.id))
            for demand in self.provisioning.resign()
            if demand.request is not None
        ]

    # --- time and broadcast -----------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        effects = self.operations.expire(now)
        if self._next_look is not None and now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            effects += self.repairs.look(now)
            effects += self.draining.look(now)
            effects += self._reports.look(now)
        if self._next_broadcast is not None and now >= self._next_broadcast:
            effects += self._broadcast(now)
        if effects:
            self._changed = True
        return effects

    def _announce_change(self, now: float) -> list[Effect]:
        self._changed = self.hosts.changed = False
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
