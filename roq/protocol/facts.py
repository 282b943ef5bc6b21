"""What processes tell of themselves and of each other: the parts of control messages."""

from __future__ import annotations

import builtins

import msgspec


class ChildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A child process as its host manager sees it."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    role: str
    """`monitor` or `exchange`."""
    queue: str
    queue_id: bytes
    number: int = 0
    """The exchange's number; 0 for a monitor."""
    epoch: int
    state: str
    """`starting`, `running`, `restarting`, `failed`, `stopping`; a child that ends because a newer
    process has its place says `superseded`, and is not started again."""
    pid: int = 0
    control: str = ""
    """A monitor's address for clients and exchanges; empty until it runs."""
    statistics: str = ""
    data: str = ""
    live: str = ""
    restarts: int = 0
    reason: str = ""
    """Why it is not running, in a sentence."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a daemon needs in order to do its work."""

    name: str
    ok: bool
    detail: str = ""
    """What is wrong and what to do, in a sentence; or what is worth knowing."""
    essential: bool = True
    """Whether the daemon is not ready without it; anything else is a warning."""


class HostUse(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a host is, by its manager's last report."""

    host: str
    cpu_percent: float = 0.0
    """Of all cores together."""
    memory_used_bytes: int = 0
    live: bool = True


class PublisherLoad(msgspec.Struct, frozen=True, array_like=True):
    """What one publisher brought to an exchange since it joined."""

    publisher: builtins.bytes  # the plain name means the field below
    messages: int
    bytes: int
    """Payload bytes, headers included in `batch_bytes` only."""


class ExchangeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one exchange since its start, and its present state."""

    messages_in: int = 0
    bytes_in: int = 0
    batches_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    publishers: int = 0
    subscribers: int = 0
    ring_bytes: int = 0
    end_offset: int = 0
    floor_offset: int = 0
    cpu_percent: float = 0.0
    memory_bytes: int = 0
    malformed: int = 0
    """Messages that were refused because they could not be read."""
    duplicates: int = 0
    resets: int = 0
    fetches: int = 0
    acks_pending: int = 0
    """Publishers that are owed an acknowledgement at the moment."""
    lag_ms: float = 0.0
    """The longest turn of the event loop since the last report."""
    holding: int = 0
    """1: publishers wait for a slow subscriber at the moment."""
    held_seconds: float = 0.0
    """For how long they have, all in all."""
    behind: int = 0
    """Subscribers that nobody waits for any more until they have caught up."""
    left_behind: int = 0
    """How often that has happened."""
