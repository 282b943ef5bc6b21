"""What a session is told and what it asks for, and how it stands towards its owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roq.client.state import Cause
from roq.errors import Unavailable
from roq.machine import Tick
from roq.protocol.control import Answer, Assigned, Control, Relocate, Topology

LOCATE_SECONDS: Final = 2.0
"""What a configuration manager may take to answer, when nobody is overloaded."""


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
