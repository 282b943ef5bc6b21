"""Keeps definitions and processes together: addresses written down, unwanted processes stopped."""

from __future__ import annotations

from roq.gcm.change.host import READ_SECONDS, VACATE_SECONDS
from roq.gcm.change.saga_steps import Call, Calls, Emit, Part, Saga, Steps, has_erased, not_told
from roq.gcm.events import LogLine
from roq.gcm.state.queues import MONITOR, Queue
from roq.gcm.state.records import EVERYTHING, DepartedRecord, RemovedLog
from roq.gcm.state.removed_logs import described
from roq.model import QueueState, exchange_name, host_epoch
from roq.protocol.control import Done, Emptied, Empty, Failure, StopQueue
from roq.protocol.public_answers import done
from roq.protocol.reports import ChildInfo
from roq.timing import STOP_ASKS_SECONDS


class Reconciliation:
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

    def stop_stray(
        self, host: str, queue: str, queue_id: bytes, number: int, *, late: bool
    ) -> Saga:
        """Stop a process that a host reports and the cluster does not want there.

        Args:
            late: it is not waited for any more that nobody needs it.
        """
        live = self._steps.hosts.live(host)
        if live is not None and self.is_stray(host, queue, queue_id, number):
            present = self._steps.queues.get(queue)
            known = present if present is not None and _is(present, queue_id) else None
            whole = known is None or not _wants_children(known)
            # What was undone, or removed, when its host did not answer: nobody else tells of it.
            forgotten = not whole and number != MONITOR and not _has(known, number)
            child = live.child(queue_id, number)
            if forgotten and known is not None and child is not None and _came_late(known, child):
                gone = yield from self._let_go(known, child, late=late)
                if not gone:
                    return done()  # its monitor sees to it, and is asked again at a later report
            # Only what a definition says is gone; that there is none proves nothing, and takes
            # no log with it that has ever held something.
            erase = (
                known is not None
                and known.record.durable
                and (forgotten or _is_removed(known, number))
            )
            message = StopQueue(
                queue=queue,
                queue_id=queue_id,
                number=EVERYTHING if whole and not erase else number,  # others keep their logs
                leader_epoch=self._steps.leader_epoch,
                cluster=self._steps.cluster,
                reason=_reason(known, number),
                erase=erase,
                empty=forgotten,
            )
            call = Call(host, live.control, message, STOP_ASKS_SECONDS, again=True)
            answers = yield Calls((call,))
            if message.erase and isinstance(answers[0], Failure) and child is not None:
                stays = RemovedLog(
                    queue=queue, queue_id=queue_id, host=host, number=number, spared=forgotten,
                    epoch=host_epoch(child.epoch),
                )  # fmt: skip
                yield from self._steps.save_removed(self._steps.removed.add([stays]))
        return done()

    def remove_log(self, record: RemovedLog) -> Saga:
        """Have a host that is back remove what was removed while it was away."""
        steps = self._steps
        live = steps.hosts.live(record.host)
        if live is None:
            return done()
        epoch, now = live.epoch, steps.hosts.now
        if record not in steps.removed.due(record.host, epoch, now):
            return done()
        message = StopQueue(
            queue=record.queue,
            queue_id=record.queue_id,
            number=record.number,
            leader_epoch=steps.leader_epoch,
            cluster=steps.cluster,
            reason="removed",
            erase=True,
            empty=record.spared,
        )
        call = Call(record.host, live.control, message, STOP_ASKS_SECONDS, again=True)
        answers = yield Calls((call,))
        what = described(record)
        if has_erased(answers[0], record.epoch):
            steps.removed.drop(record)
            text = f"host {record.host} is back, and has removed its logs of {what}"
            yield Emit((LogLine("log_removed", text),))
        elif isinstance(answers[0], Failure):
            why = answers[0].COMMENT
            if steps.removed.refused(record, why, now):
                text = f"host {record.host} does not remove its logs of {what}: {why}"
                yield Emit((LogLine("log_stays", f"{text}; it is told again"),))
            else:
                steps.removed.drop(record)
                yield Emit((not_told(record),))
        elif not isinstance(answers[0], Done):
            return done()  # it is asked again
        elif steps.removed.missed(record, epoch, now):
            text = (
                f"host {record.host} has another data.dir than the one with its logs of {what}: "
                "they go when its manager is started with that one, within a day"
            )
            yield Emit((LogLine("log_missing", text),))
        else:
            steps.removed.drop(record)
            yield Emit((not_told(record),))
        return done()

    def save_removed(self) -> Saga:
        """Write down what has gone since, of all hosts together."""
        yield from self._steps.save_removed()
        return done()

    def _let_go(self, queue: Queue, child: ChildInfo, *, late: bool) -> Part[bool]:
        """Whether an exchange whose start came too late may go; where its log ends is written down.

        Until the manager of its host reports it, the queue's monitor takes it for one of the
        queue's, and sends publishers there. So they leave first, and what is there is read.
        """
        end = -1
        if queue.running:
            message = Empty(
                queue_id=queue.record.queue_id, number=child.number, at_once=True,
                read_seconds=READ_SECONDS,
            )  # fmt: skip
            call = Call(queue.record.host, queue.monitor, message, VACATE_SECONDS)
            answers = yield Calls((call,))
            answer = answers[0]
            # A monitor that does not hear of it knows nothing of what it holds.
            if isinstance(answer, Emptied) and answer.epoch == child.epoch:
                end = answer.end
            elif not late:
                return False
            else:
                why = answer.COMMENT if isinstance(answer, Failure) else "its monitor does not know"
                name = exchange_name(child.number)
                text = f"queue {queue.name} does not have {name}, which is stopped unread: {why}"
                yield Emit((LogLine("stray_stopped", text),))
        gone = DepartedRecord(
            number=child.number, epoch=child.epoch, generation=child.generation, end=end
        )
        yield from self._steps.save(queue.record.departing(gone))
        return True

    def is_stray(self, host: str, name: str, queue_id: bytes, number: int) -> bool:
        """Whether no definition wants this process (number 0: a monitor) on this host.

        What belongs to a definition that nobody can read is left alone.
        """
        if name in self._steps.queues.unreadable:
            return False
        queue = self._steps.queues.get(name)
        if queue is None or not _is(queue, queue_id) or not _wants_children(queue):
            return True
        exchange = queue.record.exchange(number)
        if exchange is not None and not exchange.wanted:
            return True
        return queue.place(number) != host


