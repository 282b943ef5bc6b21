"""What a host manager's machine is told, and what it wants done.

Spawn               <->  Spawned | SpawnFailed
Spawned or Adopted   ->  Exited, once, if it was not released before
Probe               <->  Probed
Erase               <->  Erased
ReportToLeader      <->  LeaderAnswered | LeaderLost
"""

from __future__ import annotations

from dataclasses import dataclass
from signal import Signals
from typing import Final

from roq.errors import Unavailable
from roq.hcm.cpu import CpuSample
from roq.machine import Tick
from roq.protocol.control import Answer, HcmRequest, HostReport
from roq.protocol.reports import Check
from roq.protocol.spec import Spec

_OF_ITS_OWN: Final = frozenset(
    f"ended by signal {each.value}"
    for each in (Signals.SIGSEGV, Signals.SIGBUS, Signals.SIGABRT, Signals.SIGILL, Signals.SIGFPE)
)
"""Faults of a program, as `roq.runtime.process` words them."""

Peer = tuple[bytes, bool]
"""Who asked: routing id, and whether there was an empty delimiter. Handed back, never looked at."""

Asked = tuple[Peer, int]
"""Who waits for an answer, and to which of its requests."""

# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """The host stands in the registry, under this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A child that an earlier life of this host manager has started still runs; comes first.

    Attributes:
        ports: at which it listens, as far as it has told.
    """

    spec: Spec
    pid: int
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rested:
    """What an earlier life has left behind beside its children; comes first.

    Attributes:
        ports: that children have used or kept away from.
        leader_epoch: the highest of a leader that it has obeyed.
        epoch: the highest host epoch under which it has started anything.
        since: the one since which this folder is in use; 0: longer than is known.
    """

    ports: tuple[int, ...]
    leader_epoch: int = 0
    epoch: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class Requested:
    """A configuration manager or a child asks or tells something."""

    peer: Peer
    message: HcmRequest


@dataclass(frozen=True, slots=True)
class Spawned:
    """The process of a child has been started, or was there."""

    child: str
    epoch: int
    pid: int


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The system has refused to start the process.

    Attributes:
        no_log: the log is not there that it has had; that is the reason.
    """

    child: str
    epoch: int
    reason: str
    no_log: bool = False


@dataclass(frozen=True, slots=True)
class Exited:
    """The process of a child has ended.

    Attributes:
        status: how, in words: `exit code 70`, `ended by signal 9`.
        last_line: of its log.
    """

    child: str
    epoch: int
    status: str
    last_line: str

    @property
    def by_itself(self) -> bool:
        """Whether its program has ended it: it has left, or has done what the system ends it for.

        Any other signal was sent by somebody, and it may go better the next time.
        """
        return self.status.startswith("exit code") or self.status in _OF_ITS_OWN


@dataclass(frozen=True, slots=True)
class Probed:
    """How the process of a child is.

    Attributes:
        state: a letter as in /proc/PID/stat; empty: it is not known.
        ran_ns: how long its main thread has run so far.
    """

    child: str
    epoch: int
    state: str
    ran_ns: int


@dataclass(frozen=True, slots=True)
class Erased:
    """Logs were to be removed.

    Attributes:
        erase: what was asked for.
        found: there were any.
        problem: why some of them stay, in a sentence; empty: none does.
    """

    erase: Erase
    found: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class LeaderAnswered:
    """The answer to `ReportToLeader`, or that none came in time."""

    answer: Answer | Unavailable


@dataclass(frozen=True, slots=True)
class LeaderLost:
    """The connection to where reports go has ended; what was under way is not answered."""

    endpoint: str
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The shell has looked how this process stands to the registry and to its machine."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Pressed:
    """The shell has looked what processor this host gets."""

    sample: CpuSample


@dataclass(frozen=True, slots=True)
class StopWanted:
    """The host manager shall end, with all its children.

    Attributes:
        drain: what runs here shall go elsewhere first, if it can in time.
    """

    drain: bool = False


Event = (
    Registered | Rested | Adopted | Requested | Spawned | SpawnFailed | Exited | Probed | Erased
    | LeaderAnswered | LeaderLost | Measured | Pressed | StopWanted | Tick
)  # fmt: skip

# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """Send one message to one peer, without waiting; a peer that is gone is no error."""

    peer: Peer
    message: Answer


@dataclass(frozen=True, slots=True)
class Spawn:
    """Write the spec down and have a process serve it.

    Attributes:
        alone: of a monitor: no others are in its process.
    """

    spec: Spec
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Remember:
    """Write down where a child listens, for the next life of this host manager."""

    child: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RememberLeader:
    """Write down that a leader of this epoch is obeyed, for the next life: it obeys none before."""

    epoch: int


@dataclass(frozen=True, slots=True)
class RememberEpoch:
    """Write down that children count under this host epoch, for the next life: its own is higher,
    also if the registry was restored from an older copy. The first one says how old the folder is.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Look how the process of a child is."""

    child: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """A child is no more, whatever becomes of its process, which may serve others.

    Attributes:
        retire: the process is given no others: one of its children has ended by itself.
    """

    child: str
    retire: bool = False


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask a child to end: its process by SIGTERM, a monitor through the pipe of its process."""

    child: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process of a child (SIGKILL), and all that it serves."""

    child: str


@dataclass(frozen=True, slots=True)
class Discard:
    """A child is gone for good: remove its spec file, and its log if `with_log`."""

    child: str
    with_log: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """A queue is removed: remove the logs of children that it had before it was stopped."""

    queue: str


@dataclass(frozen=True, slots=True)
class Erase:
    """Remove the logs of exchanges that are gone for good from the disk: of one, or of all of a
    queue that do not run (`number` -1); with `empty`, those alone that never held anything.

    Attributes:
        asked: who is told what became of them; None: who waits for the end of their exchange.
        here: there are others of these, of which the exchanges are children here.
    """

    queue: str
    queue_id: bytes
    number: int
    empty: bool = False
    asked: Asked | None = None
    here: bool = False


@dataclass(frozen=True, slots=True)
class ReportToLeader:
    """Send the report, completed with the load of this host, to the manager at `endpoint`."""

    endpoint: str
    report: HostReport


@dataclass(frozen=True, slots=True)
class Announce:
    """The leading configuration manager knows this host: it is ready."""

    cluster: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that belongs into the log.

    Attributes:
        event: what kind of thing it is.
        text: the line.
        warning: an operator may have to do something.
        repeated: it may come several times a second for long; one line in a few seconds will do.
    """

    event: str
    text: str
    warning: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """All children are gone: end the process."""


Effect = (
    Reply | Spawn | Remember | RememberLeader | RememberEpoch | Probe | Release | Terminate | Kill
    | Discard | Forget | Erase | ReportToLeader | Announce | Note | Finished
)  # fmt: skip
