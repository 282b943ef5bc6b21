"""What must hold at the end of a trial, whatever went wrong in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from roq.client.consume.seat import SeatPhase
from roq.gcm.state.records import QueueRecord
from roq.log.groups import ConsumerGroup
from roq.model import QueueState, exchange_name
from roq.simulation.virtual.children import ExchangeShell
from roq.simulation.virtual.clients import PublisherShell
from roq.simulation.virtual.cluster import QUEUE, Cluster, Shape
from roq.simulation.virtual.disks import Messages, add_messages
from roq.simulation.virtual.hosts import Running
from roq.simulation.virtual.kinds import Does, that
from roq.simulation.virtual.members import Joining
from roq.simulation.virtual.troubles import CUTTING_OFF
from roq.testing.history import StreamVerdict

SPARING_CHILDREN = that(Does.SPARES_CHILDREN)
SPARING_READERS = that(Does.SPARES_READERS)
PACED = that(Does.PACED)
LEADERLESS = that(Does.LEADERLESS)
HELD_TIMES = 2
"""What is put aside in a subscriber may come to so many times that from which on it leaves
exchanges alone: what is under way arrives, and two may each be ahead of the other."""
ROOMY_BYTES = 16_000
"""Below this a few batches are much of it."""
PATIENCE_SECONDS = 4.0
"""Readers wait five seconds for an exchange that says nothing; that begins a moment before."""
REPLAYED_SECONDS = 1.5
"""Who was cut off for less than this all together reads or replays in time all the same."""
LOST_MOST = 250
"""Messages of one publisher and topic that one subscriber may report as lost: what is published
within the longest time for which a process is cut off, and may still be in one exchange."""
GONE_MOST = 300
"""Those that a publisher may have in its hands when it dies."""
FORGOTTEN_SECONDS = 14.0
"""A monitor forgets a client after ten seconds; its own pause may come in between."""
REPLAY_SECONDS = 10.0
"""What a publisher had acknowledged for longer is not replayed, so its death changes nothing."""


def healed(cluster: Cluster) -> str:
    """What is not yet as it should be when nothing goes wrong any more; empty: all is well."""
    leaders = cluster.leaders
    if len(leaders) != 1:
        return f"{len(leaders)} managers lead"
    queues = leaders[0].machine.queues
    if queues.get(QUEUE) is None:
        return f"the leader does not know queue {QUEUE}"
    records = [queue.record for queue in queues]
    return "".join(map(_half_done, records)) or _processes(cluster, records) or _clients(cluster)


def _half_done(record: QueueRecord) -> str:
    """What was begun with a queue and not completed."""
    if record.state is not QueueState.RUNNING:
        return f"queue {record.name} is {record.state}"
    unfinished = [each for each in record.exchanges if each.state != "created"]
    return ", ".join(f"x{each.number} of {record.name} is {each.state}" for each in unfinished)


def _processes(cluster: Cluster, records: list[QueueRecord]) -> str:
    wanted = {f"{record.name}.monitor": record.host for record in records}
    for record in records:
        wanted |= {f"{record.name}.x{x.number}": x.host for x in record.exchanges}
    running = list(_running(cluster))
    for name, host in wanted.items():
        there = [machine for machine, child in running if child.spec.child == name]
        if there != [host]:
            return f"{name} belongs on {host} and runs on {', '.join(there) or 'none'}"
    for machine, child in running:
        if child.spec.child not in wanted and not _is_needed(cluster, child):
            return f"{child.spec.child} runs on {machine} and is not wanted"
    return ""


def _is_needed(cluster: Cluster, child: Running) -> bool:
    """Whether a monitor empties this exchange, of which its queue does not know, and says what it
    waits for: groups, responses and delayed messages take their time."""
    for monitor in cluster.monitors:
        emptying = monitor.machine.emptying
        for leaving in emptying:
            name = f"{monitor.spec.queue}.{exchange_name(leaving.number)}"
            if name == child.spec.child and emptying.waits_for(leaving):
                return True
    return False


def _running(cluster: Cluster) -> Iterator[tuple[str, Running]]:
    for host in cluster.hosts:
        for child in host.running.values():
            if child.process.alive:
                yield host.machine, child


def _clients(cluster: Cluster) -> str:
    exchanges = [each for each in cluster.exchanges if each.spec.queue == QUEUE]
    serving = {each.info.number: each.info.generation for each in exchanges}
    for publisher in cluster.publishers:
        if publisher.process.alive and not publisher.attached:
            return f"{publisher.process.name} is not attached: {publisher.why}"
    for requester in cluster.requesters:
        if requester.process.alive and not requester.attached:
            return f"{requester.process.name} is not attached: {requester.why}"
    for subscriber in cluster.subscribers:
        if not subscriber.process.alive:
            continue
        if not subscriber.confirmed or subscriber.subscriber is None:
            return f"{subscriber.process.name} is not in force: {subscriber.why}"
        readers = dict(subscriber.subscriber.machine.readers.keys())
        if readers != serving:
            return f"{subscriber.process.name} reads {readers}, but {serving} serve"
    return not_joined(cluster)


def not_joined(cluster: Cluster) -> str:
    """A member of the group, or an instance of the service, that is not in at every exchange;
    empty: there is none."""
    serving = {each.info.log for each in cluster.exchanges if each.spec.queue == QUEUE}
    for member in (*cluster.members, *cluster.services):
        if member.process.alive and not member.left:
            places = member.places
            if set(places) != serving or set(places.values()) != {SeatPhase.IN}:
                return f"{member.process.name} is not a member at {serving}: {member.why}"
    return ""


def not_done(cluster: Cluster) -> Callable[[], str] | None:
    """What members and instances have still to do; None: nothing.

    This is asked before each event, so it is put into words only when these are wanted.
    """
    if (asked := cluster.watch.asking.open) is not None:
        return asked.why
    members = [*cluster.members, *cluster.services]
    for shell in cluster.exchanges if members else ():
        committed = shell.exchange.core.log.committed
        for group in shell.exchange.core.consumers.groups if shell.spec.queue == QUEUE else ():
            if group.base < committed or group.out:
                return partial(_work_left, shell, group)
    waiting = (each for each in members if each.process.alive and each.shell.unsettled)
    return next((partial(_waits, each) for each in waiting), None)


def _work_left(shell: ExchangeShell, group: ConsumerGroup[bytes]) -> str:
    return (
        f"the group is not done at {shell.spec.child}: {group.out} are out, offset {group.base} is "
        f"open, {shell.exchange.core.log.committed} is next"
    )


def _waits(joined: Joining) -> str:
    return f"{joined.process.name} waits, and says: {joined.why}"


def work_done(cluster: Cluster) -> int:
    """How many batches groups are through with: while this rises, they are not stuck."""
    shells = [each for each in cluster.exchanges if each.spec.queue == QUEUE]
    return sum(group.base for each in shells for group in each.exchange.core.consumers.groups)


@dataclass(frozen=True, slots=True)
class Happened:
    """What went wrong in a trial.

    Attributes:
        kinds: of trouble, and how often.
        cut_off: seconds in which a process was cut off, all together.
    """

    kinds: Mapping[str, int]
    cut_off: float

    @property
    def anybody_cut_off(self) -> bool:
        """Whether a process was kept from what there is."""
        return bool(CUTTING_OFF & set(self.kinds))


def excuse_the_dead(cluster: Cluster, happened: Happened) -> None:
    """Say which messages were not promised, because their publisher has died.

    What it had not heard the acknowledgement of may be missing. So may what it would have replayed,
    if there was reason to: an exchange died, or was out of reach.
    """
    replays = happened.anybody_cut_off or exchanges_died(cluster)
    replays &= not cluster.shape.durable  # what was acknowledged is on a disk
    for publisher in cluster.publishers:
        if publisher.died_at is not None:
            for topic, taken in _taken_back(cluster, publisher).items():
                for sequence in taken:
                    cluster.history.excuse(publisher.id, topic, sequence, sequence + 1)
            for topic, first, end in publisher.unsettled:
                cluster.history.excuse(publisher.id, topic, first, end)
            for topic, first, end, at in publisher.acked if replays else ():
                if at >= publisher.died_at - REPLAY_SECONDS:
                    cluster.history.excuse(publisher.id, topic, first, end)


def _taken_back(cluster: Cluster, publisher: PublisherShell) -> dict[str, set[int]]:
    """What a power cut may have taken of this publisher, as it died with what it had kept: of a
    queue whose logs run ahead of their disks."""
    if publisher.died_at is None:
        return {}
    found: dict[str, set[int]] = {}
    for host in cluster.hosts:
        for (name, topic), sequences in host.disk.taken_back.items():
            if name == bytes(publisher.id):
                found.setdefault(topic, set()).update(sequences)
    return found


def _reads_ahead(cluster: Cluster, happened: Collection[str]) -> list[str]:
    """Subscribers leave exchanges alone that are ahead, while others get on, if slowly."""
    most = HELD_TIMES * cluster.shape.ahead_bytes
    if not set(happened) <= PACED or cluster.shape.ahead_bytes < ROOMY_BYTES:
        return []
    if keeps_next_to_nothing(cluster):
        return []  # its batches are large
    cluster.watch.checked["who is ahead of others waits for them"] += 1
    found = [each.subscriber for each in cluster.subscribers if each.subscriber is not None]
    return [
        f"{each.name} has put aside {each.most_held} bytes, and not only {most}"
        for each in found
        if each.most_held > most
    ]


def exchanges_died(cluster: Cluster) -> bool:
    """Whether an exchange was started more than once."""
    spawned = cluster.watch.spawned
    return any(count > 1 for name, count in spawned.items() if ".monitor" not in name)


def keeps_next_to_nothing(cluster: Cluster) -> bool:
    """Whether logs are so short that a subscriber misses something that is away for a moment."""
    return "ring_bytes" in dict(cluster.shape.limits)


def left_behind(cluster: Cluster) -> bool:
    """Whether an exchange has given a subscriber up that did not read on."""
    return any(each.exchange.core.backpressure.left_behind for each in cluster.exchanges)


def logs_removed(cluster: Cluster) -> bool:
    """Whether a log on a disk has gone with its exchange, as somebody wanted that.

    That of a host that was away then may still be there: nobody serves it any more.
    """
    served = {each.spec.log for each in cluster.exchanges}
    return any(host.disk.erased or set(host.disk.logs) - served for host in cluster.hosts)


def _in_no_log(cluster: Cluster) -> list[str]:
    """What was acknowledged is in a log on some disk, also what nobody has read."""
    if not cluster.shape.durable or logs_removed(cluster):
        return []
    cluster.watch.checked["what was acknowledged is on a disk"] += 1
    there: dict[tuple[bytes, str], set[int]] = {}
    found = []
    for shell in cluster.exchanges:
        if shell.spec.queue == QUEUE:
            in_log: Messages = {}
            add_messages(in_log, shell.exchange.core.log, shell.exchange.core.log.floor)
            for key, sequences in in_log.items():
                there.setdefault(key, set()).update(sequences)
            found += _forgotten_streams(shell, in_log)
    for publisher in cluster.publishers:
        taken = _taken_back(cluster, publisher)
        for topic, first, end, _ in publisher.acked:
            missing = set(range(first, end)) - there.get((bytes(publisher.id), topic), set())
            missing -= taken.get(topic, set())
            if missing:
                name = publisher.process.name
                found.append(
                    f"{name}, topic {topic!r}: {min(missing)} was acknowledged, and is in no log"
                )
                break
    return found


def _undone(cluster: Cluster, happened: Happened) -> list[str]:
    """What was acknowledged to a publisher is done by the group, once at least."""
    if not cluster.members:
        return []
    cluster.watch.checked["what was accepted is done by the group"] += 1
    if not cluster.shape.durable and exchanges_died(cluster):
        if happened.cut_off > REPLAYED_SECONDS:
            return []  # as with subscribers: the log has died, and who would replay was cut off
        if keeps_next_to_nothing(cluster):
            return []  # nobody waits for the group before a member has made it in the new log
    done = cluster.watch.sharing.done
    found = []
    for publisher in cluster.publishers:
        key = bytes(publisher.id)
        for topic, first, end, at in publisher.acked:
            missing = [each for each in range(first, end) if (key, topic, each) not in done]
            if missing and not _died_with(cluster, publisher, at):
                name = publisher.process.name
                found.append(
                    f"{name}, topic {topic!r}: {missing[0]}, published at {at:.3f}, was accepted, "
                    "and the group has not done it"
                )
                break
    return found


def _died_with(cluster: Cluster, publisher: PublisherShell, at: float) -> bool:
    """Whether the log that had this may have died, and nobody have replayed it."""
    if cluster.shape.durable:
        return logs_removed(cluster)
    ended = cluster.watch.exchanges_ended
    if publisher.died_at is not None and any(each >= at for each in ended):
        return True
    return any(each - at >= REPLAY_SECONDS / 2 for each in ended)


def _forgotten_streams(
    shell: ExchangeShell, in_log: Mapping[tuple[bytes, str], set[int]]
) -> list[str]:
    """An exchange that goes on with a log knows how far each stream in it is."""
    known = {
        (bytes(publisher), topic.decode()): stream.next
        for publisher, streams in shell.exchange.core.streams
        for topic, stream in streams.items()
    }
    return [
        f"{shell.spec.child} does not know how far a stream of {publisher.hex()[:8]} is"
        for (publisher, topic), sequences in in_log.items()
        if sequences and known.get((publisher, topic), 0) <= max(sequences)
    ]


def may_lose(cluster: Cluster, happened: Happened) -> bool:
    """Whether a subscriber may report losses.

    An exchange that dies loses nothing, unless a process was cut off for long that would have read
    or replayed it; one that is out of reach does so when no reader can ask it for as long as
    readers wait. A durable queue loses nothing, but with a log that somebody has removed.
    """
    if cluster.shape.durable and not logs_removed(cluster):
        return False
    if keeps_next_to_nothing(cluster):
        if not set(happened.kinds) <= SPARING_READERS:
            return True
        cluster.watch.checked["publishers wait for who reads"] += 1
        return left_behind(cluster)
    if max(cluster.watch.outage, happened.cut_off) > PATIENCE_SECONDS:
        return True
    return happened.cut_off > REPLAYED_SECONDS and exchanges_died(cluster)


def broken(cluster: Cluster, happened: Happened, *, ended: bool) -> list[str]:
    """All promises that were broken, a sentence for each.

    Args:
        happened: what went wrong.
        ended: the trial came to its end, so everything has had the time to arrive.
    """
    if ended:
        kept = cluster.shape.durable and not logs_removed(cluster)
        cluster.watch.asking.look_at_ends(kept=kept, jumped="clock" in happened.kinds)
    found = [f"a process ended by an exception: {crash}" for crash in cluster.world.crashes]
    found += cluster.watch.broken + _moved_for_nothing(cluster, happened.kinds)
    found += _remembers_the_dead(cluster) if ended else []
    found += _reads_ahead(cluster, happened.kinds)
    found += _in_no_log(cluster) if ended else []
    found += _undone(cluster, happened) if ended else []
    for publisher in cluster.publishers:
        found += _of_publisher(publisher)
    excuse_the_dead(cluster, happened)
    counted = may_lose(cluster, happened)
    most = sys.maxsize if keeps_next_to_nothing(cluster) else LOST_MOST
    names = {bytes(publisher.id): publisher.process.name for publisher in cluster.publishers}
    for row in cluster.history.check().rows:
        cluster.watch.checked["all arrives once and in order, or is counted"] += 1
        problem = _of_row(row, counted=counted, most=most, ended=ended)
        if problem:
            name = names.get(row.publisher, row.publisher.hex())
            found.append(f"{row.subscriber}, topic {row.topic!r} of {name}: {problem}")
    return found


def _remembers_the_dead(cluster: Cluster) -> list[str]:
    """Monitors forget clients that are gone."""
    watch, now = cluster.watch, cluster.world.now
    limit = now - FORGOTTEN_SECONDS
    died = {
        "publishers": [each.died_at for each in (*cluster.publishers, *cluster.requesters)],
        "subscribers": [each.died_at for each in cluster.subscribers],
    }
    found = []
    for kind, times in died.items():
        most = sum(at is None or at >= limit for at in times)
        if most == len(times):
            continue
        watch.checked["monitors forget clients that are gone"] += 1
        for monitor in cluster.monitors:
            known = monitor.machine.metrics()[kind]
            if monitor.spec.queue == QUEUE and known > most:
                found.append(f"{monitor.process} knows {known:g} {kind}, and there are {most}")
    return found


def _moved_for_nothing(cluster: Cluster, happened: Collection[str]) -> list[str]:
    """Children live on without managers and ZooKeeper, and are not started anew for that."""
    if not set(happened) <= SPARING_CHILDREN:
        return []
    if cluster.shape.orphan_seconds < Shape().orphan_seconds and LEADERLESS & set(happened):
        return []
    cluster.watch.checked["children outlive their managers"] += 1
    return [
        f"{name} was started {count} times, though nothing happened to it"
        for name, count in cluster.watch.spawned.items()
        if count > 1 and name in cluster.watch.established
    ]


def _of_publisher(publisher: PublisherShell) -> list[str]:
    name, epochs = publisher.process.name, publisher.epochs
    found = [f"{name} was told that a batch failed: {each}" for each in publisher.failures[:3]]
    if epochs != sorted(epochs):
        found.append(f"{name} obeyed a lower epoch after a higher one: {epochs}")
    return found


def _of_row(row: StreamVerdict, *, counted: bool, most: int, ended: bool) -> str:
    figures = [
        f"{value} {name}"
        for name, value in (
            ("lost without a word", row.lost if ended else 0),
            ("doubled", row.duplicated),
            ("out of order", row.reordered),
            ("that nobody sent", row.foreign),
            ("lost, though nobody was cut off", 0 if counted else row.counted_lost),
            (f"lost, and not only {most}", max(0, row.counted_lost - most)),
            (f"gone with its publisher, and not only {GONE_MOST}", max(0, row.excused - GONE_MOST)),
        )
        if value
    ]
    return ", ".join(figures) + f" (of {row.sent})" if figures else ""
