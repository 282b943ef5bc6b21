"""Proofs of life: what monitors say of themselves and of the exchanges that they hear.

Host managers tell what runs where; where there is none, this is the only word. A proof counts for
three seconds, that of an idle queue for six.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roq.errors import StaleEpoch
from roq.gcm.state.hosts import Hosts
from roq.gcm.state.queues import MONITOR, Queue
from roq.gcm.state.records import EPOCH_END
from roq.protocol.control import ElasticityRequest
from roq.timing import IDLE_FACTOR, PROOF_SECONDS


@dataclass(slots=True)
class _Proof:
    """What the monitor of one queue has told.

    Attributes:
        epoch: of the monitor.
        since: when it was heard first.
        at: when it was heard last.
        idle: whether it asks less often.
        exchanges: number → (epoch, when it was named last).
    """

    epoch: int
    since: float
    at: float
    idle: bool = False
    exchanges: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """For how long it counts."""
        return PROOF_SECONDS * IDLE_FACTOR if self.idle else PROOF_SECONDS


class Heartbeats:
    """The proofs of all queues, one for each."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._heartbeats: dict[bytes, _Proof] = {}

    def take(self, queue: Queue, request: ElasticityRequest, now: float) -> None:
        """The monitor of this queue has asked.

        Raises:
            StaleEpoch: another process has taken its place.
        """
        if not 0 < request.epoch < EPOCH_END:
            return  # it does not tell, or nonsense
        known = queue.epoch(MONITOR)
        if request.epoch < known:
            raise StaleEpoch(
                f"queue {queue.name!r} has a later monitor (epoch {known}, this one has "
                f"{request.epoch}): this one is superseded"
            )
        proof = self._heartbeats.get(queue.record.queue_id)
        if proof is None or proof.epoch != request.epoch:
            proof = _Proof(request.epoch, now, now)
            self._heartbeats[queue.record.queue_id] = proof
        proof.at = now
        proof.idle = request.idle
        wanted = {exchange.number for exchange in queue.record.exchanges}
        for number, epoch in request.exchanges:
            if number in wanted:
                proof.exchanges[number] = (epoch, now)
        for number in proof.exchanges.keys() - wanted:
            del proof.exchanges[number]

    def lives(self, queue: Queue, number: int) -> bool:
        """Whether the process that is wanted has given a sign of life that counts."""
        proof = self._heartbeats.get(queue.record.queue_id)
        if proof is None:
            return False
        epoch, at = proof.epoch, proof.at
        if number != MONITOR:
            epoch, at = proof.exchanges.get(number, (0, -proof.seconds))
        return epoch >= max(queue.epoch(number), 1) and self._hosts.elapsed(at) < proof.seconds

    def settled(self, queue: Queue) -> bool:
        """Whether its monitor has spoken long enough to have heard of every exchange that lives."""
        proof = self._heartbeats.get(queue.record.queue_id)
        return (
            proof is not None
            and self.lives(queue, MONITOR)
            and self._hosts.elapsed(proof.since) >= proof.seconds
        )

    def keep(self, queue_ids: frozenset[bytes]) -> None:
        """Forget all other queues."""
        for queue_id in self._heartbeats.keys() - queue_ids:
            del self._heartbeats[queue_id]

    def clear(self) -> None:
        """Forget all; the next leader hears from them."""
        self._heartbeats.clear()
