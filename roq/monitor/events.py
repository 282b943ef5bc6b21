"""What a monitor's machine is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from roq.errors import Unavailable
from roq.machine import Tick
from roq.protocol.control import Answer, GcmRequest, MonitorRequest

Peer = tuple[bytes, bool]
"""Who asked: routing id, and whether there was an empty delimiter. Handed back, never looked at."""


@dataclass(frozen=True, slots=True)
class Received:
    """A client or an exchange asks or tells something."""

    peer: Peer
    message: MonitorRequest


@dataclass(frozen=True, slots=True)
class StopWanted:
    """The monitor shall end.

    `reason`: `stopped` or `removed` when that is what happens to the queue, which clients are told;
    empty when only this process goes away.
    """

    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaderAnswered:
    """What the leading configuration manager says to the `Ask` with the same serial."""

    serial: int
    answer: Answer | Unavailable


@dataclass(frozen=True, slots=True)
class Listened:
    """Whether anybody listens to the statistics."""

    anybody: bool


Event = Received | StopWanted | LeaderAnswered | Listened | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Send one message to one peer, without waiting; a peer that is gone is no error."""

    peer: Peer
    message: Answer


@dataclass(frozen=True, slots=True)
class Push:
    """Send the same message to many peers."""

    peers: tuple[Peer, ...]
    message: Answer


@dataclass(frozen=True, slots=True)
class Publish:
    """Send one message on the statistics socket."""

    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the leading configuration manager; `LeaderAnswered` comes back within `seconds`."""

    serial: int
    message: GcmRequest
    seconds: float


@dataclass(frozen=True, slots=True)
class Note:
    """Something that belongs into the log.

    `event` names it for programs; warnings of one name are written at a bounded rate.
    """

    event: str
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The leading configuration manager wants this monitor, whatever its host manager says."""


@dataclass(frozen=True, slots=True)
class Disowned:
    """The leading configuration manager knows no such queue."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to do: end the process."""


Effect = Send | Push | Publish | Ask | Note | Confirmed | Disowned | Finished
