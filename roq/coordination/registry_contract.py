"""What outlives a process: the registry as the managers of a cluster see it.

    GCM   reads the whole tree when it begins to lead, then writes definitions under its fence
    HCM   registers its host (ephemeral) and fetches its epoch
    both  follow who leads and which hosts live

A `Registry` is made for one single-threaded event loop. No method blocks. Every result comes back
as a call that the registry hands to the `post` function it was built with (`Reactor.call_soon`), in
the order in which things happened, so a callback may touch the state of its owner without a lock.

A result is a value, never raised: what worked, or `RegistryAway`, `StaleEpoch`, `Conflict`.

Paths begin with `/` and are relative to the root of the cluster (`/RoQ`):

    /cluster          the identity of the cluster, text; made by the first leader
    /leader           data of the manager that leads
    /candidates/…     one ephemeral node per configuration manager
    /epoch            its version counts the epochs of leaders and host managers
    /base             what they are counted from: above 0 if an earlier registry was lost
    /hosts/<host>     one ephemeral node per live host manager
    /queues/…         definitions, owned by the leader

Leadership is an epoch. After SUSPENDED a leader writes nothing; if CONNECTED follows, it goes on
with the epoch it had; if LOST follows, it leads no more. A writer that does not know this yet is
stopped by the fence: every write of the leader checks, in one transaction, that nobody has written
the leader node since.

A registry that has lost everything looks like one that never held anything. What tells them apart
is what its users remember: a manager that knows its cluster's name neither leads where there is
none unless it can write back what there was, nor where there is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from roq.errors import LocalProtocolError, RegistryAway, StaleEpoch

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a function soon in the loop that owns the registry; callable from any thread."""

CLUSTER = "/cluster"
LEADER = "/leader"
CANDIDATES = "/candidates"
EPOCH = "/epoch"
BASE = "/base"
HOSTS = "/hosts"
QUEUES = "/queues"

DATA_BYTES_MAX = 1_000_000
"""ZooKeeper ends the connection of a client that sends more than 1 MiB at once."""
ANY_VERSION = -1
EPOCH_MAX = (1 << 20) - 1
"""The highest epoch of a leader or host manager: what fits beside a count of its children."""
LOST_EPOCHS: Final = 1_000
"""So many more are left out after a registry was lost: what nobody has reported may have them."""
EPOCHS_AHEAD_MAX: Final = 100_000
"""An epoch that is so far above those that are given now was not given by this cluster."""
_UNUSABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""What ZooKeeper takes in no path. Everything else may stand there: other tools write, too."""
_IDENTITY: Final = re.compile("[!-~]{1,64}")


class SessionState(StrEnum):
    """How the registry stands to the ensemble."""

    CONNECTED = "connected"
    """Reads and writes work."""
    SUSPENDED = "suspended"
    """The connection is gone; the session, and with it leadership, may or may not survive."""
    LOST = "lost"
    """There is no session; ephemeral nodes and leadership are gone."""


@dataclass(frozen=True, slots=True)
class Node:
    """What stands under a path."""

    path: str
    data: bytes
    version: int
    """Rises by one with each `Set`; begins at 0."""
    owner: int = 0
    """The session that an ephemeral node lives with, 0 for a persistent one."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; its parent must exist, possibly by an earlier operation of the same commit."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    """The node vanishes with the session."""

    def __post_init__(self) -> None:
        check_path(self.path)
        check_data(self.path, self.data)


@dataclass(frozen=True, slots=True)
class Set:
    """Replace the data of a node that exists, if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION

    def __post_init__(self) -> None:
        check_path(self.path)
        check_data(self.path, self.data)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node that exists and has no children, if it has this version."""

    path: str
    version: int = ANY_VERSION

    def __post_init__(self) -> None:
        check_path(self.path)


Operation: TypeAlias = Create | Set | Delete


@dataclass(frozen=True, slots=True)
class Fence:
    """Lets a commit through only while the leader node has this version."""

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Leadership:
    """This process leads, with this epoch."""

    epoch: int
    version: int
    """Of the leader node, as this leader has written it."""

    @property
    def fence(self) -> Fence:
        """What each write of this leader carries."""
        return Fence(self.epoch, self.version)


@dataclass(frozen=True, slots=True)
class Committed:
    """All operations were done, at once."""

    versions: tuple[int, ...] = ()
    """Per operation, the version of its node afterwards; -1 for a deleted one."""


class RegistryDenied(RegistryAway):
    """The ensemble is there, and does not permit this process to read what stands at one path."""


