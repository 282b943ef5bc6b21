"""What a publisher's machine is told, and what it wants done besides its links' effects. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from roq.client.publish.link import LinkEffect
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, LogId

# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """The monitor says where to publish, and under which epoch."""

    queue_id: bytes
    exchange: ExchangeInfo
    epoch: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Relocate:
    """The monitor says where to publish instead: one exchange, or several to be striped over."""

    epoch: int
    exchanges: tuple[ExchangeInfo, ...]


@dataclass(frozen=True, slots=True)
class Serving:
    """All exchanges that serve the queue now."""

    exchanges: tuple[ExchangeInfo, ...]
    emptied: frozenset[LogId] = frozenset()
    """The logs that went lately, after everything in them had been read."""
    logs: frozenset[int] = frozenset()
    """Numbers of all that a durable queue has: the others are gone for good. Empty: not known."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the exchange of a link."""

    link: int
    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection of a link was closed, or could not be opened."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What is not acknowledged is to be tried at another exchange, if there is one."""

    reason: str
    exchange: str = ""
    """Name of the one to leave; empty: all that owe an acknowledgement."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The publisher closes; whatever is not acknowledged is given up."""

    reason: str


Event = Assignment | Relocate | Serving | Received | ConnectionLost | Elsewhere | Leave | Tick


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskAttach:
    """Ask the monitor for an exchange other than the failed (number, epoch) ones."""

    failed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TellRelocated:
    """Tell the monitor what became of the Relocate of this epoch."""

    epoch: int
    accepted: bool
    failed: tuple[tuple[int, int], ...] = ()
    reason: str = ""
    pause_us: int = 0
    """How long nothing was sent."""


Effect = LinkEffect | AskAttach | TellRelocated
