"""What a host manager decides: which children run, under which epochs, and what others are told.

It starts what the leading configuration manager asks for, starts again what crashed, stops what is
not wanted, and reports every second and at each change. A request is answered when it is done: a
start when the child has reported for the first time, a stop when the last process is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from roq.errors import (
    InvalidName,
    InvalidRequest,
    NoCapacity,
    RequestError,
    StaleEpoch,
)  # fmt: skip
from roq.hcm.children import (
    ENDED,
    EVERYTHING,
    EXCHANGE,
    LOGS,
    SUPERSEDED,
    Start,
    State,
    Stop,
    Waiter,
    check_report,
    child_name,
    number_of,
)  # fmt: skip
from roq.hcm.cpu import CpuSample
from roq.hcm.crash_history import CrashHistory
from roq.hcm.events import (
    Adopted,
    Announce,
    Effect,
    Erase,
    Erased,
    Event,
    Exited,
    Finished,
    Forget,
    LeaderAnswered,
    LeaderLost,
    Measured,
    Note,
    Peer,
    Pressed,
    Probed,
    Registered,
    RememberEpoch,
    RememberLeader,
    Reply,
    ReportToLeader,
    Requested,
    Rested,
    Spawned,
    SpawnFailed,
    StopWanted,
)  # fmt: skip
from roq.hcm.health import of_host, processor_check, shortage
from roq.hcm.leader import Leader
from roq.hcm.metrics import figures, known
from roq.hcm.specs import Settings
from roq.hcm.supervisor import Supervisor, keep
from roq.machine import Tick
from roq.model import HOST_EPOCH_MAX
from roq.protocol.control import (
    NOT_LEADER,
    ChildAck,
    ChildReport,
    Done,
    Failure,
    HcmRequest,
    Health,
    HealthRequest,
    HostReport,
    HostReportAck,
    Inventory,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
    failure,
)  # fmt: skip
from roq.protocol.metrics import Sample as Figure
from roq.protocol.reports import Check
from roq.timing import CHILD_KILLED_SECONDS, LEADERLESS_SECONDS

WAITERS_MAX: Final = 64
STOPS_MAX: Final = 1_000


class HostMachine:
    """The host manager of one host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leader = Leader(settings.managers)
        self._supervisor = Supervisor(settings, self._leader)
        self._leader_epoch = self._remembered = self._counted = self._since = 0
        self._trouble = ""
        self._refusal = ""
        self._short = False
        self._reported_to = ""
        self._measured: tuple[Check, ...] = ()
        self._drain_by: float | None = None
        self._heard = 0.0
        """When a leader has said that it drains this host."""
        self._finish_by: float | None = None
        self._finished = False
        self._due_at = inf

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._finish_by is not None

    @property
    def draining(self) -> bool:
        """Whether it was asked to end, and waits until what runs here has gone elsewhere."""
        return self._drain_by is not None and not self.stopping

    @property
    def children(self) -> int:
        """How many there are, whether they run or not."""
        return len(self._supervisor.children)

    @property
    def registered(self) -> bool:
        """Whether this host has an epoch."""
        return self._supervisor.host_epoch > 0

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and give the effects, in order."""
        if isinstance(event, Requested) and now < self._due_at:
            routine = self._routine(event, now)
            if routine is not None:
                return routine
        effects = self._handle(event, now) + self._supervisor.time_passed(now)
        effects += self._drained(now) + self._finish(now)
        if self._obeyed > self._remembered:
            self._remembered = self._obeyed
            effects.insert(0, RememberLeader(self._remembered))
        if self._supervisor.epoch > self._counted:
            self._since = self._since if self._counted else self._supervisor.epoch
            self._counted = self._supervisor.epoch
            effects.insert(0, RememberEpoch(self._counted))
        if self._leader.take_due(now):
            effects.append(ReportToLeader(self._leader.endpoint, self._report()))
        self._due_at = self._next_due(now)
        return effects

    def health(self, request_id: int = 0) -> Health:
        """How it is."""
        return of_host(
            self._settings.host,
            self._supervisor.children,
            self._leader,
            (processor_check(self._supervisor.processor, self._short), *self._measured),
            stopping=self.stopping or self.draining,
            request_id=request_id,
        )

    def figures(self) -> Iterator[Figure]:
        """How the figures of this host and its children stand now."""
        return figures(self._supervisor.children, self._leader, self._settings.exchange_max)

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted at the latest."""
        return None if self._due_at == inf else self._due_at

    def check(self) -> None:
        """Assert the invariants."""
        self._supervisor.check()
        assert len(self._supervisor.stops) <= STOPS_MAX  # noqa: S101

    def _handle(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0911 - one per event
        match event:
            case Registered(epoch):
                self._supervisor.registered(epoch)
                self._leader.start(now)
                return []
            case Requested(peer, message):
                return self._requested(peer, message, now)
            case Rested(_, leader_epoch, epoch, since):
                self._leader_epoch = self._remembered = leader_epoch
                self._counted, self._since = epoch, since
                return self._supervisor.handle(event, now)
            case Adopted() | Spawned() | SpawnFailed() | Exited() | Probed():
                return self._supervisor.handle(event, now)
            case Erased():
                return self._erased(event)
            case LeaderAnswered() | LeaderLost():
                return self._leader_said(event, now)
            case Measured(checks):
                self._measured = checks
                return []
            case Pressed(sample):
                return self._pressed(sample, now)
            case StopWanted(drain):
                return self._drain(now) if drain and not self.draining else self._stop_all(now)
            case Tick():
                return []

    def _routine(self, event: Requested, now: float) -> list[Effect] | None:
        """What a report wants that tells nothing new: most events by far, and hardly any work."""
        message = event.message
        if not isinstance(message, ChildReport):
            return None
        child = self._supervisor.children.get(message.child.child)
        if child is None or child.state is not State.RUNNING or child.peer != event.peer:
            return None
        if child.epoch != message.child.epoch or message.child.state != State.RUNNING:
            return None
        if message.metrics:
            child.metrics = known(child.role, message.metrics)
        self._supervisor.heard(child, now, idle=message.idle)
        if not message.id:
            return []  # it only says that it lives
        return [Reply(event.peer, keep(child, self._leader, message.id))]

    # --- requests ---------------------------------------------------------------------------------

    def _requested(self, peer: Peer, message: HcmRequest, now: float) -> list[Effect]:  # noqa: PLR0911 - one per message
        try:
            match message:
                case StartMonitor() | StartExchange():
                    return self._start(peer, message, now)
                case StopQueue():
                    return self._stop_queue(peer, message, now)
                case Inventory():
                    return [Reply(peer, self._report(message.id))]
                case HealthRequest():
                    return [Reply(peer, self.health(message.id))]
                case ChildReport():
                    return self._child_report(peer, message, now)
        except RequestError as error:
            return [Reply(peer, failure(message.id, str(error), error.code))]
        except InvalidName as error:
            return [Reply(peer, failure(message.id, str(error), InvalidRequest.code))]

    @property
    def _obeyed(self) -> int:
        return max(self._leader_epoch, self._leader.epoch)

    def _check_leader(self, epoch: int, cluster: str) -> None:
        mine = self._leader.cluster
        if cluster and mine and cluster != mine:
            raise InvalidRequest(
                f"host {self._settings.host} belongs to cluster {mine}, not to {cluster}"
            )
        if epoch > HOST_EPOCH_MAX:
            raise InvalidRequest(f"no configuration manager leads under epoch {epoch}")
        leads = self._obeyed
        if epoch < leads:
            raise StaleEpoch(f"a configuration manager with epoch {leads} leads, not {epoch}")
        self._leader_epoch = epoch

    def _start(self, peer: Peer, message: Start, now: float) -> list[Effect]:
        self._supervisor.check_start(message)
        self._check_leader(message.leader_epoch, message.cluster)
        self._supervisor.count_from(message.base)
        processor = self._supervisor.processor
        wait = processor.stretched(self._settings.start_seconds, now) + CHILD_KILLED_SECONDS
        waiter = Waiter(peer, message.id, now + wait)
        child = self._supervisor.children.get(child_name(message.queue, number_of(message)))
        if child is None:
            return self._supervisor.start_new(message, waiter, now)
        if child.state is State.STOPPING or child.queue_id != message.queue_id:
            return self._supervisor.start_after(child, message, waiter, now)
        if child.state is State.RUNNING:
            return [Reply(peer, Started(id=message.id, child=child.describe()))]
        if child.state is State.FAILED and child.alive:
            raise RequestError(f"{child.name} cannot be started here: {child.reason}")
        if len(child.waiters) >= WAITERS_MAX:
            raise NoCapacity(f"{child.name} is being started for {WAITERS_MAX} others already")
        child.waiters.append(waiter)
        child.has_log = child.has_log or (isinstance(message, StartExchange) and message.has_log)
        if child.state is State.FAILED:
            # Asked for again by a leader that knows better: it gets all its chances again.
            child.history = CrashHistory(self._settings.crashes)
            return self._supervisor.spawn(child, State.RESTARTING, now)
        return []

    def _stop_queue(self, peer: Peer, message: StopQueue, now: float) -> list[Effect]:
        self._check_leader(message.leader_epoch, message.cluster)
        if len(self._supervisor.stops) >= STOPS_MAX:
            raise NoCapacity(f"{STOPS_MAX} requests to stop something are under way already")
        chosen = self._supervisor.children.select(message.queue, message.queue_id, message.number)
        whole = message.reason == "removed" and message.number == EVERYTHING
        effects: list[Effect] = [Forget(message.queue)] if whole else []
        left: set[str] = set()
        if message.erase:
            if message.queue_id and not any(child.number == message.number for child in chosen):
                # One that is a child here has a log here.
                here = any(child.role == EXCHANGE for child in chosen)
                effects.append(
                    Erase(
                        message.queue, message.queue_id, message.number, message.empty,
                        (peer, message.id), here=here,
                    )
                )  # fmt: skip
                left.add(LOGS)
            for child in chosen:
                child.erase, child.spares = child.role == EXCHANGE, message.empty
        for child in chosen:
            effects += self._supervisor.stop(child, message.reason, now)
        left |= {
            child.name
            for child in chosen
            if child.erase or self._supervisor.children.get(child.name) is child
        }
        if not left:
            return [*effects, Reply(peer, Done(id=message.id))]
        deadline = now + self._settings.stop_seconds + CHILD_KILLED_SECONDS
        self._supervisor.stops.add(Stop(peer, message.id, left, deadline))
        return effects

    def _erased(self, erased: Erased) -> list[Effect]:
        erase, stops = erased.erase, self._supervisor.stops
        if erase.asked is None:
            complete = stops.gone(child_name(erase.queue, erase.number), erased.problem)
        else:
            young = self._since if self._counted else HOST_EPOCH_MAX
            since = 0 if erased.found or erase.here else young
            if not erase.empty and self._supervisor.lacks(erase.queue_id, erase.number):
                since = HOST_EPOCH_MAX  # it is on a disk that is not here
            complete = stops.erased(erase.asked, since, erased.problem)
        return [stop.reply() for stop in complete]

    def _child_report(self, peer: Peer, message: ChildReport, now: float) -> list[Effect]:
        told = message.child
        child = self._supervisor.children.get(told.child)
        if child is None or not child.alive or told.epoch != child.epoch:
            ack = ChildAck(id=message.id, action="stop", child=told.child)
            return [Reply(peer, ack)]
        if told.state == ENDED:
            ack = ChildAck(id=message.id, action="stop", child=child.name)
            how = told.reason or "it has ended"
            return [Reply(peer, ack), *self._supervisor.ended(child, how, now)]
        child.peer = peer
        if message.metrics:
            child.metrics = known(child.role, message.metrics)
        effects: list[Effect] = []
        if child.info is None and told.state == State.RUNNING:
            effects = self._supervisor.listens(child, check_report(told))
        if child.state is State.STOPPING:
            ack = ChildAck(id=message.id, action="stop", reason=child.stop_reason, child=child.name)
            return [Reply(peer, ack), *effects]
        if told.state == SUPERSEDED:
            effects = self._supervisor.leaves(child, "a newer process has its place elsewhere", now)
        elif child.state is State.RUNNING:
            self._supervisor.heard(child, now, idle=message.idle)
        elif told.state == State.RUNNING and not child.killed:
            child.info = told
            effects += self._supervisor.now_running(child, now)
        elif told.state == State.STOPPING and child.state is State.STARTING:
            why = "it was asked to by an earlier life of this host manager"
            effects = self._supervisor.leaves(child, why, now)
        return [Reply(peer, keep(child, self._leader, message.id)), *effects]

    # --- the leader -------------------------------------------------------------------------------

    def _report(self, request_id: int = 0) -> HostReport:
        return HostReport(
            id=request_id,
            cluster=self._leader.cluster,
            host=self._settings.host,
            epoch=self._supervisor.host_epoch,
            control=self._settings.control,
            leader_epoch=self._obeyed,
            exchange_max=self._settings.exchange_max,
            starved=self._short,
            children=[child.describe() for child in self._supervisor.children],
            leaving=self._drain_by is not None,
        )

    def _leader_said(self, said: LeaderAnswered | LeaderLost, now: float) -> list[Effect]:
        known = self._leader.known
        match said:
            case LeaderAnswered(answer):
                self._leader.answered(answer, now)
                if isinstance(answer, HostReportAck) and self.draining:
                    self._heard = now if answer.drains else self._heard
                    if answer.stuck:
                        return self._undrained(answer.stuck, now)
            case LeaderLost(endpoint, reason):
                self._leader.lost(endpoint, reason, now)
        effects: list[Effect] = []
        trouble = self._leader.trouble
        refusal = _refusal(said)
        news = refusal not in {"", self._refusal}
        self._refusal = refusal or (self._refusal if trouble else "")
        if trouble and (news or not self._trouble):
            text = f"no leading manager yet: {trouble}"
            effects.append(Note("leader_away", text, warning=True, repeated=True))
        self._trouble = trouble
        if self._leader.leading not in {"", self._reported_to}:
            self._reported_to = self._leader.leading
            effects.append(Note("leader_found", f"{self._reported_to} leads, and hears of us"))
        if self._leader.known and not known:
            effects.append(Announce(self._leader.cluster))
        return effects + self._supervisor.pass_monitors_on()

    # --- time and the end -------------------------------------------------------------------------

    def _pressed(self, sample: CpuSample, now: float) -> list[Effect]:
        processor = self._supervisor.processor
        processor.take(sample, now)
        short = processor.short(now)
        if short == self._short:
            return []
        self._short = short
        if short:
            return [Note("starved", f"this host {shortage(processor)}", warning=True)]
        return [Note("fed", "this host gets the processor that it needs again")]

    def _next_due(self, now: float) -> float:
        deadlines = list(self._supervisor.deadlines(now))
        report_at = self._leader.next_deadline()
        if report_at is not None:
            deadlines.append(report_at)
        if self._finish_by is not None and not self._finished:
            deadlines.append(self._finish_by)
        if self._drain_by is not None and self.draining:
            deadlines += [self._drain_by, self._heard + LEADERLESS_SECONDS]
        return min(deadlines, default=inf)

    def _drain(self, now: float) -> list[Effect]:
        if self.stopping:
            return []
        if not (self._settings.drain_seconds and self.children and self._leader.leading):
            return self._stop_all(now)
        self._drain_by, self._heard = now + self._settings.drain_seconds, now
        self._leader.changed(now)
        text = (
            f"stopping: {self.children} processes have {self._settings.drain_seconds:g} s to go to "
            "other hosts"
        )
        return [Note("draining", text)]

    def _drained(self, now: float) -> list[Effect]:
        """Stop as soon as nothing is left here, or it takes too long."""
        if self._drain_by is None or not self.draining:
            return []
        if not self.children:
            return [Note("drained", "nothing is left here"), *self._stop_all(now)]
        if now >= self._drain_by:
            return self._undrained(f"{self._settings.drain_seconds:g} s are over", now)
        if now >= self._heard + LEADERLESS_SECONDS:
            why = "no configuration manager that leads has them go"
            return self._undrained(why, now)
        return []

    def _undrained(self, why: str, now: float) -> list[Effect]:
        left = ", ".join(child.name for child in self._supervisor.children)
        text = f"{left:.500} could not go to other hosts: {why}"
        return [Note("not_drained", text, warning=True), *self._stop_all(now)]

    def _stop_all(self, now: float) -> list[Effect]:
        if self.stopping:
            return []
        self._finish_by = now + self._settings.stop_seconds + CHILD_KILLED_SECONDS
        return self._supervisor.stop_all(now)

    def _finish(self, now: float) -> list[Effect]:
        late = self._finish_by is not None and now >= self._finish_by
        if self._finished or not self.stopping or (len(self._supervisor.children) and not late):
            return []
        self._finished = True
        return [Finished()]


def _refusal(said: LeaderAnswered | LeaderLost) -> str:
    """Why the leader does not take this host's reports; empty if that is not so."""
    answer = said.answer if isinstance(said, LeaderAnswered) else None
    if isinstance(answer, Failure) and answer.RESULT != NOT_LEADER:
        return answer.COMMENT
    return ""
