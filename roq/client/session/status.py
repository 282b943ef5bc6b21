"""Why nothing flows though it should: the one place that names the reason. Pure.

A publisher or subscriber is looked at twice a second, and whenever something happens to it. A look
gives its `Status`: how it stands and why, in a sentence that is the same in its `trouble`, in the
log, in what `on_state` is told and in what is raised when a time is over. Of several reasons the
one is named that the others follow from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roq.client.session.events import Cause, ClientState, SessionFacts, SessionState, StateChange

QUIET_SECONDS: Final = 2.0
"""Nothing for so long, though something should have come, and the reason is told."""

_ENDS: Final = {
    SessionState.STOPPED: Cause.QUEUE_STOPPED,
    SessionState.REMOVED: Cause.QUEUE_REMOVED,
}


@dataclass(frozen=True, slots=True)
class Status:
    """How a client stands, and why."""

    state: ClientState
    cause: Cause = Cause.NONE
    reason: str = ""


CONNECTED: Final = Status(ClientState.CONNECTED)


@dataclass(frozen=True, slots=True)
class PublisherFacts:
    """What there is to see of a publisher; times in seconds.

    Attributes:
        queue: its name.
        session: the monitor.
        exchange: names of the exchanges that it publishes at; empty: none.
        ready: one of them takes batches.
        used: one of them did so before.
        reason: why none does.
        away: for how long none does.
        owed: batches that are not acknowledged.
        quiet: for how long an exchange that has batches has acknowledged nothing.
        held: why acknowledgements wait though the exchange is well; empty: they do not.
        stalled: for how long they have.
        late: for how long the background thread did not run though it should have.
        ended: why it is over; empty: it is not.
    """

    queue: str
    session: SessionFacts
    exchange: str = ""
    ready: bool = False
    used: bool = False
    reason: str = ""
    away: float = 0.0
    owed: int = 0
    quiet: float = 0.0
    held: str = ""
    stalled: float = 0.0
    late: float = 0.0
    ended: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """What a subscriber sees of one exchange.

    Attributes:
        name, address: of the exchange.
        connected: there is a connection to its log.
        read: seconds since its log was read to its end.
        silent: seconds since its fan-out said anything; it should do so twice a second.
        away: it does not serve, and comes back with its log, as the queue is durable.
        unreadable: what it says, but in a format that this client does not know.
    """

    name: str
    address: str
    connected: bool
    read: float
    silent: float
    away: bool = False
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class SubscriberFacts:
    """What there is to see of a subscriber; times in seconds.

    Attributes:
        queue: its name.
        session: the monitor.
        confirmed: every exchange has confirmed the start.
        start: what the start waits for.
        exchanges: those of the topology.
        untaken: for how long the first of the batches that are there was not taken.
        batches: how many are there.
        full: no more are read until these are taken.
        hole: for how long the oldest of what waits for its turn has waited.
        missing: what it waits for.
        unread: names of exchanges that have not served since it began; their logs come back.
        behind: names of the exchanges that do not wait for it any more, as it reads too slowly.
        late, ended: as in `PublisherFacts`.
    """

    queue: str
    session: SessionFacts
    confirmed: bool = False
    start: str = ""
    exchanges: tuple[ExchangeFacts, ...] = ()
    untaken: float = 0.0
    batches: int = 0
    full: bool = False
    hole: float = 0.0
    missing: str = ""
    unread: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    late: float = 0.0
    ended: str = ""


# --- publishers -----------------------------------------------------------------------------------


def publisher_status(facts: PublisherFacts) -> Status:
    """How this publisher stands."""
    over = _over(facts)
    if over is not None:
        return over
    if not facts.ready:
        return _publisher_away(facts)
    if facts.owed and facts.held and facts.stalled >= QUIET_SECONDS:
        return Status(
            ClientState.WAITING, Cause.HELD, f"{facts.held}; {_batches(facts.owed)} for it"
        )
    if facts.owed and facts.quiet >= QUIET_SECONDS:
        return Status(
            ClientState.WAITING,
            Cause.NOT_ACKNOWLEDGED,
            f"exchange {facts.exchange} has acknowledged nothing for {facts.quiet:.1f} s; "
            f"{_batches(facts.owed)} for it",
        )
    return _without_monitor(facts.session, "batches are acknowledged all the same")


def why_not_sent(facts: PublisherFacts) -> str:
    """Why batches do not leave, in a sentence; there is always one."""
    reason = publisher_status(facts).reason or facts.held
    return reason or f"exchange {facts.exchange} does not acknowledge fast enough"


def _publisher_away(facts: PublisherFacts) -> Status:
    session = facts.session
    state = ClientState.RECONNECTING if facts.used else ClientState.CONNECTING
    if facts.away >= QUIET_SECONDS or session.state in _ENDS:
        state = ClientState.WAITING
    if session.state in _ENDS:
        return Status(state, _ENDS[session.state], session.reason)
    cause = session.cause if session.cause is not Cause.NONE else Cause.NO_EXCHANGE
    reason = "; ".join(dict.fromkeys(text for text in (facts.reason, session.reason) if text))
    return Status(state, cause, reason or f"queue {facts.queue} has no exchange yet")


# --- subscribers ----------------------------------------------------------------------------------


def subscriber_status(facts: SubscriberFacts) -> Status:
    """How this subscriber stands."""
    over = _over(facts)
    if over is not None:
        return over
    session = facts.session
    if not facts.confirmed:
        cause = session.cause if session.cause is not Cause.NONE else Cause.SILENT_EXCHANGE
        return Status(
            ClientState.CONNECTING,
            _ENDS.get(session.state, cause),
            session.reason or facts.start,
        )
    if facts.behind or facts.untaken >= QUIET_SECONDS:
        return _slow(facts)
    if session.state in _ENDS:
        return Status(ClientState.WAITING, _ENDS[session.state], session.reason)
    if not facts.exchanges:
        return _subscriber_alone(facts)
    return (
        _away(facts)
        or _silent(facts)
        or _hole(facts)
        or _without_monitor(session, "messages flow all the same")
    )


def _slow(facts: SubscriberFacts) -> Status:
    """It reads too slowly, or its application takes nothing."""
    if not facts.behind:
        then = "and nothing more is read meanwhile" if facts.full else "and more will be read"
        return Status(
            ClientState.WAITING,
            Cause.NOT_TAKEN,
            f"the application has taken nothing for {facts.untaken:.1f} s; "
            f"{_batches(facts.batches)} for it, {then}",
        )
    many = "s" if len(facts.behind) > 1 else ""
    names = ", ".join(sorted(facts.behind))
    untaken = ""
    if facts.untaken >= QUIET_SECONDS:
        untaken = f": the application has taken nothing for {facts.untaken:.1f} s"
    return Status(
        ClientState.WAITING,
        Cause.LEFT_BEHIND,
        f"left behind by exchange{many} {names}, which waited for it for as long as the queue's "
        f"rules allow{untaken}; what leaves the exchange's memory before it is read is lost",
    )


def _subscriber_alone(facts: SubscriberFacts) -> Status:
    """The queue has no exchange, or nobody says which."""
    session = facts.session
    reason = f"queue {facts.queue} has no exchange at present"
    if session.reason:
        reason = f"{reason}; {session.reason}"
    return Status(ClientState.WAITING, Cause.NO_EXCHANGE, reason)


def _away(facts: SubscriberFacts) -> Status | None:
    """Exchanges of a durable queue do not serve; that is a trouble if something waits for them."""
    waits = facts.hole >= QUIET_SECONDS
    away = {each.name for each in facts.exchanges if each.away}
    names = ", ".join(sorted(away.union(facts.unread if waits else ())))
    if not names:
        return None
    text = f"away: {names}; what is in a log comes back with its exchange"
    if not waits:
        return Status(ClientState.CONNECTED, Cause.AWAY, f"{text}; nothing waits for it so far")
    text += f"; messages have waited for {facts.hole:.1f} s for older ones: {facts.missing}"
    return Status(ClientState.WAITING, Cause.AWAY, text)


def _silent(facts: SubscriberFacts) -> Status | None:
    silent = [each for each in facts.exchanges if each.silent >= QUIET_SECONDS]
    if not silent:
        return None
    each = max(silent, key=lambda one: one.silent)
    others = f" (nor {len(silent) - 1} others)" if len(silent) > 1 else ""
    state = ClientState.WAITING
    if each.unreadable:
        besides = each.unreadable
    elif not each.connected:
        besides = f"there is no connection to {each.address}"
    elif each.read >= QUIET_SECONDS:
        besides = f"it does not answer at {each.address} either"
    else:
        state = ClientState.CONNECTED
        besides = "its log is read instead"
    text = f"exchange {each.name} has not been heard for {each.silent:.1f} s{others}; {besides}"
    return Status(state, Cause.SILENT_EXCHANGE, text)


def _hole(facts: SubscriberFacts) -> Status | None:
    if facts.hole < QUIET_SECONDS:
        return None
    return Status(
        ClientState.WAITING,
        Cause.HOLE,
        f"messages have waited for {facts.hole:.1f} s for older ones: {facts.missing}",
    )


# --- both -----------------------------------------------------------------------------------------


def _over(facts: PublisherFacts | SubscriberFacts) -> Status | None:
    """What comes before everything else."""
    if facts.ended:
        removed = facts.session.state is SessionState.REMOVED
        cause = Cause.QUEUE_REMOVED if removed else Cause.CLOSED
        return Status(ClientState.CLOSED, cause, facts.ended)
    if facts.late >= QUIET_SECONDS:
        return Status(
            ClientState.WAITING,
            Cause.STARVED,
            f"the client's background thread did not run for {facts.late:.1f} s: the process was "
            "stopped, has too little processor time, or something keeps the interpreter busy",
        )
    return None


def _without_monitor(session: SessionFacts, comfort: str) -> Status:
    """All is well but, perhaps, for the monitor: data does not need it."""
    if session.state is SessionState.ACTIVE and session.silent < QUIET_SECONDS:
        return CONNECTED
    reason = session.reason or f"the monitor has not been heard for {session.silent:.1f} s"
    cause = session.cause if session.cause is not Cause.NONE else Cause.NO_MONITOR
    return Status(ClientState.CONNECTED, _ENDS.get(session.state, cause), f"{reason}; {comfort}")


def _batches(count: int) -> str:
    return "1 batch waits" if count == 1 else f"{count} batches wait"


class StatusLog:
    """Remembers what was told, so that everything is told once.

    Attributes:
        status: at the last look.
    """

    def __init__(self) -> None:
        self.status = Status(ClientState.CONNECTING)
        self._lost = 0
        self._gaps = 0

    def look(self, status: Status) -> StateChange | None:
        """Take a look in; what is to be told, if anything."""
        before = self.status
        if before.state is ClientState.CLOSED:
            return None
        self.status = status
        if (status.state, status.cause) == (before.state, before.cause):
            return None
        return StateChange(state=status.state, cause=status.cause, reason=status.reason)

    def lost(self, messages: int, gaps: int, reason: str) -> StateChange | None:
        """What is lost by now, all in all; what is to be told, if it has become more.

        Args:
            messages: that are known to be lost.
            gaps: places where nobody knows how many.
            reason: of the last loss, in a sentence.
        """
        more, self._lost = messages - self._lost, messages
        new, self._gaps = gaps - self._gaps, gaps
        if more <= 0 and new <= 0:
            return None
        return StateChange(
            state=ClientState.LOST_DATA, cause=Cause.LOST, reason=reason, messages=max(0, more)
        )
