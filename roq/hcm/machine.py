"""What a host manager decides: which children run, under which epochs, and what others are told.

It starts what the leading configuration manager asks for, starts again what crashed, stops what is
not wanted, and reports every second and at each change. A request is answered when it is done: a
start when the child has reported for the first time, a stop when the last process is gone.
"""

from __future__ import annotations

from math import inf
from typing import Final

from roq.errors import (
    InvalidName,
    InvalidRequest,
    NoCapacity,
    RegistryAway,
    RequestError,
    StaleEpoch,
)  # fmt: skip
from roq.hcm import health
from roq.hcm.answers import ending, failure, failures, keep
from roq.hcm.backoff import CrashHistory
from roq.hcm.children import (
    EVERYTHING,
    EXCHANGE,
    MONITOR,
    Child,
    Children,
    Start,
    State,
    Waiter,
    check_report,
    check_start,
    child_name,
    number_of,
)  # fmt: skip
from roq.hcm.events import (
    Announce,
    Discard,
    Effect,
    Event,
    Exited,
    Finished,
    Forget,
    Kill,
    LeaderAnswered,
    Note,
    Peer,
    Registered,
    Reply,
    ReportToLeader,
    Requested,
    Spawn,
    Spawned,
    SpawnFailed,
    StopWanted,
    Terminate,
)  # fmt: skip
from roq.hcm.leader import LeaderLink
from roq.hcm.ports import PortBook
from roq.hcm.settings import Settings
from roq.hcm.specs import make_spec
from roq.hcm.stops import Stop, Stops
from roq.machine import Tick
from roq.model import child_epoch
from roq.protocol.control import (
    ChildAck,
    ChildReport,
    Done,
    HcmRequest,
    HealthRequest,
    HostReport,
    Inventory,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
)  # fmt: skip

KILL_SECONDS: Final = 3.0
"""The system takes a killed process away within this."""
CHILDREN_MAX: Final = 2_000
WAITERS_MAX: Final = 64
STOPS_MAX: Final = 1_000
EPOCHS_MAX: Final = (1 << 16) - 1
"""Children that one host epoch can number."""
UNAVAILABLE: Final = "unavailable"


