"""What a monitor decides: who serves, who publishes where, whom to tell.

    SETTLING --all have reported--> RUNNING --stop wanted--> STOPPING --said goodbye--> finished
                                        \\--a newer one is there--/

A monitor knows nothing at its start: exchanges tell it about themselves. One that takes the place
of another (`restarted`) settles first: until all exchanges have had the time to report, it shows
nobody a list of exchanges, because one that is missing there counts as gone for good. Publishers
are served from the first exchange on.

One that hears that another has taken its place, from the configuration manager or from an exchange
that reports there now, says nothing about the queue any more, and ends: clients look for the other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from roq.errors import QueueNotFound, QueueStopped, RequestError, Unavailable
from roq.machine import STALL_SECONDS, ObservedClock, Tick, Transitions
from roq.model import Limits, exchange_name
from roq.monitor.elasticity import Elasticity
from roq.monitor.emptying import Emptying
from roq.monitor.events import (
    Effect,
    Event,
    Finished,
    LeaderAnswered,
    Listened,
    Note,
    Peer,
    Publish,
    Push,
    Received,
    Send,
    StopWanted,
)
from roq.monitor.exchanges import Exchanges, ReportOutcome
from roq.monitor.health import of_monitor
from roq.monitor.kpis import Kpis, Standing
from roq.monitor.order_questions import pass_on
from roq.monitor.publishers import EPOCH_END, PublisherEpochs, Publishers, Waiting
from roq.monitor.scaling_rules import PolicyNamed, own_policy
from roq.monitor.sessions import PUBLISHER, SUBSCRIBER, Sessions
from roq.monitor.takeover_wait import TakeoverWait, WaitingSubscribers
from roq.protocol.control import (
    NOT_LEADER,
    UNAVAILABLE,
    Alive,
    Answer,
    Assigned,
    Attach,
    Configure,
    Done,
    Empty,
    ExchangeAck,
    ExchangeReport,
    Failure,
    Health,
    HealthRequest,
    Join,
    Leave,
    MonitorRequest,
    OrderAsk,
    OrderTold,
    Relocated,
    Topology,
    Version,
    failure,
)
from roq.protocol.control import Elasticity as LeaderElasticity
from roq.timing import IDLE_FACTOR, VERSION_SECONDS

GOODBYE_SECONDS: Final = 0.3
"""Time for the last messages to leave before the sockets are closed."""
STALE: Final = "stale_epoch"
REMOVED: Final = "removed"
QUEUE_GONE: Final = {"stopped": QueueStopped, "removed": QueueNotFound}


class State(StrEnum):
    """Where the monitor stands."""

    SETTLING = "takeover"
    RUNNING = "running"
    STOPPING = "stopping"


STATES: Final = Transitions(
    begin={
        State.SETTLING: "in the place of an earlier monitor",
        State.RUNNING: "of a new queue",
    },
    follow={
        State.SETTLING: {
            State.RUNNING: "all exchanges have reported, or have had the time",
            State.STOPPING: "told to end",
        },
        State.RUNNING: {State.STOPPING: "told to end"},
    },
    end={State.STOPPING: "clients have been told"},
)


class Ending(RequestError):
    """This monitor ends; there may be another one."""

    code = UNAVAILABLE


class MonitorMachine:
    """The monitor of one queue.

    Args:
        queue: name of the queue.
        queue_id: of this life of the queue; messages for another one are refused.
        epoch: of this process.
        control: where it answers.
        limits: of the queue.
        kpi_seconds: between two rounds on the statistics stream.
        restarted: another monitor of this queue was there before, so exchanges may be, too.
        now: the present time.
        policy_named: gives the policy of a name, or raises a RoQError.
    """

    def __init__(
        self,
        *,
        queue: str,
        queue_id: bytes,
        epoch: int,
        limits: Limits,
        kpi_seconds: float,
        restarted: bool,
        now: float,
        control: str = "",
        policy_named: PolicyNamed = own_policy,
    ) -> None:
        self.state = State.SETTLING if restarted else State.RUNNING
        self.version = 1
        self.superseded = False
        """Whether another monitor has taken over."""
        self._queue = queue
        self._queue_id = queue_id
        self._epoch = epoch
        self._limits = limits
        self._kpi_seconds = kpi_seconds
        self._clock = ObservedClock(now)
        self._exchanges = Exchanges()
        self._sessions = Sessions()
        self._epochs = PublisherEpochs(epoch)
        self._publishers = Publishers(limits.throughput_bytes)
        self._elasticity = Elasticity(
            queue=queue, queue_id=queue_id, epoch=epoch, control=control, limits=limits,
            kpi_seconds=kpi_seconds, restarted=restarted, exchanges=self._exchanges,
            sessions=self._sessions, epochs=self._epochs, policy_named=policy_named, now=now,
        )  # fmt: skip
        self._kpis = Kpis(queue, queue_id, epoch, limits.throughput_bytes)
        self._waiting_subscribers = WaitingSubscribers()
        self._takeover = TakeoverWait()
        self._reason = ""
        self._finish_at: float | None = None
        self._version_at = now + VERSION_SECONDS
        self._kpi_at = now + kpi_seconds
        self._listened = True
        """Whether anybody listens to the statistics, or may."""
        self._now = now

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and give the effects, in order."""
        observed = self._now = self._clock.read(now)
        effects: list[Effect] = []
        match event:
            case Received(peer, message):
                effects = self._received(peer, message, observed)
            case StopWanted(reason):
                effects = self._stop(reason, observed)
            case LeaderAnswered(serial, answer):
                effects = self._leader_answered(serial, answer, observed)
            case Listened(anybody):
                self._listened = anybody
            case Tick():
                pass
        effects += self._time_passed(observed)
        self._clock.stall_seconds = STALL_SECONDS * self._pace
        return effects

    @property
    def emptying(self) -> Emptying:
        """The exchanges that are to go, and what each of them waits for."""
        return self._elasticity.emptying

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted at the latest."""
        if self.state is State.STOPPING:
            # Nothing else is done any more: a deadline that nobody serves would come at once.
            return None if self._finish_at is None else self._clock.outside(self._finish_at)
        deadlines = [
            self._version_at,
            self._kpi_at,
            self._takeover.next_deadline() if self.state is State.SETTLING else None,
            self._exchanges.next_deadline(),
            self._waiting_subscribers.next_deadline(),
            self._publishers.next_deadline(),
            self._elasticity.next_deadline(),
        ]
        return self._clock.outside(min(each for each in deadlines if each is not None))

    def check(self) -> None:
        """Assert the invariants."""
        self._exchanges.check()
        self._sessions.check()
        self._publishers.check(self._now)
        self._elasticity.check()
        assert not (len(self._waiting_subscribers) and self.state is not State.SETTLING)  # noqa: S101
        assert not (len(self._publishers) and self.state is State.STOPPING)  # noqa: S101

    # --- messages ---------------------------------------------------------------------------------

    def _received(self, peer: Peer, message: MonitorRequest, now: float) -> list[Effect]:
        try:
            return self._dispatch(peer, message, now)
        except RequestError as error:
            if isinstance(message, Leave | Relocated):
                return []
            return [Send(peer, failure(message.id, str(error), error.code))]

    def _dispatch(  # noqa: PLR0911 - one per message
        self, peer: Peer, message: MonitorRequest, now: float
    ) -> list[Effect]:
        if isinstance(message, HealthRequest):
            return [Send(peer, self._health(message.id))]
        if message.queue_id != self._queue_id:
            raise QueueNotFound(
                f"this is the monitor of queue {self._queue}, but of another one of that name"
            )
        match message:
            case ExchangeReport():
                return self._exchange_report(peer, message, now)
            case Attach():
                return self._attach(peer, message, now)
            case Join():
                return self._join(peer, message, now)
            case Alive():
                return self._alive(peer, message, now)
            case Leave():
                return self._leave(message)
            case OrderAsk() | OrderTold():
                settled = self.state is State.RUNNING
                rules = self._elasticity.rules
                return pass_on(message, self._exchanges, rules, settled=settled)
            case Relocated() | Empty() | Configure():
                return self._elastic(peer, message, now)

    def metrics(self) -> dict[str, float]:
        """Gauges of this monitor for the metrics of its host manager."""
        return {
            "exchanges": len(self._exchanges),
            "publishers": len(self._sessions.publishers()),
            "subscribers": len(self._sessions.subscribers()),
            "moves": self._elasticity.moves.begun,
        }

    def _health(self, request_id: int) -> Health:
        serving, rules = self._exchanges.numbers(), self._elasticity.rules
        # What it has not been able to compare it has called different.
        held = {each.number: each.held for each in self._exchanges if each.held and rules.known}
        return of_monitor(
            self._queue,
            self.state,
            takeover=self.state is State.SETTLING,
            serving=serving,
            missing=self._takeover.missing(serving),
            trouble=rules.trouble,
            policy_trouble=self._elasticity.policy_trouble,
            holding=[each.info.number for each in self._exchanges if each.load.holding],
            behind=[each.info.number for each in self._exchanges if each.load.behind],
            full={each.number: each.disk_full for each in self._exchanges if each.disk_full},
            unread={each.number: each.unread for each in self._exchanges if each.unread},
            held=held,
            apart=self._exchanges.groups_apart(rules.logs) if held else ({}, []),
            request_id=request_id,
        )

    def _elastic(
        self, peer: Peer, message: Relocated | Empty | Configure, now: float
    ) -> list[Effect]:
        self._refuse_when_gone()
        match message:
            case Relocated():
                return self._elasticity.relocated(message, now)
            case Configure():
                done = Send(peer, Done(id=message.id))
                return [done, *self._elasticity.configured(now)]
            case Empty() if self.state is State.SETTLING:
                text = "this monitor has just taken over and does not know all exchanges yet"
                return [Send(peer, failure(message.id, f"{text}: ask again"))]
            case Empty():
                return self._elasticity.empty(peer, message, now)

    def _leader_answered(
        self, serial: int, answer: Answer | Unavailable, now: float
    ) -> list[Effect]:
        if self.state is State.STOPPING:
            return []
        rules = self._elasticity.rules
        logs, services = rules.logs, rules.services
        effects = self._elasticity.answered(serial, answer, now)
        if (rules.services or {}) != (services or {}):
            ack = ExchangeAck(epoch=self._epoch, services=rules.services)
            effects += [Send(each.peer, ack) for each in self._exchanges if each.peer is not None]
        if rules.logs != logs:
            effects += self._topology_changed()
        self._publishers.limit = self._kpis.limit = rules.limit
        if isinstance(answer, LeaderElasticity):
            self._takeover.told(answer.exchanges, now)
        elif isinstance(answer, Failure) and answer.RESULT != NOT_LEADER:
            self._takeover.told(None, now)
        return effects + self._step_aside(rules.superseded, now) if rules.superseded else effects

    def _exchange_report(self, peer: Peer, message: ExchangeReport, now: float) -> list[Effect]:
        outcome = self._exchanges.report(message, peer, now)
        if outcome is ReportOutcome.STALE:
            return [Send(peer, ExchangeAck(id=message.id, code=STALE))]
        if outcome is ReportOutcome.DISMISSED:
            return [Send(peer, ExchangeAck(id=message.id, code=REMOVED))]
        hold = self._elasticity.rules.hold
        same_groups = self._elasticity.compare_groups(message.exchange.number, now)
        retire = self._elasticity.retires(message.exchange.number)
        if not retire:
            self._exchanges.serves_on(message.exchange.number)
        ack = ExchangeAck(
            id=message.id, epoch=self._epoch, hold_seconds=hold, retire=retire,
            services=self._elasticity.rules.services,
            same_groups=same_groups,
        )  # fmt: skip
        effects: list[Effect] = [Send(peer, ack)]
        if self._epoch < message.monitor < EPOCH_END:
            name = exchange_name(message.exchange.number)
            return effects + self._step_aside(f"{name} reports to a newer one", now)
        if outcome is ReportOutcome.CHANGED:
            # Subscribers learn of an exchange before publishers are sent there.
            effects += self._topology_changed()
        effects += self._serve_waiting()
        exchange = self._exchanges.numbered(message.exchange.number)
        if exchange is None or self.state is State.STOPPING:
            return effects
        return effects + self._elasticity.reported(exchange, now)

    def _attach(self, peer: Peer, message: Attach, now: float) -> list[Effect]:
        self._refuse_when_gone()
        session, _ = self._sessions.touch(message.publisher, PUBLISHER, peer, now)
        session.name = message.name or session.name
        waiting = Waiting(peer, message, now)
        assigned = self._assign(waiting)
        older = self._publishers.forget(message.publisher)
        effects: list[Effect] = []
        if older is not None:
            text = "this publisher has asked again since"
            effects.append(Send(older.peer, failure(older.message.id, text)))
        if assigned:
            return effects + assigned
        self._publishers.wait(waiting)
        return effects

    def _join(self, peer: Peer, message: Join, now: float) -> list[Effect]:
        self._refuse_when_gone()
        self._sessions.touch(message.subscriber, SUBSCRIBER, peer, now)
        return self._show_topology(message.subscriber, peer, message.id)

    def _alive(self, peer: Peer, message: Alive, now: float) -> list[Effect]:
        if self.state is State.STOPPING:
            return [Send(peer, self._topology(message.id))] if self._reason else []
        session, is_new = self._sessions.touch(message.client, message.role, peer, now)
        self._sessions.told(session, message)
        effects = self._elasticity.alive(session, message, now)
        if is_new or message.version != self.version:
            effects += self._show_topology(message.client, peer, message.id)
        return effects

    def _leave(self, message: Leave) -> list[Effect]:
        self._sessions.leave(message.client)
        return self._gone(message.client)

    def _gone(self, client: bytes) -> list[Effect]:
        self._publishers.forget(client)
        self._waiting_subscribers.forget(client)
        return self._elasticity.gone(client)

    def _refuse_when_gone(self) -> None:
        if self.state is State.STOPPING:
            kind = QUEUE_GONE.get(self._reason, Ending)
            raise kind(self._goodbye())

    # --- exchanges and publishers -----------------------------------------------------------------

    def _assign(self, waiting: Waiting) -> list[Effect]:
        """The exchange for a publisher that waits; nothing if there is none."""
        session = self._sessions.find(waiting.message.publisher)
        exchange = self._publishers.choose(
            waiting, self._exchanges, self._sessions, self._elasticity.moves.shift
        )
        if session is None or exchange is None:
            return []
        epoch = self._epochs.next(above=session.epoch)
        self._sessions.place(session, [exchange.key], epoch)
        assigned = Assigned(
            id=waiting.message.id, exchange=exchange.info, epoch=epoch, limits=self._limits
        )
        return [Send(waiting.peer, assigned), *self._elasticity.assigned(session.client)]

    def _serve_waiting(self) -> list[Effect]:
        effects: list[Effect] = []
        for waiting in self._publishers:
            assigned = self._assign(waiting)
            if assigned:
                self._publishers.forget(waiting.message.publisher)
                effects += assigned
        return effects

    def _topology(self, request_id: int = 0) -> Topology:
        emptied = self._elasticity.emptying.emptied(self._now)
        # The manager says a moment later that it has none of these any more.
        logs = self._elasticity.rules.logs.difference(log.number for log in emptied)
        return Topology(
            id=request_id,
            queue_id=self._queue_id,
            epoch=self._epoch,
            version=self.version,
            exchanges=self._exchanges.infos(),
            state=self._reason or "running",
            emptied=emptied,
            logs=sorted(logs),
        )

    def _topology_changed(self) -> list[Effect]:
        self.version += 1
        return [] if self.state is State.SETTLING else self._push(self._topology())

    def _show_topology(self, client: bytes, peer: Peer, request_id: int) -> list[Effect]:
        if self.state is not State.SETTLING:
            return [Send(peer, self._topology(request_id))]
        return (
            self._waiting_subscribers.wait(client, peer, request_id, self._now)
            if request_id
            else []
        )

    def _push(self, message: Topology | Version) -> list[Effect]:
        peers = self._sessions.peers()
        return [Push(peers, message)] if peers else []

    # --- time -------------------------------------------------------------------------------------

    def _time_passed(self, now: float) -> list[Effect]:
        if self.state is State.STOPPING:
            return self._finish(now)
        effects: list[Effect] = []
        lost = self._exchanges.expire(now)
        for exchange in lost:
            self._elasticity.lost(exchange, now)
        if lost:
            effects += self._topology_changed()
        if self.state is State.SETTLING and self._takeover.over(self._exchanges.numbers(), now):
            effects += self._settle()
        effects += self._waiting_subscribers.expire(now)
        for waiting in self._publishers.expire(now):
            text = f"no exchange of queue {self._queue} serves at the moment"
            effects.append(Send(waiting.peer, failure(waiting.message.id, text)))
        effects += self._elasticity.time_passed(now)
        if now >= self._version_at:
            effects += self._every_second(now)
        if now >= self._kpi_at:
            effects += self._publish_kpis(now)
        return effects

    @property
    def _pace(self) -> int:
        """So many times less often everything happens: nobody is there to hear of it."""
        idle = self._exchanges.idle and not len(self._sessions) and not self._listened
        return IDLE_FACTOR if idle else 1

    def _settle(self) -> list[Effect]:
        self.state = STATES.step(self.state, State.RUNNING)
        text = f"has taken over: {self._takeover.outcome(self._exchanges.numbers())}"
        answers: list[Effect] = [
            Send(each.peer, self._topology(each.request))
            for each in self._waiting_subscribers.take()
        ]
        return [Note("taken_over", text), *answers, *self._push(self._topology())]

    def _every_second(self, now: float) -> list[Effect]:
        self._version_at = _next(self._version_at, VERSION_SECONDS * self._pace, now)
        effects = [each for client in self._sessions.expire(now) for each in self._gone(client)]
        if self.state is State.SETTLING:
            return effects
        return effects + self._push(
            Version(queue_id=self._queue_id, epoch=self._epoch, version=self.version)
        )

    def _publish_kpis(self, now: float) -> list[Effect]:
        self._kpi_at = _next(self._kpi_at, self._kpi_seconds * self._pace, now)
        if not self._listened:
            self._kpis.pass_over(self._exchanges, self._sessions, now)
            return []
        standing = Standing(
            version=self.version,
            waiting=len(self._publishers),
            moving=len(self._elasticity.moves),
            policy=self._elasticity.rules.in_force.policy,
            policy_errors=self._elasticity.policy_errors,
        )
        messages = self._kpis.messages(self._exchanges, self._sessions, standing, now)
        return [Publish(frames) for frames in messages]

    # --- the end ----------------------------------------------------------------------------------

    def _stop(self, reason: str, now: float) -> list[Effect]:
        if self.state is State.STOPPING:
            return []
        self.state = STATES.step(self.state, State.STOPPING)
        self._reason = reason if reason in QUEUE_GONE else ""
        self._finish_at = now + GOODBYE_SECONDS
        code = QUEUE_GONE[self._reason].code if self._reason else UNAVAILABLE
        unanswered = [(each.peer, each.message.id) for each in self._publishers]
        unanswered += [(each.peer, each.request) for each in self._waiting_subscribers.take()]
        for waiting in self._publishers:
            self._publishers.forget(waiting.message.publisher)
        effects: list[Effect] = [
            Send(peer, failure(request_id, self._goodbye(), code))
            for peer, request_id in unanswered
        ]
        effects += self._elasticity.end(self._goodbye(), code)
        if self._reason:
            self.version += 1
            effects += self._push(self._topology())
        return effects

    def _step_aside(self, reason: str, now: float) -> list[Effect]:
        """Another monitor has taken over; whatever this one would say is out of date."""
        if self.state is State.STOPPING:
            return []
        self.superseded = True
        text = f"another monitor has taken over: {reason}; this one ends"
        return [Note("superseded", text, warning=True), *self._stop("", now)]

    def _finish(self, now: float) -> list[Effect]:
        if self._finish_at is None or now < self._finish_at:
            return []
        self._finish_at = None
        return [Finished()]

    def _goodbye(self) -> str:
        return f"queue {self._queue} {'was ' + self._reason if self._reason else 'has no monitor'}"


def _next(due: float, period: float, now: float) -> float:
    """When something that is done each period is due again.

    It keeps its beat, so that things with the same beat are done at one wake-up; after a pause it
    begins a new one.
    """
    return max(due + period, now + period / 2)