class Reason(StrEnum):
    """Why an operation does not fit what stands in the registry."""

    EXISTS = "exists"
    MISSING = "missing"
    VERSION = "version"
    NOT_EMPTY = "not_empty"
    DENIED = "not_permitted"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was done: one operation does not fit what stands in the registry."""

    path: str
    reason: Reason


CommitResult: TypeAlias = Committed | StaleEpoch | Conflict | RegistryAway


def identity_of(found: Node | RegistryAway | None) -> str | RegistryAway | None:
    """The identity that stands at `CLUSTER`; None: nothing does, empty: it cannot be one."""
    if not isinstance(found, Node):
        return found
    text = found.data.decode("ascii", "replace")
    return text if _IDENTITY.fullmatch(text) else ""


def anywhere(_cluster: str | None) -> bool:
    """A process without a past may lead any cluster."""
    return True


def nothing() -> int:
    """A process without a past knows no epoch."""
    return 0


def ignored(_problem: str) -> None:
    """A caller that can do nothing about a problem need not hear of it."""


class Registry(Protocol):
    """The registry of one cluster, used from one loop.

    `RegistryAway` as the result of a write leaves open whether it was done (the connection may have
    broken while it was under way): read again after the next CONNECTED before deciding anything.
    """

    @property
    def state(self) -> SessionState:
        """How the registry stands to the ensemble, as last told to `on_session`."""
        ...

    def start(
        self,
        on_session: Callable[[SessionState], None],
        on_problem: Callable[[str], None] = ignored,
    ) -> None:
        """Begin to connect and keep trying, for ever.

        Args:
            on_session: told each change of the session.
            on_problem: told why no epoch can be drawn, and what to do about it, though the registry
                is in reach; and an empty text once one can. Until then nobody begins to lead.
        """
        ...

    def read(self, path: str, done: Callable[[Node | RegistryAway | None], None]) -> None:
        """Fetch one node; None if there is none."""
        ...

    def read_tree(self, path: str, done: Callable[[list[Node] | RegistryAway], None]) -> None:
        """Fetch everything below `path`, sorted by path; empty if there is nothing."""
        ...

    def commit(
        self,
        operations: Sequence[Operation],
        fence: Fence | None,
        done: Callable[[CommitResult], None],
    ) -> None:
        """Do all operations or none of them, in order.

        With a fence, nothing is done and `StaleEpoch` given once another process leads.
        """
        ...

    def campaign(
        self,
        data: bytes,
        on_lead: Callable[[Leadership], None],
        on_follow: Callable[[bytes | None], None],
        may_lead: Callable[[str | None], bool] = anywhere,
        above: Callable[[], int] = nothing,
    ) -> None:
        """Stand for election, again after each lost session, until closed.

        Args:
            data: what others learn of this process if it leads; differs between processes.
            on_lead: this process leads from now on, until LOST or `on_follow`.
            on_follow: this process does not lead; the data of the one that does, None if nobody
                does at the moment. Called when it changes, and first after each lost session.
            may_lead: asked, before it stands and whenever that changes, whether this process may
                lead the cluster of this identity; None: the registry has none (yet), empty: what
                stands there cannot be one.
            above: the highest epoch that this process knows; it leads with a higher one.
        """
        ...

    def lead_anew(self, fence: Fence) -> None:
        """Give up the leadership of this fence and look who leads; this process with a new epoch.

        It is asked again above which epoch it leads. Nothing happens if it leads no more.
        """
        ...

    def register_host(
        self,
        host: str,
        data: bytes,
        done: Callable[[Committed | Conflict], None],
    ) -> None:
        """Keep an ephemeral node for this host for as long as the registry is open.

        The first registration takes the name over from a process that held it before (a restarted
        host manager need not wait for the session of the killed one to end).

        Args:
            host: name of the node below `/hosts`.
            data: what others read about the host; registering again replaces it. JSON with the
                `epoch` of the process says who is newer, whatever a slow registry does late.
            done: called with `Committed` once the node stands, and again after each lost session;
                with `Conflict` when another process has taken the name: it is not kept any more.
        """
        ...

    def next_host_epoch(self, done: Callable[[int | RegistryAway], None], above: int = 0) -> None:
        """Draw the next number, from 1, of the cluster's counter; none is given twice.

        Waits until a leader has given the cluster its identity: until then it is open where the
        count begins.

        Args:
            done: gets the number.
            above: the number will be higher than this one, which is known to have been given.
        """
        ...

    def cluster_id(self, done: Callable[[str | RegistryAway | None], None]) -> None:
        """The identity of this cluster; None: no leader has given it one (yet), empty: spoilt."""
        ...

    def watch_children(self, path: str, on_change: Callable[[tuple[str, ...]], None]) -> None:
        """Tell the sorted names of the children of `path` now, at changes and after reconnecting.

        The same names again mean that a child may have been replaced. A missing path has none.
        """
        ...

    def close(self) -> None:
        """End the session, so ephemeral nodes vanish at once if the ensemble is reachable.

        Takes a bounded time (about two seconds at most); no callback comes afterwards. Idempotent.
        """
        ...


def check_path(path: str) -> str:
    """Give `path` back if it is absolute and plain.

    Raises:
        LocalProtocolError: anything else; names from outside are checked before they get here.
    """
    names = path.split("/")
    if names[0] or len(names) < 2 or any(name in {"", ".", ".."} for name in names[1:]):
        raise LocalProtocolError(f"{path!r} is no path of the registry")
    if _UNUSABLE.search(path):
        raise LocalProtocolError(f"{path!r} has characters that a path of the registry cannot have")
    return path


def check_data(path: str, data: bytes) -> bytes:
    """Give `data` back if it fits into one node.

    Raises:
        LocalProtocolError: above `DATA_BYTES_MAX`.
    """
    if len(data) > DATA_BYTES_MAX:
        raise LocalProtocolError(
            f"{path} would hold {len(data)} bytes, a node holds at most {DATA_BYTES_MAX}"
        )
    return data
