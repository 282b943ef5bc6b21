"""What the configuration manager's machine takes in and gives out.

    Commit     <->  Committed | CommitFailed
    DrawEpoch  <->  EpochDrawn | CommitFailed
    Ask        <->  Answered | Unanswered

All of them carry a token. Peers are whatever the shell puts in with a frame and gets back with the
answer; the machine does not look into them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from roq.errors import RequestError
from roq.gcm.state.records import Manager, Snapshot
from roq.machine import Tick
from roq.protocol.control import Answer, Control
from roq.protocol.reports import Check
from roq.provider.port import ProvidedHost


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The provider has not answered in so many seconds, and may still do what it was called for."""

    seconds: float


ProviderAnswer: TypeAlias = ProvidedHost | tuple[ProvidedHost, ...] | GivenUp | str | None
"""A host that was made, all hosts, nothing (one was removed), or why it did not work."""


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientFrame:
    """A frame came in on the client port."""

    peer: Hashable
    data: bytes


@dataclass(frozen=True, slots=True)
class ManagementFrame:
    """A frame came in on the management port."""

    peer: Hashable
    data: bytes
    unique: bytes
    """16 random bytes: the id of the queue, if one is created."""
    wall: float
    """Seconds since 1970: the creation time, if a queue is created."""
    party: Hashable = None
    """Who stands behind the peer, and perhaps behind others, too; None: nobody else."""


@dataclass(frozen=True, slots=True)
class Elected:
    """This manager leads from now on; the registry says what there is."""

    epoch: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Following:
    """This manager does not lead; `leader` does, or nobody at the moment."""

    leader: Manager | None


@dataclass(frozen=True, slots=True)
class Doubted:
    """This manager stood still, or its session ended: it may not lead; the registry will tell."""


@dataclass(frozen=True, slots=True)
class RegistryLost:
    """The registry is out of reach; this manager may still lead.

    Attributes:
        session_ended: it may not lead any more, and nobody is in reach who could tell.
        problem: what is wrong with a registry that is in reach, and of no use all the same.
    """

    session_ended: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RegistryBack:
    """The registry is in reach again; if this manager leads, with what stands in it now."""

    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class EpochsDamaged:
    """No epoch can be drawn, though the registry is in reach; a sentence says why, and what to do.

    An empty one: epochs can be drawn again.
    """

    problem: str


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The registry has told the identity of the cluster."""

    cluster: str


@dataclass(frozen=True, slots=True)
class ManagersChanged:
    """All managers that stand for election."""

    managers: tuple[Manager, ...]


@dataclass(frozen=True, slots=True)
class HostsPresent:
    """The hosts that have a node in the registry."""

    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Committed:
    """The changes stand in the registry."""

    token: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The changes do not stand there, or nobody knows; or no number was drawn."""

    token: int
    error: RequestError


@dataclass(frozen=True, slots=True)
class EpochDrawn:
    """The registry has given the next number of its counter of host epochs."""

    token: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A host manager has answered."""

    token: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A host manager has not answered in time."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A new client listens to the broadcast."""


@dataclass(frozen=True, slots=True)
class ListenerGone:
    """A listener for rules does not read any more."""

    address: str


@dataclass(frozen=True, slots=True)
class ProviderAnswered:
    """The provider has done what it was called for, or has not: then a sentence says why."""

    token: int
    answer: ProviderAnswer


@dataclass(frozen=True, slots=True)
class Measured:
    """The shell has looked what this process uses of its machine."""

    checks: tuple[Check, ...]


Event = (
    ClientFrame | ManagementFrame | Elected | Following | Doubted | RegistryLost | RegistryBack
    | EpochsDamaged | ClusterNamed | ManagersChanged | HostsPresent | Committed | CommitFailed
    | EpochDrawn | Answered | Unanswered | Subscribed | ListenerGone | ProviderAnswered | Measured
    | Tick
)  # fmt: skip


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """Send a frame to the client that asked."""

    peer: Hashable
    data: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """This document shall stand under this path."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Nothing shall stand under this path, nor below it."""

    path: str


Change = Put | Drop


@dataclass(frozen=True, slots=True)
class Commit:
    """Change the registry, all or nothing, as the leader of this epoch."""

    token: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read the definitions again: something was changed after it had been given up."""


@dataclass(frozen=True, slots=True)
class LeadAnew:
    """Look who leads; if this manager does, then with an epoch above the one that a host obeys."""

    epoch: int


@dataclass(frozen=True, slots=True)
class DrawEpoch:
    """Draw the next number of the counter of host epochs."""

    token: int


@dataclass(frozen=True, slots=True)
class AskHost:
    """Ask a host manager."""

    token: int
    endpoint: str
    message: Control
    timeout: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """No start that was asked at this address and has not left yet is to arrive there any more.

    What is sent to a host that is away waits for it. A start would be done when the host is back,
    though it was given up, and undone, long before. A stop that comes late is wanted still.
    """

    endpoint: str


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send the configuration to everybody who listens."""

    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PushRules:
    """Send the rules of a queue to a listener, without waiting for it."""

    address: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ForgetListener:
    """Nothing will be sent to this address any more."""

    address: str


@dataclass(frozen=True, slots=True)
class CreateHost:
    """Make a host."""

    name: str
    queue: str
    """For which queue, for people who look at it."""


@dataclass(frozen=True, slots=True)
class ListHosts:
    """Tell which hosts of this cluster there are."""


@dataclass(frozen=True, slots=True)
class RemoveHost:
    """Remove a host."""

    name: str
    handle: str


ProviderAction: TypeAlias = CreateHost | ListHosts | RemoveHost


@dataclass(frozen=True, slots=True)
class CallProvider:
    """Have the provider do this, beside everything else; answered by `ProviderAnswered`."""

    token: int
    action: ProviderAction


@dataclass(frozen=True, slots=True)
class LogLine:
    """Write a line into the log."""

    event: str
    """The word for programs."""
    text: str
    provoked: bool = False
    """Whether any client can bring it about at will, so that there must not be too many lines."""


Effect = (
    Reply | Commit | ReadAgain | LeadAnew | DrawEpoch | AskHost | HangUp | Broadcast | PushRules
    | ForgetListener | CallProvider | LogLine
)  # fmt: skip
