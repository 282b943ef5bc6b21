"""What a session is told and what it asks for; how it stands towards its owner, and how the owner
stands, a publisher or subscriber, as its user is told. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from roq.errors import Unavailable
from roq.machine import Tick
from roq.protocol.control import Answer, Assigned, Control, Relocate, Topology

LOCATE_SECONDS: Final = 2.0
"""What a configuration manager may take to answer, when nobody is overloaded."""


class ClientState(StrEnum):
    """How a publisher or subscriber stands."""

    CONNECTING = "connecting"
    """It has never worked yet."""
    CONNECTED = "connected"
    """Messages flow, or would if there were any."""
    RECONNECTING = "reconnecting"
    """Something was lost a moment ago and is looked for again; nothing is to be done."""
    WAITING = "waiting"
    """Nothing flows though it should, for two seconds or more; the reason says why."""
    LOST_DATA = "lost_data"
    """Messages are lost for good. Only told: the state goes on as it was before."""
    CLOSED = "closed"
    """It is over: closed by its owner, or the queue was removed."""


class Cause(StrEnum):
    """Why it is not all well, for programs."""

    NONE = ""
    STARVED = "starved"
    """The client's background thread did not run."""
    NO_MANAGER = "no_manager"
    """No configuration manager answers."""
    NO_MONITOR = "no_monitor"
    """The queue's monitor is silent, or being looked for."""
    NO_EXCHANGE = "no_exchange"
    """The queue has no exchange, or none that can be reached."""
    NOT_ACKNOWLEDGED = "not_acknowledged"
    """The exchange takes batches and does not acknowledge them."""
    HELD = "held"
    """The exchange holds publishers back until a slow subscriber has read on."""
    LEFT_BEHIND = "left_behind"
    """The exchange does not wait any more for this subscriber, which was too slow for too long."""
    AWAY = "away"
    """An exchange of a durable queue does not serve; its log, with what is missing, comes back."""
    SILENT_EXCHANGE = "silent_exchange"
    """An exchange of the queue is not heard."""
    HOLE = "hole"
    """Messages have come that wait for older ones, which are being looked for."""
    NOT_TAKEN = "not_taken"
    """Messages are there, and the application does not take them."""
    QUEUE_STOPPED = "queue_stopped"
    QUEUE_REMOVED = "queue_removed"
    LOST = "lost"
    CLOSED = "closed"


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """What `on_state` is called with."""

    state: ClientState
    cause: Cause = Cause.NONE
    reason: str = ""
    """Why, in a sentence; empty if all is well."""
    messages: int = 0
    """With `LOST_DATA`: how many are known to be lost; 0 if it is not known."""


class SessionState(StrEnum):
    """What the owner of a session is told."""

    CONNECTING = "connecting"
    ACTIVE = "active"
    UNAVAILABLE = "unavailable"
    """Nobody answers, or no exchange serves; the session goes on trying."""
    STOPPED = "stopped"
    """The queue is stopped; the session waits for it to start."""
    REMOVED = "removed"
    """The queue does not exist (any more)."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What is known of the queue's monitor.

    Attributes:
        state, cause, reason: see `SessionMachine`.
        silent: seconds since the monitor was heard; infinity: never.
    """

    state: SessionState
    cause: Cause
    reason: str
    silent: float


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to look for the monitor."""


@dataclass(frozen=True, slots=True)
class ManagerAnswered:
    """The answer to `AskManager`."""

    answer: Answer | Unavailable
    late: bool = False
    """There was none in time: the manager, or this process, may be overloaded."""


@dataclass(frozen=True, slots=True)
class MonitorAnswered:
    """The answer to the `AskMonitor` with the same serial."""

    serial: int
    answer: Answer | Unavailable


@dataclass(frozen=True, slots=True)
class Pushed:
    """The monitor said something unasked."""

    message: Answer


@dataclass(frozen=True, slots=True)
class MonitorLost:
    """The connection to the monitor has ended, or could not be made."""

    reason: str


@dataclass(frozen=True, slots=True)
class AttachWanted:
    """The publisher needs another exchange; it could not use the failed (number, epoch) ones."""

    failed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Tell:
    """The owner has something to say to the monitor that is not answered."""

    message: Control


@dataclass(frozen=True, slots=True)
class AliveWanted:
    """The owner has something to tell that is not to wait."""


@dataclass(frozen=True, slots=True)
class TopologyWanted:
    """The owner, a subscriber, wants to hear which exchanges there are, even if nothing changed."""


@dataclass(frozen=True, slots=True)
class Close:
    """The owner is done."""


Event = (
    Start | ManagerAnswered | MonitorAnswered | Pushed | MonitorLost | AttachWanted | AliveWanted
    | TopologyWanted | Tell | Close
    | Tick
)  # fmt: skip


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskManager:
    """Ask the configuration manager at this address where the queue's monitor is."""

    address: str
    timeout: float = LOCATE_SECONDS


@dataclass(frozen=True, slots=True)
class OpenMonitor:
    """Connect to the monitor at this address, and drop any other monitor connection."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class DropMonitor:
    """Use the connection to the monitor no more.

    Attributes:
        linger_ms: how long what is on its way may take at most; 0: the connection is given up.
    """

    linger_ms: int = 0


@dataclass(frozen=True, slots=True)
class AskMonitor:
    """Send a request; the answer comes back as `MonitorAnswered`."""

    serial: int
    message: Control
    timeout: float


@dataclass(frozen=True, slots=True)
class TellMonitor:
    """Send a message that is not answered; an `Alive` is completed with the owner's figures."""

    message: Control


@dataclass(frozen=True, slots=True)
class ReportAssigned:
    """The publisher has an exchange."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class ReportRelocate:
    """The publisher is to publish elsewhere."""

    relocate: Relocate


@dataclass(frozen=True, slots=True)
class ReportTopology:
    """The exchanges of the queue; a subscriber is told every second, also if they are the same."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ReportState:
    """The session's state has changed."""

    state: SessionState
    reason: str


Effect = (
    AskManager | OpenMonitor | DropMonitor | AskMonitor | TellMonitor
    | ReportAssigned | ReportRelocate | ReportTopology | ReportState
)  # fmt: skip
