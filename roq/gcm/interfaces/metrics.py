"""The figures of a configuration manager, for those who watch many of them.

What concerns the cluster is told by the leader alone; a follower tells 0, so that sums over all
managers are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from roq.gcm.change.operations import Operations
from roq.gcm.repair.schedule import RepairSchedule
from roq.gcm.state.hosts import Hosts, HostState
from roq.gcm.state.queues import Queues
from roq.gcm.state.role import Role
from roq.model import QueueState
from roq.protocol.metrics import Sample, by_state, counter, gauge

LEADER: Final = gauge("roq_gcm_leader", "1 on the manager that leads, 0 on the others.")
REGISTRY: Final = gauge(
    "roq_gcm_registry_connected", "1 if the registry can be reached; without it nothing is changed."
)
MANAGERS: Final = gauge("roq_gcm_managers", "Managers that stand for election, as seen here.")
HOSTS: Final = gauge("roq_gcm_hosts", "Hosts by the state of their host manager.", "state")
QUEUES: Final = gauge("roq_gcm_queues", "Queues by state.", "state")
DEGRADED: Final = gauge(
    "roq_gcm_queues_degraded",
    "Queues that lack something; `roq queue list` says what, and what becomes of it.",
)
UNREADABLE: Final = gauge(
    "roq_gcm_queues_unreadable", "Queues whose definition in the registry cannot be read."
)
EXCHANGES: Final = gauge("roq_gcm_exchanges", "Exchanges of all queues, as they are defined.")
OPERATIONS: Final = gauge("roq_gcm_operations", "Queues that are being changed at the moment.")
MENDED: Final = counter(
    "roq_gcm_queues_mended_total", "Times a queue got back what it had lost, by this manager."
)
NOT_MENDED: Final = counter(
    "roq_gcm_queues_not_mended_total", "Times that was tried in vain; it is tried again."
)

METRICS: Final = (
    LEADER, REGISTRY, MANAGERS, HOSTS, QUEUES, DEGRADED, UNREADABLE, EXCHANGES, OPERATIONS, MENDED,
    NOT_MENDED,
)  # fmt: skip


def figures(
    role: Role,
    queues: Queues,
    hosts: Hosts,
    operations: Operations,
    repairs: RepairSchedule,
) -> Iterator[Sample]:
    """How all of `METRICS` stand."""
    leads = role.leads and not role.caretaker
    yield Sample(LEADER, leads)
    yield Sample(REGISTRY, bool(role.cluster) and not role.registry_away)
    yield Sample(MANAGERS, len(role.managers))
    yield from by_state(HOSTS, (host.state for host in hosts), HostState)
    yield from by_state(QUEUES, (queue.record.state for queue in queues), QueueState)
    yield Sample(DEGRADED, len(repairs.degraded()))
    yield Sample(UNREADABLE, len(queues.unreadable))
    yield Sample(EXCHANGES, sum(len(queue.record.exchanges) for queue in queues))
    yield Sample(OPERATIONS, len(operations.queues))
    yield Sample(MENDED, repairs.mended)
    yield Sample(NOT_MENDED, repairs.not_mended)
