"""The figures of a host manager and of its children, for those who watch many hosts.

Children have no HTTP server: they tell their figures with their reports, and their host manager
tells the last ones. One that does not run has none, and `roq_child_up` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from roq.hcm.children import EXCHANGE, MONITOR, Child, Children, State
from roq.hcm.leader import Leader
from roq.model import exchange_name
from roq.protocol.metrics import Metric, Sample, buckets, counter, gauge, histogram
from roq.protocol.requesting import DISCARD_REASONS, DURATION_BOUNDS, Durations

_EXCHANGE: Final = ("queue", "exchange")
_ROLES: Final = (MONITOR, EXCHANGE)

LEADER: Final = gauge("roq_host_leader_known", "1 if the leading manager takes our reports.")
CHILDREN: Final = gauge("roq_host_children", "Child processes by role and state.", "role", "state")
SLOTS: Final = gauge("roq_host_exchanges_max", "Exchanges that may run here; 0: no limit.")
DISK: Final = gauge("roq_host_disk_bytes", "Size of the disk of the data folder.")
DISK_FREE: Final = gauge("roq_host_disk_free_bytes", "What is free on it.")
UP: Final = gauge("roq_child_up", "1 if this child runs.", "queue", "child")
RESTARTS: Final = counter(
    "roq_child_restarts_total", "How often this child has ended by itself.", "queue", "child"
)
FILES: Final = gauge(
    "roq_child_open_fds", "Descriptors that the process of this child has open.", "queue", "child"
)
RING_MAX: Final = gauge(
    "roq_exchange_ring_max_bytes", "What the log of this exchange may hold.", *_EXCHANGE
)

OF_EXCHANGE: Final[Mapping[str, tuple[Metric, float]]] = {
    name: (metric, scale)
    for name, scale, metric in (
        ("messages_in", 1, counter(
            "roq_exchange_messages_received_total", "Messages from publishers.", *_EXCHANGE)),
        ("bytes_in", 1, counter(
            "roq_exchange_received_bytes_total", "Bytes of these messages.", *_EXCHANGE)),
        ("batches_in", 1, counter(
            "roq_exchange_batches_received_total", "Batches from publishers.", *_EXCHANGE)),
        ("messages_out", 1, counter(
            "roq_exchange_messages_sent_total",
            "Messages to subscribers, once for each of them.", *_EXCHANGE)),
        ("bytes_out", 1, counter(
            "roq_exchange_sent_bytes_total",
            "Bytes of batches to subscribers, once for each of them.", *_EXCHANGE)),
        ("publishers", 1, gauge("roq_exchange_publishers", "Publishers here.", *_EXCHANGE)),
        ("subscribers", 1, gauge("roq_exchange_subscribers", "Subscribers here.", *_EXCHANGE)),
        ("ring_bytes", 1, gauge(
            "roq_exchange_ring_bytes",
            "What the log holds; in a full ring the oldest makes room for the newest.",
            *_EXCHANGE)),
        ("acks_pending", 1, gauge(
            "roq_exchange_acks_pending",
            "Publishers that are owed an acknowledgement at the moment.", *_EXCHANGE)),
        ("lag_ms", 0.001, gauge(
            "roq_exchange_longest_turn_seconds",
            "The longest turn of its loop in the last period: so long no peer was heard.",
            *_EXCHANGE)),
        ("duplicates", 1, counter(
            "roq_exchange_duplicates_total", "Batches that had come before; replays.", *_EXCHANGE)),
        ("resets", 1, counter(
            "roq_exchange_resets_total",
            "Times a publisher was asked to go back and replay.", *_EXCHANGE)),
        ("fetches", 1, counter(
            "roq_exchange_fetches_total", "Times a subscriber fetched what it missed.",
            *_EXCHANGE)),
        ("held_seconds", 1, counter(
            "roq_exchange_held_seconds_total",
            "For how long publishers have waited for a slow subscriber.", *_EXCHANGE)),
        ("behind", 1, gauge(
            "roq_exchange_subscribers_behind",
            "Subscribers that publishers do not wait for until they have caught up.", *_EXCHANGE)),
        ("left_behind", 1, counter(
            "roq_exchange_left_behind_total",
            "Times a subscriber was not waited for any more.", *_EXCHANGE)),
        ("slow_bytes", 1, gauge(
            "roq_exchange_slow_bytes",
            "At most what batches that have left the ring take, as they wait for slow subscribers.",
            *_EXCHANGE)),
        ("consumers", 1, gauge(
            "roq_exchange_consumers", "Members of consumer groups that are connected.",
            *_EXCHANGE)),
        ("groups_behind", 1, gauge(
            "roq_exchange_groups_behind",
            "Consumer groups that have not done everything that is there.", *_EXCHANGE)),
        ("groups_oldest_seconds", 1, gauge(
            "roq_exchange_groups_oldest_seconds",
            "Age of the oldest batch that one of its groups has not done.", *_EXCHANGE)),
        ("stale", 1, counter(
            "roq_exchange_stale_total",
            "Messages that its groups were not handed, as their time to live was over.",
            *_EXCHANGE)),
        ("delayed", 1, gauge(
            "roq_exchange_delayed", "Delayed messages that wait for their time.", *_EXCHANGE)),
        ("transactions", 1, gauge(
            "roq_exchange_transactions_open", "Transactions that are open.", *_EXCHANGE)),
        ("transactions_kept", 1, gauge(
            "roq_exchange_transactions_kept", "Of these, left to a person.", *_EXCHANGE)),
        ("transactions_oldest", 1, gauge(
            "roq_exchange_transactions_oldest_seconds",
            "For so long the oldest is open, as the process of its exchange has seen it.",
            *_EXCHANGE)),
        ("transactions_checked", 1, counter(
            "roq_exchange_transactions_checked_total",
            "Times a producer was asked what has become of a transaction.", *_EXCHANGE)),
        ("transactions_by_policy", 1, counter(
            "roq_exchange_transactions_by_policy_total",
            "Transactions that have ended by what is done when nobody knows.", *_EXCHANGE)),
        ("requests_open", 1, gauge(
            "roq_exchange_requests_open", "Requests to services that have not ended.",
            *_EXCHANGE)),
        ("requests_oldest_seconds", 1, gauge(
            "roq_exchange_requests_oldest_seconds", "Age of the oldest of them.", *_EXCHANGE)),
        ("requests_accepted", 1, counter(
            "roq_exchange_requests_accepted_total", "Requests to services.", *_EXCHANGE)),
        ("requests_done", 1, counter(
            "roq_exchange_requests_done_total", "Of these, those with a response.", *_EXCHANGE)),
        ("requests_failed", 1, counter(
            "roq_exchange_requests_failed_total", "Those whose handler has raised.", *_EXCHANGE)),
        ("requests_discarded", 1, counter(
            "roq_exchange_requests_discarded_total", "Those that no instance has taken.",
            *_EXCHANGE)),
        ("requests_otherwise", 1, counter(
            "roq_exchange_requests_otherwise_total", "Those cancelled, late or unknown.",
            *_EXCHANGE)),
        ("requests_retried", 1, counter(
            "roq_exchange_requests_retried_total",
            "Times that an instance has given one back, to be run again.", *_EXCHANGE)),
        ("responses_stored", 1, gauge(
            "roq_exchange_responses_stored", "Outcomes that nobody has fetched yet.",
            *_EXCHANGE)),
        ("responses_bytes", 1, gauge(
            "roq_exchange_responses_stored_bytes", "What they take.", *_EXCHANGE)),
        ("responses_fetched", 1, counter(
            "roq_exchange_responses_fetched_total", "Outcomes that were fetched.", *_EXCHANGE)),
        ("responses_expired", 1, counter(
            "roq_exchange_responses_expired_total", "Outcomes that nobody has fetched in time.",
            *_EXCHANGE)),
        ("cut_off", 1, counter(
            "roq_exchange_cut_off_total",
            "Times a slow subscriber's connection was ended, as all of them took too much.",
            *_EXCHANGE)),
        ("malformed", 1, counter(
            "roq_exchange_malformed_total", "Messages that could not be read.", *_EXCHANGE)),
        ("cpu_percent", 0.01, gauge(
            "roq_exchange_cpu_ratio", "CPU of its process; 1 is a whole core.", *_EXCHANGE)),
        ("memory_bytes", 1, gauge(
            "roq_exchange_memory_bytes", "Resident memory of its process.", *_EXCHANGE)),
    )
}  # fmt: skip
"""Name in a `ChildReport` → metric, and what one of the former is in the unit of the latter."""

DISCARDED: Final = counter(
    "roq_exchange_requests_discarded_by_reason_total",
    f"Requests that no instance has taken: {', '.join(DISCARD_REASONS)}.",
    *_EXCHANGE, "reason",
)  # fmt: skip
_DISCARDED: Final = {f"requests_discarded_by.{reason}": reason for reason in DISCARD_REASONS}
DURATIONS: Final = {
    "requests_waiting": histogram(
        "roq_exchange_requests_waiting_seconds", "Time until requests were handed out.", *_EXCHANGE
    ),
    "requests_running": histogram(
        "roq_exchange_requests_running_seconds",
        "Time until those that were handed out were answered.", *_EXCHANGE,
    ),
    "responses_unfetched": histogram(
        "roq_exchange_responses_unfetched_seconds", "Time until outcomes were fetched.", *_EXCHANGE
    ),
}  # fmt: skip
"""Name of `Durations` of an `ExchangeLoad` → metric."""

OF_MONITOR: Final[Mapping[str, tuple[Metric, float]]] = {
    name: (metric, 1)
    for name, metric in (
        ("exchanges", gauge("roq_monitor_exchanges", "Exchanges that report to it.", "queue")),
        ("publishers", gauge("roq_monitor_publishers", "Publishers that it hears of.", "queue")),
        ("subscribers", gauge("roq_monitor_subscribers", "Subscribers that it hears of.", "queue")),
        ("moves", counter(
            "roq_monitor_moves_total", "Publishers that it has sent elsewhere.", "queue")),
    )
}  # fmt: skip

_TOLD: Final = {EXCHANGE: OF_EXCHANGE, MONITOR: OF_MONITOR}
_ONE: Final = Durations([0] * (len(DURATION_BOUNDS) + 1))
_NAMES: Final = {
    EXCHANGE: (
        *OF_EXCHANGE,
        *_DISCARDED,
        *(each for name in DURATIONS for each in _ONE.told(name)),
    ),
    MONITOR: tuple(OF_MONITOR),
}

METRICS: Final = (
    LEADER, CHILDREN, SLOTS, DISK, DISK_FREE, UP, RESTARTS, FILES, RING_MAX,
    *(metric for metric, _ in OF_EXCHANGE.values()), DISCARDED, *DURATIONS.values(),
    *(metric for metric, _ in OF_MONITOR.values()),
)  # fmt: skip


def known(role: str, told: Mapping[str, float]) -> dict[str, float]:
    """Of what a child tells, that which has a name here; anything else is not kept."""
    return {name: told[name] for name in _NAMES[role] if name in told}


def figures(children: Children, leader: Leader, exchange_max: int) -> Iterator[Sample]:
    """How `METRICS` stand, but for what the shell measures."""
    yield Sample(LEADER, bool(leader.leading))
    yield Sample(SLOTS, exchange_max)
    counts = Counter((child.role, child.state) for child in children)
    for role in _ROLES:
        for state in State:
            yield Sample(CHILDREN, counts[role, state], (role, state))
    for child in children:
        yield from _of_child(child)


def of_machine(
    disk_bytes: int, disk_free_bytes: int, open_files: Mapping[str, int]
) -> Iterator[Sample]:
    """The others, as the shell has measured them.

    Args:
        disk_bytes, disk_free_bytes: of the data folder.
        open_files: child → its open descriptors.
    """
    yield Sample(DISK, disk_bytes)
    yield Sample(DISK_FREE, disk_free_bytes)
    for name, files in open_files.items():
        queue, _, child = name.rpartition(".")
        yield Sample(FILES, files, (queue, child))


def _of_child(child: Child) -> Iterator[Sample]:
    running = child.state is State.RUNNING
    name = exchange_name(child.number) if child.role == EXCHANGE else MONITOR
    yield Sample(UP, running, (child.queue, name))
    yield Sample(RESTARTS, child.history.total, (child.queue, name))
    labels = (child.queue, name) if child.role == EXCHANGE else (child.queue,)
    if not running:
        return
    if child.role == EXCHANGE:
        yield Sample(RING_MAX, child.limits.ring_bytes, labels)
    for told, value in child.metrics.items():
        if told in _TOLD[child.role]:
            metric, scale = _TOLD[child.role][told]
            yield Sample(metric, value * scale, labels)
        elif told in _DISCARDED:
            yield Sample(DISCARDED, value, (*labels, _DISCARDED[told]))
    for name, metric in DURATIONS.items() if child.role == EXCHANGE else ():
        some = Durations.among(name, child.metrics)
        if some.count:
            counted = buckets(DURATION_BOUNDS, some.counts)
            yield Sample(metric, some.seconds, labels, counted)
