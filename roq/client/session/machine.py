"""What a client knows of its queue's monitor, and what it does to find it again: pure.

`PHASES` says where it may stand; docs/states.md draws it.

It never gives up, and waits longer and longer, but never long (`roq.runtime.backoff`). A publisher
asks to be attached to an exchange once; when the monitor changes while the publisher's link works,
it only tells the new monitor that it is alive: data does not depend on monitors. A subscriber joins
every monitor anew, because it needs the topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from roq.client.session.events import (
    LOCATE_SECONDS,
    AliveWanted,
    AskManager,
    AskMonitor,
    AttachWanted,
    Cause,
    Close,
    DropMonitor,
    Effect,
    Event,
    ManagerAnswered,
    MonitorAnswered,
    MonitorLost,
    OpenMonitor,
    Pushed,
    ReportAssigned,
    ReportRelocate,
    ReportState,
    ReportTopology,
    SessionState,
    Start,
    Tell,
    TellMonitor,
    TopologyWanted,
)
from roq.errors import InvalidRequest, QueueNotFound, QueueStopped, Unavailable
from roq.machine import Tick, Transitions
from roq.model import Limits
from roq.protocol.control import (
    NOT_LEADER,
    Alive,
    Answer,
    Assigned,
    Attach,
    Control,
    Failure,
    Join,
    Leave,
    Located,
    Relocate,
    Topology,
    Version,
)
from roq.runtime.backoff import Backoff, Jitter
from roq.runtime.leader_finder import SEARCH_MOST_SECONDS, LeaderFinder
from roq.timing import CLIENT_ALIVE_SECONDS, CLIENT_ASKS_SECONDS, MONITOR_SILENT_SECONDS

SILENCE_SPREAD: Final = 0.2
"""All clients of a monitor hear it fall silent at the same instant: some wait this part longer."""
STEADY_SECONDS: Final = 5.0
"""A monitor that has been there for so long works: the next search begins at once."""
PATIENCE_MOST: Final = 4.0
"""So many times as long is waited for answers when they have not come in time."""
URGENT_MOST_SECONDS: Final = 1.0
"""The limit of a wait for a monitor while the publisher has no exchange, so nothing flows."""
ATTACH_MOST_SECONDS: Final = 0.5
"""A monitor that has no exchange to offer answers late, so it may be asked again soon."""
REMOVED_SECONDS: Final = 3.0
"""A queue that was there counts as removed when managers have not known it for so long: a registry
that was lost may be restored."""
GOODBYE_MS: Final = 200

PUBLISHER: Final = "publisher"
SUBSCRIBER: Final = "subscriber"
CONSUMER: Final = "consumer"

_NOT_NOW: Final = "unavailable"
"""Code of what may come true when it is asked again."""
_STATE_OF_CODE: Final = {
    QueueNotFound.code: SessionState.REMOVED,
    QueueStopped.code: SessionState.STOPPED,
}


class SessionPhase(StrEnum):
    """Where a session stands."""

    IDLE = "idle"
    LOCATING = "locating"
    JOINING = "joining"
    ACTIVE = "active"
    WAITING = "waiting"
    CLOSED = "closed"


PHASES: Final = Transitions(
    begin={SessionPhase.IDLE: "made"},
    follow={
        SessionPhase.IDLE: {SessionPhase.LOCATING: "Start", SessionPhase.CLOSED: "Close"},
        SessionPhase.LOCATING: {
            SessionPhase.JOINING: "Located",
            SessionPhase.WAITING: "a refusal, or no answer",
            SessionPhase.CLOSED: "Close",
        },
        SessionPhase.JOINING: {
            SessionPhase.ACTIVE: "the monitor answers",
            SessionPhase.LOCATING: "lost or refused, for the first time",
            SessionPhase.WAITING: "lost or refused again",
            SessionPhase.CLOSED: "Close",
        },
        SessionPhase.ACTIVE: {
            SessionPhase.JOINING: "the monitor does not know this client any more",
            SessionPhase.LOCATING: "the monitor is lost or silent",
            SessionPhase.WAITING: "the same, a short while after it was found",
            SessionPhase.CLOSED: "Close",
        },
        SessionPhase.WAITING: {
            SessionPhase.LOCATING: "the back-off is over",
            SessionPhase.CLOSED: "Close",
        },
    },
    end={SessionPhase.CLOSED: "the monitor was told"},
)


class SessionMachine:
    """One client's session with the monitor of one queue.

    Args:
        queue: name of the queue.
        client: 16 random bytes, the publisher's or subscriber's id.
        role: `publisher`, `subscriber` or `consumer`.
        managers: addresses of configuration managers.
        jitter: gives a number in [0, 1) each time; spreads clients that lost the same monitor.

    Attributes:
        queue_id: known after the first `Located`; empty before. It never changes afterwards.
        limits: of the queue; None before the first `Located`.
        state, reason: what the owner was told last.
        cause: who is missing.
        heard_at: when the monitor said something last.
    """

    def __init__(
        self,
        *,
        queue: str,
        client: bytes,
        role: str,
        managers: Sequence[str],
        jitter: Jitter,
    ) -> None:
        if role not in {PUBLISHER, SUBSCRIBER, CONSUMER}:
            raise InvalidRequest(
                f"a session's role is publisher, subscriber or consumer, not {role!r}"
            )
        self.queue_id = b""
        self.limits: Limits | None = None
        self.state = SessionState.CONNECTING
        self.reason = "a configuration manager is being asked where the queue is"
        self.cause = Cause.NO_MANAGER
        self.heard_at = float("-inf")
        self.phase = SessionPhase.IDLE
        self._queue = queue
        self._client = client
        self._role = role
        self._finder = LeaderFinder(managers)
        self._missing_since: float | None = None
        """Since when managers do not know the queue."""
        self._jitter = jitter
        self._backoff = Backoff(jitter)
        self._attach_backoff = Backoff(jitter, ATTACH_MOST_SECONDS)
        self._attach_at: float | None = None
        self._patience = 1.0
        self._serial = 0
        self._attach_serial = 0
        self._attach_wanted = role == PUBLISHER
        self._failed: tuple[tuple[int, int], ...] = ()
        self._version = (0, 0)
        self._known: Topology | None = None
        self._wake: float | None = None
        self._active_since = 0.0
        self._silent_at = 0.0
        self._alive_at = 0.0

    def handle(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0911 - one per event
        """Take one event in; see `roq.machine`."""
        if self.phase is SessionPhase.CLOSED:
            return []
        match event:
            case Start():
                return self._locate(now) if self.phase is SessionPhase.IDLE else []
            case ManagerAnswered(answer, late):
                if late:
                    self._be_patient()
                return self._manager_answered(answer, now)
            case MonitorAnswered(serial, answer):
                return self._monitor_answered(serial, answer, now)
            case Pushed(message):
                return self._pushed(message, now)
            case MonitorLost(reason):
                return self._monitor_lost(reason, now)
            case Tick():
                return self._tick(now)
            case Close():
                return self._close()
            case _:
                return self._wanted(event, now)

    def _wanted(
        self, event: AttachWanted | AliveWanted | TopologyWanted | Tell, now: float
    ) -> list[Effect]:
        match event:
            case AttachWanted(failed):
                return self._want_attach(failed)
            case AliveWanted():
                self._alive_at = now
                return self._tick(now)
            case TopologyWanted():
                return [self._refresh()] if self.phase is SessionPhase.ACTIVE else []
            case Tell(message):
                return [TellMonitor(message)] if self._talks() else []

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted."""
        if self.phase is SessionPhase.WAITING:
            return self._wake
        if self.phase is SessionPhase.ACTIVE:
            times = (self._silent_at, self._alive_at, self._attach_at)
            return min(at for at in times if at is not None)
        return None

    def check(self) -> None:
        """Assert the invariants."""
        assert self.phase is not SessionPhase.ACTIVE or self.queue_id  # noqa: S101
        assert (self.phase is SessionPhase.WAITING) == (self._wake is not None)  # noqa: S101

    # --- looking for the monitor ------------------------------------------------------------------

    def _ask_manager(self, now: float) -> AskManager:
        return AskManager(self._finder.ask(now), LOCATE_SECONDS * self._patience)

    def _be_patient(self) -> None:
        """Nobody answered in time: it must not get worse by asking ever more often."""
        self._patience = min(PATIENCE_MOST, 2.0 * self._patience)

    def _go(self, phase: SessionPhase) -> None:
        self.phase = PHASES.step(self.phase, phase)

    def _locate(self, now: float) -> list[Effect]:
        self._go(SessionPhase.LOCATING)
        self._wake = None
        return [self._ask_manager(now)]

    def _manager_answered(self, answer: Answer | Unavailable, now: float) -> list[Effect]:
        if self.phase is not SessionPhase.LOCATING:
            return []
        if isinstance(answer, Located):
            return self._located(answer, now)
        if isinstance(answer, Failure):
            return self._not_located(answer, now)
        reason = str(answer) if isinstance(answer, Unavailable) else "unexpected answer"
        return self._no_help(
            f"no configuration manager answers: {reason}", now, more=self._finder.silent(now),
            most=SEARCH_MOST_SECONDS,
        )  # fmt: skip

    def _not_located(self, failure: Failure, now: float) -> list[Effect]:
        if failure.RESULT == NOT_LEADER:
            more = self._finder.refused(now, failure.ENDPOINT)
            if more and self._finder.address == failure.ENDPOINT:
                return [self._ask_manager(now)]
            return self._no_help(failure.COMMENT, now, more=more)
        state = _STATE_OF_CODE.get(failure.CODE)
        if state is None:
            return self._no_help(failure.COMMENT, now, more=self._finder.refused(now))
        self._finder.found()
        if state is not SessionState.REMOVED:
            self._missing_since = None
        elif self._missing(now) < REMOVED_SECONDS and self.queue_id:
            state = SessionState.UNAVAILABLE
        return self._wait(state, failure.COMMENT, now)

    def _missing(self, now: float) -> float:
        """For how many seconds managers have not known the queue."""
        if self._missing_since is None:
            self._missing_since = now
        return now - self._missing_since

    def _no_help(
        self, reason: str, now: float, *, more: bool, most: float | None = None
    ) -> list[Effect]:
        """Ask the next manager, at once unless all were asked."""
        if more:
            asked: Effect = self._ask_manager(now)
            told = self._become(SessionState.UNAVAILABLE, reason, Cause.NO_MANAGER)
            return [*told, asked]
        return self._wait(SessionState.UNAVAILABLE, reason, now, most, Cause.NO_MANAGER)

    def _located(self, located: Located, now: float) -> list[Effect]:
        if self.queue_id and located.queue_id != self.queue_id:
            return self._wait(
                SessionState.REMOVED,
                f"queue {self._queue} was removed; another one of this name exists now",
                now,
            )
        self._finder.found()
        self._missing_since = None
        self.queue_id = located.queue_id
        self.limits = located.limits
        self._go(SessionPhase.JOINING)
        return [OpenMonitor(located.monitor), self._greeting()]

    def _greeting(self) -> Effect:
        if self._role == SUBSCRIBER:
            return self._ask(Join(queue_id=self.queue_id, subscriber=self._client))
        if self._attach_wanted:
            return self._ask_attach()
        return self._ask(self._alive(0))

    def _wait(
        self,
        state: SessionState,
        reason: str,
        now: float,
        most: float | None = None,
        cause: Cause = Cause.NO_MONITOR,
    ) -> list[Effect]:
        """Look for the monitor again: at once for the first time, then after a while."""
        self._attach_at = None
        effects: list[Effect] = [DropMonitor(), *self._become(state, reason, cause)]
        if self._attach_wanted and most is None:
            most = URGENT_MOST_SECONDS
        delay = self._backoff.wait(most)
        if delay <= 0.0:
            return [*effects, *self._locate(now)]
        self._go(SessionPhase.WAITING)
        self._wake = now + delay
        return effects

    def _become(
        self, state: SessionState, reason: str = "", cause: Cause = Cause.NONE
    ) -> list[Effect]:
        if state is self.state and state is SessionState.ACTIVE:
            return []
        self.state, self.reason, self.cause = state, reason, cause
        return [ReportState(state, reason)]

    # --- talking to the monitor -------------------------------------------------------------------

    def _ask(self, message: Control) -> AskMonitor:
        self._serial += 1
        return AskMonitor(self._serial, message, CLIENT_ASKS_SECONDS * self._patience)

    def _ask_attach(self) -> AskMonitor:
        ask = self._ask(
            Attach(queue_id=self.queue_id, publisher=self._client, failed=list(self._failed))
        )
        self._attach_serial = ask.serial
        return ask

    def _alive(self, version: int) -> Alive:
        return Alive(queue_id=self.queue_id, client=self._client, role=self._role, version=version)

    def _want_attach(self, failed: tuple[tuple[int, int], ...]) -> list[Effect]:
        self._attach_wanted = True
        self._attach_at = None
        self._failed = failed
        return [self._ask_attach()] if self._talks() else []

    def _talks(self) -> bool:
        return self.phase in {SessionPhase.JOINING, SessionPhase.ACTIVE}

    def _monitor_answered(
        self, serial: int, answer: Answer | Unavailable, now: float
    ) -> list[Effect]:
        if self.phase not in {SessionPhase.JOINING, SessionPhase.ACTIVE}:
            return []
        match answer:
            case Assigned():
                return self._assigned(serial, answer, now)
            case Topology():
                return self._topology(answer, now, asked=self._role == SUBSCRIBER)
            case Failure() if serial != self._attach_serial and self._attach_wanted:
                return []  # an older question; the newer one has its own answer
            case Failure():
                return self._refused(answer, now)
            case _:
                return self._unanswered(serial, answer, now)

    def _unanswered(self, serial: int, answer: Answer | Unavailable, now: float) -> list[Effect]:
        if self.phase is SessionPhase.ACTIVE:
            # The monitor lives, else its silence is noticed: it has nothing to offer yet.
            if serial == self._attach_serial and self._attach_wanted:
                return self._not_attached("the monitor has no exchange to offer yet", now)
            return []
        self._be_patient()
        reason = str(answer) if isinstance(answer, Unavailable) else "unexpected answer"
        return self._wait(
            SessionState.UNAVAILABLE, f"the monitor of queue {self._queue}: {reason}", now
        )

    def _not_attached(self, reason: str, now: float) -> list[Effect]:
        """The monitor lives and has no exchange to offer: ask it again."""
        effects = self._heard(now) if self.phase is SessionPhase.JOINING else []
        effects += self._become(SessionState.UNAVAILABLE, reason, Cause.NO_EXCHANGE)
        delay = self._attach_backoff.wait()
        if delay <= 0.0:
            return [*effects, self._ask_attach()]
        self._attach_at = now + delay
        return effects

    def _refused(self, failure: Failure, now: float) -> list[Effect]:
        if self._attach_wanted and failure.CODE == _NOT_NOW:
            return self._not_attached(failure.COMMENT, now)
        if self.phase is SessionPhase.JOINING and failure.CODE not in _STATE_OF_CODE:
            # The publisher's own assignment is unknown to this monitor: ask for one next time.
            self._attach_wanted = self._role == PUBLISHER
        # Whether the queue still exists, only the configuration manager knows.
        stopped = failure.CODE == "queue_stopped"
        state = SessionState.STOPPED if stopped else SessionState.UNAVAILABLE
        return self._wait(state, failure.COMMENT, now)

    def _assigned(self, serial: int, assigned: Assigned, now: float) -> list[Effect]:
        effects = self._heard(now)
        if serial != self._attach_serial or not self._attach_wanted:
            return effects
        self._attach_wanted = False
        self._attach_at = None
        self._attach_backoff.reset()
        self._failed = ()
        self.limits = assigned.limits
        return [*effects, *self._become(SessionState.ACTIVE), ReportAssigned(assigned)]

    def _topology(self, topology: Topology, now: float, *, asked: bool = False) -> list[Effect]:
        if topology.queue_id != self.queue_id:
            return []
        if topology.state == "removed":
            return self._wait(SessionState.REMOVED, f"queue {self._queue} was removed", now)
        if topology.state == "stopped":
            return self._wait(SessionState.STOPPED, f"queue {self._queue} was stopped", now)
        if (topology.epoch, topology.version) < self._version:
            return self._heard(now)
        effects = self._heard(now)
        changed = (topology.epoch, topology.version) != self._version
        self._version = (topology.epoch, topology.version)
        self._known = topology
        return [*effects, ReportTopology(topology)] if changed or asked else effects

    def _pushed(self, message: Answer, now: float) -> list[Effect]:  # noqa: PLR0911 - one per kind
        if not self._listens():
            return []
        match message:
            case Topology():
                return self._topology(message, now)
            case Version() if message.queue_id == self.queue_id:
                effects = self._heard(now)
                if (message.epoch, message.version) == self._version:
                    return effects + self._still()
                return [*effects, self._refresh()]
            case Relocate() if self._is_mine(message):
                return [*self._heard(now), ReportRelocate(message)]
            case Failure():
                # The monitor does not know this client (any more): introduce oneself again.
                self._go(SessionPhase.JOINING)
                return [self._greeting()]
            case _:
                return []

    def _still(self) -> list[Effect]:
        """By how fresh the list of exchanges is a subscriber judges losses, and a publisher what
        it need not replay any more."""
        known = self._known
        return [ReportTopology(known)] if known and self._role != CONSUMER else []

    def _is_mine(self, relocate: Relocate) -> bool:
        return relocate.queue_id == self.queue_id and relocate.publisher == self._client

    def _listens(self) -> bool:
        if self.phase is SessionPhase.JOINING:
            # Unless there is nothing to be asked for, the answer to the greeting decides.
            return self._role == PUBLISHER and not self._attach_wanted
        return self.phase is SessionPhase.ACTIVE

    def _refresh(self) -> Effect:
        # By number: a push would reach all sessions that share the connection.
        if self._role == SUBSCRIBER:
            return self._ask(Join(queue_id=self.queue_id, subscriber=self._client))
        return self._ask(self._alive(0))

    def _heard(self, now: float) -> list[Effect]:
        """The monitor lives."""
        self.heard_at = now
        self._silent_at = now + MONITOR_SILENT_SECONDS * (1.0 + SILENCE_SPREAD * self._jitter())
        if self.phase is SessionPhase.ACTIVE:
            if now >= self._active_since + STEADY_SECONDS:
                self._backoff.reset()
                self._patience = 1.0
            return []
        self._go(SessionPhase.ACTIVE)
        self._active_since = now
        self._alive_at = now + CLIENT_ALIVE_SECONDS
        return self._become(SessionState.ACTIVE)

    # --- time and the end -------------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        if self.phase is SessionPhase.WAITING and self._wake is not None and now >= self._wake:
            return self._locate(now)
        if self.phase is not SessionPhase.ACTIVE:
            return []
        if now >= self._silent_at:
            return self._monitor_lost(f"it has been silent for {MONITOR_SILENT_SECONDS:g} s", now)
        if self._attach_at is not None and now >= self._attach_at:
            self._attach_at = None
            return [self._ask_attach()]
        if now >= self._alive_at:
            self._alive_at = now + CLIENT_ALIVE_SECONDS
            return [TellMonitor(self._alive(self._version[1]))]
        return []

    def _monitor_lost(self, reason: str, now: float) -> list[Effect]:
        if not self._talks():
            return []
        active = self.phase is SessionPhase.ACTIVE
        state = SessionState.CONNECTING if active else SessionState.UNAVAILABLE
        return self._wait(state, f"the monitor of queue {self._queue}: {reason}", now)

    def _close(self) -> list[Effect]:
        there = self.phase in {SessionPhase.ACTIVE, SessionPhase.JOINING}
        self._go(SessionPhase.CLOSED)
        self._wake = None
        if not there:
            return [DropMonitor()]
        return [
            TellMonitor(Leave(queue_id=self.queue_id, client=self._client)),
            DropMonitor(GOODBYE_MS),
        ]
