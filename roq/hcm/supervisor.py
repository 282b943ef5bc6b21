"""The life of each child: how it starts, crashes, is given up, and ends.

Rules only: which child is wanted is the machine's business, what a process is the shell's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from roq.errors import LogMissing, NoCapacity, RegistryAway, RequestError
from roq.hcm.children import (
    EVERYTHING,
    EXCHANGE,
    MONITOR,
    STATES,
    Child,
    ChildEpochs,
    Children,
    PortBook,
    Start,
    State,
    Stops,
    Waiter,
    check_start,
    number_of,
)
from roq.hcm.cpu import HostCpu
from roq.hcm.crash_history import CrashHistory
from roq.hcm.events import (
    Adopted,
    Discard,
    Effect,
    Erase,
    Exited,
    Kill,
    Note,
    Probed,
    Release,
    Remember,
    Reply,
    Rested,
    Spawn,
    Spawned,
    SpawnFailed,
    Terminate,
)
from roq.hcm.leader import Leader
from roq.hcm.liveness import STOPPED, Liveness
from roq.hcm.specs import Settings, adopted_child, make_spec
from roq.hcm.starts import Starts
from roq.model import VOLATILE, exchange_name
from roq.protocol.control import (
    UNAVAILABLE,
    ChildAck,
    Started,
    StartExchange,
    StartMonitor,
    failure,
)
from roq.protocol.spec import Spec

CHILDREN_MAX: Final = 2_000
UNENDING_SECONDS: Final = 10.0
"""A process that was killed and is still there after so long hangs in the system itself."""
LAST_LINE_MAX: Final = 300

ProcessEvent = Rested | Adopted | Spawned | SpawnFailed | Exited | Probed


class Supervisor:
    """All children, and what becomes of them.

    Attributes:
        children: by name.
        stops: requests that wait for children to be gone.
        processor: whether this host gets enough of it.
    """

    def __init__(self, settings: Settings, leader: Leader) -> None:
        self.children = Children()
        self._ports = PortBook()
        self.stops = Stops()
        self.processor = HostCpu()
        self._starts = Starts(settings.starts_max)
        self._settings = settings
        self._leader = leader
        self._epochs = ChildEpochs()
        self._liveness = Liveness(settings.hung_seconds)
        self._lacking: set[tuple[bytes, int]] = set()
        """(queue id, number) of the exchanges whose logs were looked for, and are not here."""
        self._ending = False

    def handle(self, event: ProcessEvent, now: float) -> list[Effect]:
        """Something has happened to a process."""
        match event:
            case Rested(ports):
                self._ports.rest(ports, now)
                return []
            case Adopted(spec, pid, ports):
                return self._adopt(spec, pid, ports, now)
            case Spawned(name, epoch, pid):
                return self._spawned(name, epoch, pid, now)
            case SpawnFailed():
                return self._refused(event, now)
            case Exited(name, epoch, status, last_line):
                how = _ending(status, last_line)
                return self._ended(name, epoch, how, now, by_itself=event.by_itself)
            case Probed():
                return self._probed(event, now)

    @property
    def host_epoch(self) -> int:
        """The epoch of this host; 0 until it is registered."""
        return self._epochs.host

    @property
    def epoch(self) -> int:
        """The host epoch under which children count."""
        return self._epochs.upper

    def registered(self, epoch: int) -> None:
        """This host has an epoch."""
        self._epochs.registered(epoch)

    def lacks(self, queue_id: bytes, number: int) -> bool:
        """Whether the log of this exchange (-1: one of this queue) should be here, and is not."""
        if number == EVERYTHING:
            return any(each == queue_id for each, _ in self._lacking)
        return (queue_id, number) in self._lacking

    # --- starting ---------------------------------------------------------------------------------

    def check_start(self, message: Start) -> None:
        """Refuse what cannot be started here, or not now.

        Raises:
            InvalidName, RequestError: says why.
        """
        check_start(message)
        if self._ending:
            raise RequestError(f"the host manager of {self._settings.host} is stopping")
        if not self._epochs.host:
            raise RegistryAway(f"host {self._settings.host} is not registered yet; try again")

    def count_from(self, base: int) -> None:
        """Whatever process starts here from now on has at least this epoch."""
        self._epochs.rise(base)

    def start_new(self, message: Start, waiter: Waiter, now: float) -> list[Effect]:
        """A child that is not here yet.

        Raises:
            NoCapacity: this host is full.
        """
        self._check_room(message)
        child = Child(
            role=EXCHANGE if isinstance(message, StartExchange) else MONITOR,
            queue=message.queue,
            queue_id=message.queue_id,
            number=number_of(message),
            limits=message.limits,
            history=CrashHistory(self._settings.crashes),
            monitor=message.monitor if isinstance(message, StartExchange) else "",
            cluster=message.cluster,
            durability=message.durability if isinstance(message, StartExchange) else VOLATILE,
            has_log=isinstance(message, StartExchange) and message.has_log,
            restarted=isinstance(message, StartMonitor) and message.restarted,
        )
        self.children.add(child)
        child.waiters.append(waiter)
        return self.spawn(child, State.STARTING, now)

    def _check_room(self, message: Start) -> None:
        most = self._settings.exchange_max
        running = self.children.exchanges()
        if isinstance(message, StartExchange) and 0 < most <= running:
            raise NoCapacity(
                f"host {self._settings.host} runs {running} exchanges and may run {most} "
                "(exchange.max_perhost)"
            )
        if len(self.children) >= CHILDREN_MAX:
            raise NoCapacity(f"host {self._settings.host} runs {CHILDREN_MAX} processes already")

    def start_after(self, child: Child, message: Start, waiter: Waiter, now: float) -> list[Effect]:
        """The old process of that name must be gone first."""
        effects = [] if child.state is State.STOPPING else self.stop(child, "removed", now)
        if self.children.get(child.name) is not child:
            return effects + self.start_new(message, waiter, now)
        if child.successor is not None:
            text = f"{child.name} was asked for again since"
            effects += _failures([child.successor[1]], text, UNAVAILABLE)
        child.successor = (message, waiter)
        return effects

    def spawn(self, child: Child, state: State, now: float) -> list[Effect]:
        """Its next process, under an epoch of its own."""
        child.state = STATES.step(child.state, state)
        self._leader.changed(now)
        try:
            child.epoch = self._epochs.next()
        except RequestError as error:
            return self._give_up(child, str(error), now)
        child.killed, child.excused = "", False
        child.info = child.peer = child.deadline = None
        if not self._starts.enter(child.name, now, patient=self.processor.patient(now)):
            child.waits = True
            return []
        return self._launch(child, now)

    def _launch(self, child: Child, now: float) -> list[Effect]:
        """It is its turn."""
        child.alive, child.waits, child.begun = True, False, now
        child.deadline = now + self._settings.start_seconds
        cluster = self._leader.cluster or child.cluster
        spec = make_spec(child, self._settings, cluster, self._ports.avoid(now))
        return [Spawn(spec, alone=child.history.suspect)]

    def _spawned(self, name: str, epoch: int, pid: int, now: float) -> list[Effect]:
        child = self.children.get(name)
        if child is not None and child.alive and child.epoch == epoch:
            child.pid = pid
            child.history.started(now)
        return []

    def _adopt(self, spec: Spec, pid: int, ports: tuple[int, ...], now: float) -> list[Effect]:
        child = adopted_child(spec, pid, CrashHistory(self._settings.crashes))
        child.begun = now
        # One that has told where it listens has its log by then.
        child.has_log = child.has_log or (bool(ports) and child.durability != VOLATILE)
        if self.children.get(child.name) is not None or len(self.children) >= CHILDREN_MAX:
            return []
        self._epochs.adopted(spec.epoch)
        self._leader.cluster = self._leader.cluster or spec.cluster
        child.deadline = now + self._settings.start_seconds
        self.children.add(child)
        self._ports.took(child.name, ports)
        text = f"{child.name} goes on, epoch {child.epoch}, pid {pid}"
        return [Note("child_adopted", text)]

    def now_running(self, child: Child, now: float) -> list[Effect]:
        """It has reported for the first time."""
        child.state = STATES.step(child.state, State.RUNNING)
        child.ran = True
        child.has_log = child.durability != VOLATILE
        self._lacking.discard((child.queue_id, child.number))
        child.history.serves(now)
        self._starts.leave(child.name)
        self.processor.back(child.name)
        self._liveness.heard(child, now)
        child.deadline = None
        child.reason = ""
        self._leader.changed(now)
        text = f"{child.name} runs, epoch {child.epoch}, pid {child.pid}"
        effects: list[Effect] = [Note("child_running", text)]
        for waiter in child.take_waiters():
            started = Started(id=waiter.request_id, child=child.describe())
            effects.append(Reply(waiter.peer, started))
        return effects + self.pass_monitors_on()

    # --- ending -----------------------------------------------------------------------------------

    def ended(self, child: Child, how: str, now: float) -> list[Effect]:
        """Its process says that it is no more; `how` in words."""
        retire = child.state is not State.STOPPING
        return [Release(child.name, retire=retire), *self._ended(child.name, child.epoch, how, now)]

    def _ended(
        self, name: str, epoch: int, how: str, now: float, *, by_itself: bool = True
    ) -> list[Effect]:
        """It is no more, or its process is gone; `how` in words."""
        child = self.children.get(name)
        if child is None or not child.alive or child.epoch != epoch:
            return []
        self._ports.left(name, now)
        if child.state is State.STOPPING:
            return self._gone(self._dead(child, now), now)
        if child.state is State.FAILED and not child.excused:
            child = self._dead(child, now)
            return [] if child.ran else self._gone(child, now)
        how = f"{child.killed}; {how}" if child.killed else how
        return self._fell(self._dead(child, now), how, now, by_itself=by_itself)

    def _fell(self, child: Child, how: str, now: float, *, by_itself: bool) -> list[Effect]:
        """It has ended though it was wanted.

        One whose log is here can be started nowhere else, so it is no use to give it up, or to let
        it wait for long, for what was done to it.
        """
        if not child.ran:
            return self._give_up(child, how, now)
        hung_at_start = bool(child.killed) and not child.history.serving
        if child.durability != VOLATILE and not (by_itself or hung_at_start or child.excused):
            return self._again(child, how, child.history.killed(now), now)
        if child.excused:
            child.history.excused()
            return self._again(child, how, 0.0, now)
        delay = child.history.crashed(now)
        if delay is None:
            limits = self._settings.crashes
            how = f"ended {limits.most} times within {limits.window_seconds:g} s, last: {how}"
            return self._give_up(child, how, now)
        return self._again(child, how, delay, now)

    def _refused(self, refused: SpawnFailed, now: float) -> list[Effect]:
        """The system could not start its process."""
        child = self.children.get(refused.child)
        if child is None or not child.alive or child.epoch != refused.epoch:
            return []
        how = f"could not be started: {refused.reason}"
        self._dead(child, now)
        if child.state is State.STOPPING:
            return self._gone(child, now)
        if refused.no_log:
            return self._without_log(child, refused.reason, now)
        delay = child.history.refused(now) if child.ran else None
        if delay is None:
            return self._give_up(child, how, now)
        return self._again(child, how, delay, now)

    def _dead(self, child: Child, now: float) -> Child:
        pid, child.alive, child.pid, child.deadline = child.pid, False, 0, None
        self._starts.leave(child.name)
        if not self.children.of_process(pid):
            self._liveness.forget(pid)
        self._leader.changed(now)
        return child

    def _again(self, child: Child, how: str, delay: float, now: float) -> list[Effect]:
        child.reason = how
        effects: list[Effect] = [
            Note("child_crashed", f"{child.name}: {how}; starting again in {delay:g} s", True)
        ]
        if delay > 0:
            child.state = STATES.step(child.state, State.RESTARTING)
            child.deadline = now + delay
            return effects
        return effects + self.spawn(child, State.RESTARTING, now)

    def _give_up(self, child: Child, reason: str, now: float) -> list[Effect]:
        """It does not run: it is forgotten if it never did, so that a start can be tried anew."""
        child.reason = reason
        child.info = None
        child.deadline = None
        text = f"{child.name} does not run on {self._settings.host}: {reason}"
        effects: list[Effect] = [Note("child_failed", text, True)]
        effects += _failures(child.take_waiters(), text, RequestError.code)
        if child.ran:
            child.state = STATES.step(child.state, State.FAILED)
            return effects
        return effects + self._gone(child, now)

    def _without_log(self, child: Child, reason: str, now: float) -> list[Effect]:
        """Its log is not here, so whether it runs here is not this host's to decide any more."""
        text = (
            f"{reason} on host {self._settings.host}: mount the disk, or give it up by `roq "
            f"exchange forget {child.queue} {exchange_name(child.number)}`"
        )
        self._epochs.unused(child.epoch)
        if len(self._lacking) < CHILDREN_MAX:
            self._lacking.add((child.queue_id, child.number))
        effects: list[Effect] = [Note("log_missing", text, warning=True)]
        effects += _failures(child.take_waiters(), text, LogMissing.code)
        return effects + self._gone(child, now)

    def stop(self, child: Child, reason: str, now: float) -> list[Effect]:
        """It is not wanted any more; `reason` is for its clients."""
        if child.state is State.STOPPING:
            return []
        self._leader.changed(now)
        child.state = STATES.step(child.state, State.STOPPING)
        if child.waits:
            child.waits = False
            self._starts.give_up(child.name)
        child.stop_reason = child.reason = reason
        text = f"{child.name} is being stopped"
        effects = _failures(child.take_waiters(), text, UNAVAILABLE)
        if not child.alive:
            return effects + self._gone(child, now)
        child.deadline = now + self._settings.stop_seconds
        return [*effects, Terminate(child.name)]

    def _gone(self, child: Child, now: float) -> list[Effect]:
        STATES.leave(child.state)
        self.children.drop(child)
        self._leader.changed(now)
        effects: list[Effect] = [
            Note("child_gone", f"{child.name} is gone"),
            Discard(child.name, with_log=child.stop_reason == "removed"),
        ]
        if child.erase:  # who waits is answered when its log is gone, too
            effects.append(Erase(child.queue, child.queue_id, child.number, child.spares))
        else:
            effects += [stop.reply() for stop in self.stops.gone(child.name)]
        if child.successor is not None:
            message, waiter = child.successor
            try:
                self.check_start(message)
                return effects + self.start_new(message, waiter, now)
            except RequestError as error:
                effects += _failures([waiter], str(error), error.code)
        return effects

    def leaves(self, child: Child, why: str, now: float) -> list[Effect]:
        """A child ends though nobody has asked it to, and is not to be started again."""
        child.state = STATES.step(child.state, State.STOPPING)
        child.reason = why
        child.deadline = now + self._settings.stop_seconds
        self._leader.changed(now)
        text = f"{child.name} ends: {why}"
        return [Note("child_leaves", text), *_failures(child.take_waiters(), text, UNAVAILABLE)]

    def stop_all(self, now: float) -> list[Effect]:
        """The host manager ends: stop everything, and start nothing any more."""
        self._ending = True
        return [effect for child in self.children for effect in self.stop(child, "", now)]

    # --- time -------------------------------------------------------------------------------------

    def time_passed(self, now: float) -> list[Effect]:
        """What is due by now."""
        effects: list[Effect] = []
        for child in self.children:
            effects += self._waiters_late(child, now)
            if child.deadline is not None and now >= child.deadline:
                effects += self._due(child, now)
        for name in self._starts.turns(now, patient=self.processor.patient(now)):
            waiting = self.children.get(name)
            if waiting is not None:
                effects += self._launch(waiting, now)
        effects += self._liveness.look(self.children, now)
        for stop in self.stops.expire(now):
            text = f"{', '.join(sorted(stop.left))} did not end, not even when killed"
            effects.append(Reply(stop.peer, failure(stop.request_id, text, RequestError.code)))
        return effects

    def deadlines(self, now: float) -> Iterator[float]:
        """The times at which something is due."""
        for child in self.children:
            yield from child.deadlines()
        for due in (
            self.stops.next_deadline(),
            self._liveness.next_deadline(),
            self._starts.next_deadline(patient=self.processor.patient(now)),
        ):
            if due is not None:
                yield due

    def check(self) -> None:
        """Assert the invariants."""
        self.children.check()
        waiting = {child.name for child in self.children if child.waits}
        assert waiting == set(self._starts)  # noqa: S101
        assert len(self.children) <= CHILDREN_MAX  # noqa: S101

    def _waiters_late(self, child: Child, now: float) -> list[Effect]:
        late = [waiter for waiter in child.waiters if now >= waiter.deadline]
        child.waiters = [waiter for waiter in child.waiters if now < waiter.deadline]
        if child.successor is not None and now >= child.successor[1].deadline:
            late.append(child.successor[1])
            child.successor = None
        if not late:
            return []
        turn = "it waits for its turn to be started" if child.waits else "it has not reported yet"
        text = f"{child.name} does not run in time: {child.reason or turn}{self._shortage(now)}"
        return _failures(late, text, UNAVAILABLE)

    def _shortage(self, now: float) -> str:
        """Why everything takes so long, as the end of a sentence."""
        if not self.processor.patient(now):
            return ""
        return f"; this host gets too little processor: {self.processor.text()}"

    def _due(self, child: Child, now: float) -> list[Effect]:
        child.deadline = None
        if not child.alive:
            return self.spawn(child, State.RESTARTING, now)
        if child.killed:
            return self._unending(child, now)
        if child.state is State.STOPPING:
            return self._kill(child, f"did not end within {self._settings.stop_seconds:g} s", now)
        latest = child.begun + self.processor.stretched(self._settings.start_seconds, now)
        if now < latest or not self.processor.may_judge(now):
            child.deadline = max(min(latest, now + self._settings.start_seconds), now + 1.0)
            return []
        return self._judge(child, f"did not report within {now - child.begun:.3g} s", now)

    def _judge(self, child: Child, why: str, now: float, *, certain: bool = False) -> list[Effect]:
        """It is given up by its silence, which need not be its fault unless that is certain."""
        child.excused = self.processor.patient(now) and not certain
        self.processor.judged(child.name, now)
        return self._kill(child, why + self._shortage(now) * child.excused, now)

    def _kill(self, child: Child, why: str, now: float) -> list[Effect]:
        if self._serves_others(child, now):
            text = f"{child.name} is given up: it {why}"
            return [Note("child_released", text, True), *self.ended(child, why, now)]
        child.killed = why
        child.deadline = now + self.processor.stretched(UNENDING_SECONDS, now)
        return [Note("child_killed", f"{child.name} is killed: it {why}", True), Kill(child.name)]

    def _serves_others(self, child: Child, now: float) -> bool:
        """Whether the process of a child is well, and serves others: it is not to be killed."""
        return len(self.children.of_process(child.pid)) > 1 and self._liveness.lives(child.pid, now)

    def _unending(self, child: Child, now: float) -> list[Effect]:
        """Not even SIGKILL ends it: nobody is to wait for it any more."""
        reason = f"process {child.pid} {child.killed} and does not end, not even when killed"
        if not child.excused:
            reason += ": does a disk or a network file system of this host hang?"
        child.reason = reason
        self._leader.changed(now)
        effects: list[Effect] = [Note("child_unending", f"{child.name}: {reason}", True)]
        if child.state is not State.STOPPING:
            child.state = STATES.step(child.state, State.FAILED)
            child.info = None
            effects += _failures(child.take_waiters(), f"{child.name}: {reason}", RequestError.code)
        return effects

    # --- being alive ------------------------------------------------------------------------------

    def listens(self, child: Child, ports: tuple[int, ...]) -> list[Effect]:
        """A child has told where it listens."""
        return [Remember(child.name, ports)] if self._ports.took(child.name, ports) else []

    def heard(self, child: Child, now: float, *, idle: bool) -> None:
        """A child that runs has reported; idle: it serves nobody at present."""
        self._liveness.heard(child, now, idle=idle)

    def _probed(self, probed: Probed, now: float) -> list[Effect]:
        """The system says how a silent child is."""
        child = self.children.get(probed.child)
        if child is None or child.epoch != probed.epoch or child.state is not State.RUNNING:
            return []
        why = self._liveness.verdict(child, probed, now, self.processor.silence(now))
        if not why or not self.processor.may_judge(now):
            return []
        self._liveness.forget(child.pid)
        self._leader.changed(now)
        effects: list[Effect] = []
        for each in self.children.of_process(child.pid):
            if each.state is State.RUNNING:
                each.state = STATES.step(each.state, State.RESTARTING)
                each.info = None
                each.reason = f"has hung: it {why}"
                effects += self._judge(each, why, now, certain=probed.state in STOPPED)
        return effects

    def pass_monitors_on(self) -> list[Effect]:
        """Tell exchanges at once when their monitor is somewhere else now."""
        return [
            Reply(child.peer, keep(child, self._leader))
            for child in self.children.follow_monitors(self._leader.monitors)
            if child.peer is not None and child.state is State.RUNNING
        ]


def keep(child: Child, leader: Leader, request_id: int = 0) -> ChildAck:
    """Go on. An exchange hears where its monitor is, a monitor where the leading manager is."""
    if child.role == "monitor":
        return ChildAck(id=request_id, leader=leader.leading, child=child.name)
    return ChildAck(id=request_id, monitor=child.monitor)


def _failures(waiters: Iterable[Waiter], text: str, code: str) -> list[Effect]:
    """The same refusal for all who waited."""
    return [Reply(each.peer, failure(each.request_id, text, code)) for each in waiters]


def _ending(status: str, last_line: str) -> str:
    """How a process ended, with the last line of its log if there is one."""
    return f"{status}; its log ends with: {last_line[:LAST_LINE_MAX]}" if last_line else status
