"""What processes tell of themselves and of each other: the parts of control messages."""

from __future__ import annotations

import builtins
from typing import Annotated, Final

import msgspec

from roq.model import CLIENT_NAME_MAX, VOLATILE
from roq.number_ranges import Amount, ChildEpoch, ExchangeNumber, Int32, Whole
from roq.protocol.requesting import DiscardCounts, Durations

ClientName = Annotated[
    str,
    msgspec.Meta(
        max_length=CLIENT_NAME_MAX,
        # No controls, no line ends, nothing that turns the direction of writing.
        pattern=r"\A[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*\Z",
    ),
]
"""How a client calls itself: it is shown to people as it is."""


class ChildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A child process as its host manager sees it."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    role: str
    """`monitor` or `exchange`."""
    queue: str
    queue_id: bytes
    number: ExchangeNumber = 0
    """The exchange's number; 0 for a monitor."""
    epoch: ChildEpoch
    generation: ChildEpoch = 0
    """Of an exchange's log, see `LogId`; 0: it does not run yet."""
    state: str
    """`starting`, `running`, `restarting`, `failed`, `stopping`; a child that ends because a newer
    process has its place says `superseded`, and is not started again; one that is no more, while
    its process may go on with others, says `ended`."""
    pid: Int32 = 0
    control: str = ""
    """A monitor's address for clients and exchanges; empty until it runs."""
    statistics: str = ""
    data: str = ""
    live: str = ""
    restarts: Whole = 0
    reason: str = ""
    """Why it is not running, in a sentence."""
    durability: str = VOLATILE
    """Of an exchange: what becomes of its log when it ends."""


RETENTION: Final = "retention"
"""Name of what a monitor checks: that logs let go what groups have done; there if they do not."""


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
    cpu_percent: Amount = 0.0
    """Of all cores together."""
    memory_used_bytes: Whole = 0
    live: bool = True


class PublisherLoad(msgspec.Struct, frozen=True, array_like=True):
    """What one publisher brought to an exchange since it joined."""

    publisher: builtins.bytes  # the plain name means the field below
    messages: Whole
    bytes: Whole
    """Payload bytes, headers included in `batch_bytes` only."""


class ExchangeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one exchange since its start, and its present state."""

    messages_in: Whole = 0
    bytes_in: Whole = 0
    batches_in: Whole = 0
    messages_out: Whole = 0
    bytes_out: Whole = 0
    publishers: Whole = 0
    subscribers: Whole = 0
    ring_bytes: Whole = 0
    end_offset: Whole = 0
    floor_offset: Whole = 0
    cpu_percent: Amount = 0.0
    memory_bytes: Whole = 0
    malformed: Whole = 0
    """Messages that were refused because they could not be read."""
    duplicates: Whole = 0
    resets: Whole = 0
    fetches: Whole = 0
    acks_pending: Whole = 0
    """Publishers that are owed an acknowledgement at the moment."""
    lag_ms: Amount = 0.0
    """The longest turn of the event loop since the last report."""
    holding: Whole = 0
    """1: publishers wait for a slow subscriber at the moment."""
    held_seconds: Amount = 0.0
    """For how long they have, all in all."""
    behind: Whole = 0
    """Subscribers that nobody waits for any more until they have caught up."""
    left_behind: Whole = 0
    """How often that has happened."""
    slow_bytes: Whole = 0
    """What batches that have left the ring take at most, as they wait for slow subscribers."""
    consumers: Whole = 0
    """Members of consumer groups that are connected."""
    groups: Whole = 0
    groups_behind: Whole = 0
    """Consumer groups that have not done everything that is there."""
    groups_oldest_seconds: Amount = 0.0
    """Age of the oldest batch that one of them has not done."""
    stale: Whole = 0
    """Messages that consumer groups were not handed, as their time to live was over."""
    delayed: Whole = 0
    """Delayed messages that wait for their time."""
    transactions: Whole = 0
    """Transactions that are open."""
    transactions_kept: Whole = 0
    """Of these, left to a person."""
    transactions_oldest: Amount = 0.0
    """Seconds for which the oldest one is, as far as this process of the exchange has seen it."""
    transactions_checked: Whole = 0
    """Producers that were asked what has become of one."""
    transactions_by_policy: Whole = 0
    """Transactions that have ended by what is done when nobody knows."""
    requests_open: Whole = 0
    """Requests that have not ended, of all services here."""
    requests_accepted: Whole = 0
    requests_done: Whole = 0
    requests_failed: Whole = 0
    requests_discarded: Whole = 0
    requests_discarded_by: DiscardCounts = {}
    """By reason; none: 0."""
    requests_otherwise: Whole = 0
    """Cancelled, late or unknown."""
    requests_retried: Whole = 0
    responses_stored: Whole = 0
    responses_bytes: Whole = 0
    """What stored outcomes take that nobody has fetched yet."""
    responses_expired: Whole = 0
    requests_oldest_seconds: Amount = 0.0
    """Age of the oldest request that has not ended."""
    requests_waiting: Durations = Durations()
    """Until requests were handed out."""
    requests_running: Durations = Durations()
    """Until those that were handed out were answered."""
    responses_unfetched: Durations = Durations()
    """Until outcomes were fetched, and how many were:"""
    responses_fetched: Whole = 0
    cut_off: Whole = 0
    """How often the connection of one was ended, as that was too much for all of them together."""
