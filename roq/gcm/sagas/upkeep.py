"""Keeps definitions and processes together: addresses written down, unwanted processes stopped."""

from __future__ import annotations

from roq.gcm.operations import Call, Calls, Saga
from roq.gcm.queues import MONITOR, Queue
from roq.gcm.sagas.steps import EVERYTHING, STOP_SECONDS, Steps
from roq.model import QueueState
from roq.protocol.control import StopQueue
from roq.protocol.public_answers import done


class Upkeep:
    """What nobody has asked for and is done all the same."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def note_addresses(self, name: str) -> Saga:
        """Write down where the processes of a queue are now."""
        queue = self._steps.queues.get(name)
        if queue is not None and queue.running:
            record = queue.with_addresses()
            if record != queue.record:
                yield from self._steps.save(record)
        return done()

    def stop_stray(self, host: str, queue: str, queue_id: bytes, number: int) -> Saga:
        """Stop a process that a host reports and the cluster does not want."""
        live = self._steps.hosts.live(host)
        if live is not None and self.is_stray(queue, queue_id, number):
            present = self._steps.queues.get(queue)
            stopped = present is not None and present.record.queue_id == queue_id
            whole = not stopped or number == MONITOR or not _wants_children(present)
            message = StopQueue(
                queue=queue,
                queue_id=queue_id,
                number=EVERYTHING if whole else number,
                leader_epoch=self._steps.leader_epoch,
                reason="stopped" if stopped and whole else "removed",
            )
            yield Calls((Call(host, live.report.control, message, STOP_SECONDS),))
        return done()

    def is_stray(self, name: str, queue_id: bytes, number: int) -> bool:
        """Whether no definition wants this process (number 0: a monitor)."""
        queue = self._steps.queues.get(name)
        if queue is None or queue.record.queue_id != queue_id or not _wants_children(queue):
            return True
        if number == MONITOR:
            return False
        exchange = queue.record.exchange(number)
        return exchange is None or not exchange.wanted


def _wants_children(queue: Queue | None) -> bool:
    return queue is not None and queue.record.state in {
        QueueState.CREATING,
        QueueState.STARTING,
        QueueState.RUNNING,
    }
