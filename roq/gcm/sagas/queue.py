"""The life of a queue as a whole: created, stopped, started, removed."""

from __future__ import annotations

import msgspec

from roq.errors import QueueExists, QueueStopped, RequestError
from roq.gcm.operations import Saga
from roq.gcm.queues import MONITOR, Queue
from roq.gcm.records import SCALING, ExchangeRecord, QueueRecord
from roq.gcm.sagas.steps import Part, Steps, with_problem
from roq.model import Limits, QueueState
from roq.protocol.public_answers import done


class QueueSagas:
    """Changes of whole queues."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def create(
        self, name: str, host: str, *, queue_id: bytes, wall: float, limits: Limits, durability: str
    ) -> Saga:
        """Create a queue; `host` empty: the least loaded."""
        steps = self._steps
        left_over = steps.queues.get(name)
        if left_over is not None and left_over.record.state is not QueueState.CREATING:
            raise QueueExists(f"queue {name!r} exists already")
        if left_over is not None:
            yield from steps.stop_children(left_over, "removed")
            yield from steps.erase(left_over)
        host = steps.place(host)
        record = QueueRecord(
            name=name,
            queue_id=queue_id,
            state=QueueState.CREATING,
            host=host,
            created=wall,
            durability=durability,
            limits=limits,
            next_number=2,
            exchanges=(ExchangeRecord(number=1, host=host),),
        )
        steps.queues.reserved[name, 1] = host
        try:
            queue = yield from steps.save(record)
        finally:
            del steps.queues.reserved[name, 1]
        try:
            yield from self._start(queue)
            yield from steps.save(_now_running(queue))
        except RequestError as error:
            problem = yield from self._undo_create(queue)
            raise with_problem(error, problem) from None
        return done(Host=host)

    def start(self, name: str) -> Saga:
        """Start a stopped queue, or one whose start, stop or creation was not completed.

        Of a running queue, what failed for good or was lost with its host manager starts again.
        """
        steps = self._steps
        queue = steps.queues.demand(name)
        if queue.running:
            yield from self._restore(queue)
            return done()
        if queue.record.state is QueueState.REMOVING:
            raise QueueStopped(f"queue {name!r} is being removed; repeat the removal")
        starting = self._without_lost(_in_state(queue, QueueState.STARTING))
        for host in starting.hosts:
            steps.hosts.demand(host)
        yield from steps.save(starting)
        try:
            yield from self._start(queue)
            yield from steps.save(_now_running(queue))
        except RequestError as error:
            problem = yield from self._undo_start(queue)
            raise with_problem(error, problem) from None
        return done()

    def stop(self, name: str) -> Saga:
        """Stop the processes of a queue; its definition stays."""
        steps = self._steps
        queue = steps.queues.demand(name)
        if queue.record.state is QueueState.STOPPED:
            return done()
        if queue.record.state is QueueState.REMOVING:
            raise QueueStopped(f"queue {name!r} is being removed; repeat the removal")
        yield from steps.save(_in_state(queue, QueueState.STOPPING))
        problems = yield from steps.stop_children(queue, "stopped")
        if problems:
            raise RequestError(
                f"queue {name!r} is not completely stopped: {'; '.join(problems)}. "
                "Its processes end as soon as their host manager answers again; repeat to be sure"
            )
        yield from steps.save(_in_state(queue, QueueState.STOPPED))
        return done()

    def remove(self, name: str) -> Saga:
        """Stop the processes of a queue and forget it.

        A host that does not answer holds nothing up: it is told when it reports again.
        """
        steps = self._steps
        queue = steps.queues.demand(name)
        yield from steps.save(_in_state(queue, QueueState.REMOVING))
        problems = yield from steps.stop_children(queue, "removed")
        yield from steps.erase(queue)
        return done(WARNING="; ".join(problems)) if problems else done()

    # --- pieces -----------------------------------------------------------------------------------

    def _without_lost(self, record: QueueRecord) -> QueueRecord:
        """The record without what scaling has added on hosts that are gone.

        A provided host may be lost while the queue is stopped; nothing was in its exchanges.
        """
        kept = tuple(
            exchange
            for exchange in record.exchanges
            if exchange.origin != SCALING or not self._steps.hosts.gone(exchange.host)
        )
        return msgspec.structs.replace(record, exchanges=kept or record.exchanges)

    def _start(self, queue: Queue) -> Part[None]:
        yield from self._steps.start_monitor(queue)
        yield from self._steps.start_exchanges(queue, queue.record.exchanges)

    def _undo_create(self, queue: Queue) -> Part[str]:
        try:
            yield from self._steps.stop_children(queue, "removed")
            yield from self._steps.erase(queue)
        except RequestError as error:
            return f"its definition is left behind: {error}"
        return ""

    def _undo_start(self, queue: Queue) -> Part[str]:
        try:
            yield from self._steps.stop_children(queue, "stopped")
            yield from self._steps.save(_in_state(queue, QueueState.STOPPED))
        except RequestError as error:
            return f"it is left in the state {queue.record.state}: {error}"
        return ""

    def _restore(self, queue: Queue) -> Part[None]:
        record, hosts = queue.record, self._steps.hosts
        if hosts.lost(record.host, queue.children.get(MONITOR)):
            yield from self._steps.start_monitor(queue, restarted=True)
        missing = tuple(
            exchange
            for exchange in record.exchanges
            if exchange.wanted and hosts.lost(exchange.host, queue.children.get(exchange.number))
        )
        yield from self._steps.start_exchanges(queue, missing)
        told = queue.with_addresses()
        if told != record:
            yield from self._steps.save(told)


def _in_state(queue: Queue, state: QueueState) -> QueueRecord:
    """The record in another state; what was being removed is gone when the queue stops."""
    record = msgspec.structs.replace(queue.record, state=state)
    if state in {QueueState.STARTING, QueueState.STOPPED}:
        wanted = tuple(exchange for exchange in record.exchanges if exchange.wanted)
        record = msgspec.structs.replace(record, exchanges=wanted)
    return record


def _now_running(queue: Queue) -> QueueRecord:
    record = queue.with_addresses()
    return msgspec.structs.replace(
        record,
        state=QueueState.RUNNING,
        exchanges=tuple(
            msgspec.structs.replace(exchange, state="created", transaction="")
            for exchange in record.exchanges
        ),
    )
