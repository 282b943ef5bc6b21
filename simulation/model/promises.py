"""What must hold at the end of a trial, whatever went wrong in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from roq.model import QueueState
from roq.testing.history import StreamVerdict
from simulation.model.clients import PublisherShell
from simulation.model.cluster import QUEUE, Cluster
from simulation.model.hosts import Running
from simulation.model.troubles import CUTTING_OFF

REPLAY_SECONDS = 10.0
"""What a publisher had acknowledged for longer is not replayed, so its death changes nothing."""


def healed(cluster: Cluster) -> str:
    """What is not yet as it should be when nothing goes wrong any more; empty: all is well."""
    leaders = cluster.leaders
    if len(leaders) != 1:
        return f"{len(leaders)} managers lead"
    queue = leaders[0].machine.queues.get(QUEUE)
    if queue is None:
        return "the leader does not know the queue"
    record = queue.record
    if record.state is not QueueState.RUNNING:
        return f"the queue is {record.state}"
    wanted = {f"{QUEUE}.monitor": record.host}
    wanted |= {f"{QUEUE}.x{each.number}": each.host for each in record.exchanges}
    running = list(_running(cluster))
    for name, host in wanted.items():
        there = [machine for machine, child in running if child.spec.child == name]
        if there != [host]:
            return f"{name} belongs on {host} and runs on {', '.join(there) or 'none'}"
    for machine, child in running:
        if child.spec.child not in wanted:
            return f"{child.spec.child} runs on {machine} and is not wanted"
    return _clients(cluster, record.state)


def _running(cluster: Cluster) -> Iterator[tuple[str, Running]]:
    for host in cluster.hosts:
        for child in host.running.values():
            if child.process.alive:
                yield host.machine, child


def _clients(cluster: Cluster, _state: QueueState) -> str:
    serving = {each.info.number: each.info.epoch for each in cluster.exchanges}
    for publisher in cluster.publishers:
        if publisher.process.alive and not publisher.attached:
            return f"{publisher.process.name} is not attached: {publisher.why}"
    for subscriber in cluster.subscribers:
        if not subscriber.process.alive:
            continue
        if not subscriber.confirmed or subscriber.subscriber is None:
            return f"{subscriber.process.name} is not in force: {subscriber.why}"
        readers = dict(subscriber.subscriber.reception.readers.keys())
        if readers != serving:
            return f"{subscriber.process.name} reads {readers}, but {serving} serve"
    return ""


def excuse_the_dead(cluster: Cluster, happened: Collection[str]) -> None:
    """Say which messages nobody has promised, because their publisher has died.

    What it had not heard the acknowledgement of may be missing. So may what it would have replayed,
    if there was reason to.
    """
    replays = bool(CUTTING_OFF & set(happened)) or _exchanges_died(cluster)
    for publisher in cluster.publishers:
        if publisher.died_at is not None:
            for topic, first, end in publisher.unsettled:
                cluster.history.excuse(publisher.id, topic, first, end)
            for topic, first, end, at in publisher.acked if replays else ():
                if at >= publisher.died_at - REPLAY_SECONDS:
                    cluster.history.excuse(publisher.id, topic, first, end)


def _exchanges_died(cluster: Cluster) -> bool:
    spawned = cluster.watch.spawned
    return any(count > 1 for name, count in spawned.items() if not name.endswith(".monitor"))


def broken(cluster: Cluster, happened: Collection[str]) -> list[str]:
    """All promises that were broken, a sentence for each."""
    found = [f"a process ended by an exception: {crash}" for crash in cluster.world.crashes]
    found += cluster.watch.broken
    for publisher in cluster.publishers:
        found += _of_publisher(publisher)
    excuse_the_dead(cluster, happened)
    counted = bool(CUTTING_OFF & set(happened))
    names = {publisher.id: publisher.process.name for publisher in cluster.publishers}
    for row in cluster.history.check().rows:
        cluster.watch.checked["all arrives once and in order, or is counted"] += 1
        problem = _of_row(row, counted=counted)
        if problem:
            name = names.get(row.publisher, row.publisher.hex())
            found.append(f"{row.subscriber}, topic {row.topic!r} of {name}: {problem}")
    return found


def _of_publisher(publisher: PublisherShell) -> list[str]:
    name, epochs = publisher.process.name, publisher.epochs
    found = [f"{name} was told that a batch failed: {each}" for each in publisher.failures[:3]]
    if epochs != sorted(epochs):
        found.append(f"{name} obeyed a lower epoch after a higher one: {epochs}")
    return found


def _of_row(row: StreamVerdict, *, counted: bool) -> str:
    figures = [
        f"{value} {name}"
        for name, value in (
            ("lost without a word", row.lost),
            ("doubled", row.duplicated),
            ("out of order", row.reordered),
            ("that nobody sent", row.foreign),
            ("lost, though nobody was cut off", 0 if counted else row.counted_lost),
        )
        if value
    ]
    return ", ".join(figures) + f" (of {row.sent})" if figures else ""