def _reason(queue: Queue | None, number: int) -> str:
    """What the clients of a stray process are told."""
    if queue is None or queue.record.state is QueueState.REMOVING:
        return "removed"
    if not _wants_children(queue):
        return "stopped"
    exchange = queue.record.exchange(number)
    wanted = number == MONITOR or (exchange is not None and exchange.wanted)
    return "moved" if wanted else "removed"


def _came_late(queue: Queue, child: ChildInfo) -> bool:
    """Whether an exchange that its queue does not have runs because its start was given up and came
    late: nobody had heard of a process of it when it went. Else it was removed, or given up."""
    there = [each for each in queue.record.departed if each.number == child.number]
    return child.state not in {"failed", "stopping"} and not any(each.epoch for each in there)


def _has(queue: Queue | None, number: int) -> bool:
    return queue is not None and queue.record.exchange(number) is not None


def _is_removed(queue: Queue, number: int) -> bool:
    exchange = queue.record.exchange(number)
    return exchange is not None and not exchange.wanted


def _is(queue: Queue, queue_id: bytes) -> bool:
    return queue.record.queue_id == queue_id


def _wants_children(queue: Queue) -> bool:
    return queue.record.state in {
        QueueState.CREATING,
        QueueState.STARTING,
        QueueState.RUNNING,
    }