class HostMachine:
    """The host manager of one host."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._children = Children()
        self._ports = PortBook()
        self._stops = Stops()
        self._leader = LeaderLink(settings.managers)
        self._host_epoch = 0
        self._counter = 0
        self._leader_epoch = 0
        self._trouble = ""
        self._finish_by: float | None = None
        self._finished = False
        self._due_at = inf

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._finish_by is not None

    @property
    def registered(self) -> bool:
        """Whether this host has an epoch."""
        return self._host_epoch > 0

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and give the effects, in order."""
        if isinstance(event, Requested) and now < self._due_at:
            routine = self._routine(event)
            if routine is not None:
                return [routine]
        effects = self._handle(event, now) + self._time_passed(now)
        if self._leader.take_due(now):
            effects.append(ReportToLeader(self._leader.endpoint, self._report()))
        self._due_at = self._next_due()
        return effects

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted at the latest."""
        return None if self._due_at == inf else self._due_at

    def check(self) -> None:
        """Assert the invariants."""
        self._children.check()
        assert len(self._stops) <= STOPS_MAX  # noqa: S101
        assert len(self._children) <= CHILDREN_MAX  # noqa: S101

    def _handle(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0911 - one per event
        match event:
            case Registered(epoch):
                return self._registered(epoch, now)
            case Requested(peer, message):
                return self._requested(peer, message, now)
            case Spawned(name, epoch, pid):
                return self._spawned(name, epoch, pid)
            case SpawnFailed(name, epoch, reason):
                return self._ended(name, epoch, f"could not be started: {reason}", now)
            case Exited(name, epoch, status, last_line):
                return self._ended(name, epoch, ending(status, last_line), now)
            case LeaderAnswered(answer):
                known = self._leader.known
                self._leader.answered(answer, now)
                return self._leader_said(known)
            case StopWanted():
                return self._stop_all(now)
            case Tick():
                return []

    def _routine(self, event: Requested) -> Reply | None:
        """The answer to a report that tells nothing new: most events by far, and no work."""
        message = event.message
        if not isinstance(message, ChildReport):
            return None
        child = self._children.get(message.child.child)
        if child is None or child.state is not State.RUNNING or child.peer != event.peer:
            return None
        if child.epoch != message.child.epoch:
            return None
        return Reply(event.peer, keep(child, self._leader, message.id))

    # --- requests ---------------------------------------------------------------------------------

    def _registered(self, epoch: int, now: float) -> list[Effect]:
        if epoch > self._host_epoch:
            self._host_epoch, self._counter = epoch, 0
        self._leader.start(now)
        return []

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
                    return [
                        Reply(
                            peer,
                            health.of_host(
                                message,
                                self._settings.host,
                                self._children,
                                self._leader,
                                self.stopping,
                            ),
                        )
                    ]
                case ChildReport():
                    return self._child_report(peer, message, now)
        except RequestError as error:
            return [Reply(peer, failure(message.id, str(error), error.code))]
        except InvalidName as error:
            return [Reply(peer, failure(message.id, str(error), InvalidRequest.code))]

    def _check_leader(self, epoch: int) -> None:
        if epoch < self._leader_epoch:
            raise StaleEpoch(
                f"a configuration manager with epoch {self._leader_epoch} leads, not {epoch}"
            )
        self._leader_epoch = epoch

    def _start(self, peer: Peer, message: Start, now: float) -> list[Effect]:
        self._check_start(message)
        self._check_leader(message.leader_epoch)
        wait = self._settings.start_seconds + KILL_SECONDS
        waiter = Waiter(peer, message.id, now + wait)
        child = self._children.get(child_name(message.queue, number_of(message)))
        if child is None:
            return self._start_new(message, waiter, now)
        if child.state is State.STOPPING or child.queue_id != message.queue_id:
            return self._start_after(child, message, waiter, now)
        if child.state is State.RUNNING:
            return [Reply(peer, Started(id=message.id, child=child.describe()))]
        if len(child.waiters) >= WAITERS_MAX:
            raise NoCapacity(f"{child.name} is being started for {WAITERS_MAX} others already")
        child.waiters.append(waiter)
        if child.state is State.FAILED:
            # Asked for again by somebody who knows better: it gets all its chances again.
            child.history = CrashHistory(self._settings.crashes)
            return self._spawn(child, State.RESTARTING, now)
        return []

    def _check_start(self, message: Start) -> None:
        check_start(message)
        if self.stopping:
            raise RequestError(f"the host manager of {self._settings.host} is stopping")
        if not self._host_epoch:
            raise RegistryAway(f"host {self._settings.host} is not registered yet; try again")

    def _start_new(self, message: Start, waiter: Waiter, now: float) -> list[Effect]:
        self._check_room(message)
        child = Child(
            role=EXCHANGE if isinstance(message, StartExchange) else MONITOR,
            queue=message.queue,
            queue_id=message.queue_id,
            number=number_of(message),
            limits=message.limits,
            history=CrashHistory(self._settings.crashes),
            monitor=message.monitor if isinstance(message, StartExchange) else "",
            restarted=isinstance(message, StartMonitor) and message.restarted,
        )
        self._children.add(child)
        child.waiters.append(waiter)
        return self._spawn(child, State.STARTING, now)

    def _check_room(self, message: Start) -> None:
        most = self._settings.exchange_max
        running = self._children.exchanges()
        if isinstance(message, StartExchange) and 0 < most <= running:
            raise NoCapacity(
                f"host {self._settings.host} runs {running} exchanges and may run {most} "
                "(exchange.max_perhost)"
            )
        if len(self._children) >= CHILDREN_MAX:
            raise NoCapacity(f"host {self._settings.host} runs {CHILDREN_MAX} processes already")

    def _start_after(
        self, child: Child, message: Start, waiter: Waiter, now: float
    ) -> list[Effect]:
        """The old process of that name must be gone first."""
        effects = [] if child.state is State.STOPPING else self._stop(child, "removed", now)
        if self._children.get(child.name) is not child:
            return effects + self._start_new(message, waiter, now)
        if child.successor is not None:
            text = f"{child.name} was asked for again since"
            effects += failures([child.successor[1]], text, UNAVAILABLE)
        child.successor = (message, waiter)
        return effects

    def _stop_queue(self, peer: Peer, message: StopQueue, now: float) -> list[Effect]:
        self._check_leader(message.leader_epoch)
        if len(self._stops) >= STOPS_MAX:
            raise NoCapacity(f"{STOPS_MAX} requests to stop something are under way already")
        chosen = self._children.select(message.queue, message.queue_id, message.number)
        whole = message.reason == "removed" and message.number == EVERYTHING
        effects: list[Effect] = [Forget(message.queue)] if whole else []
        for child in chosen:
            effects += self._stop(child, message.reason, now)
        left = {child.name for child in chosen if self._children.get(child.name) is child}
        if not left:
            return [*effects, Reply(peer, Done(id=message.id))]
        deadline = now + self._settings.stop_seconds + KILL_SECONDS
        self._stops.add(Stop(peer, message.id, left, deadline))
        return effects

    def _child_report(self, peer: Peer, message: ChildReport, now: float) -> list[Effect]:
        told = message.child
        child = self._children.get(told.child)
        if child is None or not child.alive or told.epoch != child.epoch:
            return [Reply(peer, ChildAck(id=message.id, action="stop"))]
        child.peer = peer
        if child.info is None and told.state == State.RUNNING:
            self._ports.took(child.name, check_report(told))
        if child.state is State.STOPPING:
            ack = ChildAck(id=message.id, action="stop", reason=child.stop_reason)
            return [Reply(peer, ack)]
        effects: list[Effect] = []
        if child.state is not State.RUNNING and not child.killed and told.state == State.RUNNING:
            child.info = told
            effects = self._now_running(child, now)
        return [Reply(peer, keep(child, self._leader, message.id)), *effects]

    # --- the life of a child ----------------------------------------------------------------------

    def _spawn(self, child: Child, state: State, now: float) -> list[Effect]:
        child.state = state
        self._leader.changed(now)
        if self._counter >= EPOCHS_MAX:
            text = f"this host manager has started {EPOCHS_MAX} processes: restart it"
            return self._give_up(child, text, now)
        self._counter += 1
        child.epoch = child_epoch(self._host_epoch, self._counter)
        child.alive, child.killed = True, False
        child.info = child.peer = None
        child.deadline = now + self._settings.start_seconds
        return [Spawn(make_spec(child, self._settings, self._ports.avoid(now)))]

    def _spawned(self, name: str, epoch: int, pid: int) -> list[Effect]:
        child = self._children.get(name)
        if child is not None and child.alive and child.epoch == epoch:
            child.pid = pid
        return []

    def _now_running(self, child: Child, now: float) -> list[Effect]:
        child.state = State.RUNNING
        child.ran = True
        child.deadline = None
        child.reason = ""
        self._leader.changed(now)
        text = f"{child.name} runs, epoch {child.epoch}, pid {child.pid}"
        effects: list[Effect] = [Note("child_running", text)]
        for waiter in child.take_waiters():
            started = Started(id=waiter.request_id, child=child.describe())
            effects.append(Reply(waiter.peer, started))
        return effects + self._pass_monitors_on()

    def _ended(self, name: str, epoch: int, how: str, now: float) -> list[Effect]:
        child = self._children.get(name)
        if child is None or not child.alive or child.epoch != epoch:
            return []
        self._ports.left(name, now)
        child.alive, child.pid, child.deadline = False, 0, None
        self._leader.changed(now)
        if child.state is State.STOPPING:
            return self._gone(child, now)
        if child.killed:
            how = f"did not report within {self._settings.start_seconds:g} s; {how}"
        if not child.ran:
            return self._give_up(child, how, now)
        return self._crashed(child, how, now)

    def _crashed(self, child: Child, how: str, now: float) -> list[Effect]:
        delay = child.history.crashed(now)
        if delay is None:
            limits = self._settings.crashes
            how = f"ended {limits.most} times within {limits.window_seconds:g} s, last: {how}"
            return self._give_up(child, how, now)
        child.reason = how
        effects: list[Effect] = [
            Note("child_crashed", f"{child.name}: {how}; starting again in {delay:g} s", True)
        ]
        if delay > 0:
            child.state = State.RESTARTING
            child.deadline = now + delay
            return effects
        return effects + self._spawn(child, State.RESTARTING, now)

    def _give_up(self, child: Child, reason: str, now: float) -> list[Effect]:
        """It does not run: it is forgotten if it never did, so that a start can be tried anew."""
        child.reason = reason
        child.info = None
        child.deadline = None
        text = f"{child.name} does not run on {self._settings.host}: {reason}"
        effects: list[Effect] = [Note("child_failed", text, True)]
        effects += failures(child.take_waiters(), text, RequestError.code)
        if child.ran:
            child.state = State.FAILED
            return effects
        return effects + self._gone(child, now)

    def _stop(self, child: Child, reason: str, now: float) -> list[Effect]:
        if child.state is State.STOPPING:
            return []
        self._leader.changed(now)
        child.state = State.STOPPING
        child.stop_reason = child.reason = reason
        text = f"{child.name} is being stopped"
        effects = failures(child.take_waiters(), text, UNAVAILABLE)
        if not child.alive:
            return effects + self._gone(child, now)
        child.deadline = now + self._settings.stop_seconds
        return [*effects, Terminate(child.name)]

    def _gone(self, child: Child, now: float) -> list[Effect]:
        self._children.drop(child)
        self._leader.changed(now)
        effects: list[Effect] = [
            Note("child_gone", f"{child.name} is gone"),
            Discard(child.name, with_log=child.stop_reason == "removed"),
        ]
        effects += [
            Reply(stop.peer, Done(id=stop.request_id)) for stop in self._stops.gone(child.name)
        ]
        if child.successor is not None:
            message, waiter = child.successor
            try:
                self._check_start(message)
                return effects + self._start_new(message, waiter, now)
            except RequestError as error:
                effects += failures([waiter], str(error), error.code)
        return effects

    # --- the leader -------------------------------------------------------------------------------

    def _report(self, request_id: int = 0) -> HostReport:
        return HostReport(
            id=request_id,
            cluster=self._leader.cluster,
            host=self._settings.host,
            epoch=self._host_epoch,
            control=self._settings.control,
            exchange_max=self._settings.exchange_max,
            children=[child.describe() for child in self._children],
        )

    def _leader_said(self, known: bool) -> list[Effect]:
        effects: list[Effect] = []
        trouble = self._leader.trouble
        if trouble and not self._trouble:
            effects.append(Note("leader_away", f"no leading manager yet: {trouble}", True))
        self._trouble = trouble
        if self._leader.known and not known:
            effects.append(Announce(self._leader.cluster))
        return effects + self._pass_monitors_on()

    def _pass_monitors_on(self) -> list[Effect]:
        """Tell exchanges at once when their monitor is somewhere else now."""
        return [
            Reply(child.peer, keep(child, self._leader))
            for child in self._children.follow_monitors(self._leader.monitors)
            if child.peer is not None and child.state is State.RUNNING
        ]

    # --- time and the end -------------------------------------------------------------------------

    def _time_passed(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for child in self._children:
            effects += self._waiters_late(child, now)
            if child.deadline is not None and now >= child.deadline:
                effects += self._due(child, now)
        for stop in self._stops.expire(now):
            text = f"{', '.join(sorted(stop.left))} did not end, not even when killed"
            effects.append(Reply(stop.peer, failure(stop.request_id, text, RequestError.code)))
        return effects + self._finish(now)

    def _next_due(self) -> float:
        deadlines: list[float | None] = [
            due for child in self._children for due in child.deadlines()
        ]
        deadlines += [self._stops.next_deadline(), self._leader.next_deadline()]
        if not self._finished:
            deadlines.append(self._finish_by)
        return min((each for each in deadlines if each is not None), default=inf)

    def _waiters_late(self, child: Child, now: float) -> list[Effect]:
        late = [waiter for waiter in child.waiters if now >= waiter.deadline]
        child.waiters = [waiter for waiter in child.waiters if now < waiter.deadline]
        if child.successor is not None and now >= child.successor[1].deadline:
            late.append(child.successor[1])
            child.successor = None
        text = f"{child.name} does not run in time: {child.reason or 'it has not reported yet'}"
        return failures(late, text, UNAVAILABLE)

    def _due(self, child: Child, now: float) -> list[Effect]:
        child.deadline = None
        if not child.alive:
            return self._spawn(child, State.RESTARTING, now)
        child.killed = True
        return [
            Note("child_killed", f"{child.name} is killed: it took too long", True),
            Kill(child.name),
        ]

    def _stop_all(self, now: float) -> list[Effect]:
        if self.stopping:
            return []
        self._finish_by = now + self._settings.stop_seconds + KILL_SECONDS
        effects: list[Effect] = []
        for child in self._children:
            effects += self._stop(child, "", now)
        return effects

    def _finish(self, now: float) -> list[Effect]:
        late = self._finish_by is not None and now >= self._finish_by
        if self._finished or not self.stopping or (len(self._children) and not late):
            return []
        self._finished = True
        return [Finished()]
