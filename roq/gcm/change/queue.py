"""The life of a queue as a whole: created, stopped, started, removed, and what was left of it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from roq.errors import LogMissing, QueueExists, QueueStopped, RequestError
from roq.gcm.change.replacement import ReplacementSagas
from roq.gcm.change.saga_steps import (
    OPEN_ERRORS,
    Admit,
    Call,
    Calls,
    Emit,
    NoRoom,
    Part,
    Saga,
    Steps,
    with_problem,
)
from roq.gcm.events import LogLine
from roq.gcm.state.losses import away_text
from roq.gcm.state.queues import MONITOR, Queue
from roq.gcm.state.records import AWAY, CREATION, SCALING, ExchangeRecord, QueueRecord
from roq.model import VOLATILE, Limits, QueueState, exchange_name
from roq.protocol.control import StopQueue
from roq.protocol.defined_services import DefinedServices
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import done
from roq.timing import STOP_ASKS_SECONDS

REMEMBERED_MAX: Final = 1_000
"""Queues whose creation did not go straight that are remembered."""


class QueueSagas:
    """Changes of whole queues."""

    def __init__(self, steps: Steps, healing: ReplacementSagas) -> None:
        self._steps = steps
        self._healing = healing
        self._unanswered: set[bytes] = set()
        """Ids of the queues whose creation was resumed, and whose creator got no answer."""
        self._refused: set[bytes] = set()
        """Ids of those whose creation was refused, but could not be undone."""

    def create(
        self,
        name: str,
        host: str,
        *,
        queue_id: bytes,
        wall: float,
        limits: Limits,
        durability: str,
        services: DefinedServices,
        transaction: str = "",
    ) -> Saga:
        """Create a queue; `host` empty: the least loaded.

        The same request again (by its transaction; or without one, if the leader was lost while
        it created the queue) finds it done.
        """
        steps = self._steps
        steps.queues.check_readable(name)
        left_over = steps.queues.get(name)
        if left_over is not None and left_over.record.state is not QueueState.CREATING:
            asked = (host or left_over.record.host, limits, durability, services)
            if not self._is_repeated(left_over, asked, transaction):
                raise QueueExists(f"queue {name!r} exists already")
            return done(Host=left_over.record.host)
        if left_over is not None:
            yield from steps.stop_children(left_over, "removed", erase=True)
            yield from steps.erase(left_over)
        host = steps.place(host, durable=durability != VOLATILE)
        record = QueueRecord(
            name=name,
            queue_id=queue_id,
            state=QueueState.CREATING,
            host=host,
            created=wall,
            durability=durability,
            limits=limits,
            services=services,
            transaction=transaction,
            next_number=2,
            exchanges=(ExchangeRecord(number=1, host=host, origin=CREATION),),
        )
        places = {(name, MONITOR): host, (name, 1): host}
        steps.queues.reserved |= places
        try:
            yield Admit(host)
            queue = yield from steps.save(record)
        finally:
            for key in places:
                steps.queues.reserved.pop(key, None)
        yield from self._complete(queue)
        return done(Host=host)

    def _is_repeated(
        self, queue: Queue, asked: tuple[str, Limits, str, DefinedServices], transaction: str
    ) -> bool:
        record = queue.record
        if transaction and transaction == record.transaction:
            return True
        if asked != (record.host, record.limits, record.durability, record.services):
            return False
        if transaction or record.queue_id not in self._unanswered:
            return False
        self._unanswered.discard(record.queue_id)
        return True

    def _complete(self, queue: Queue) -> Part[None]:
        steps = self._steps
        try:
            yield from self._start(queue)
            yield from steps.save(_now_running(queue))
        except OPEN_ERRORS:
            raise  # the next leader completes it
        except RequestError as error:
            problem = yield from self._undo_create(queue)
            if problem:
                _remember(self._refused, queue)
            raise with_problem(error, problem) from None

    def define_services(self, name: str, services: DefinedServices) -> Saga:
        """Define the settings of its services, in the place of those before."""
        queue = self._steps.queues.demand(name)
        record = msgspec.structs.replace(queue.record, services=services)
        yield from self._steps.save(record)
        return done()

    def start(self, name: str) -> Saga:
        """Start a stopped queue, or one whose start, stop or creation was not completed.

        What was on a host that is lost starts on another one. Of a running queue, what has failed
        for good or was lost starts again.
        """
        steps = self._steps
        queue = steps.queues.demand(name)
        if queue.running:
            yield from self._healing.heal(queue, steps.losses(queue), again=True)
            return self._started(queue, ())
        if queue.record.state is QueueState.REMOVING:
            raise QueueStopped(f"queue {name!r} is being removed; repeat the removal")
        starting = self._without_lost(_in_state(queue, QueueState.STARTING))
        if starting.durable:
            starting = self._with_away(starting)
        places, problem = steps.place_anew(queue, self._on_lost_hosts(starting))
        if problem:
            raise NoRoom(problem)
        for host in _hosts_here(starting):
            if not steps.hosts.lost(host):
                steps.hosts.demand(host)
        yield Admit(places.get(MONITOR, starting.host))
        yield from self._note_removed(queue)
        yield from steps.save_moved(starting, places)
        try:
            with suppress(LogMissing):  # it goes on without them, as if their hosts were lost
                yield from self._start(queue)
            yield from steps.save(_now_running(queue))
        except OPEN_ERRORS:
            raise  # the next leader completes it
        except RequestError as error:
            problem = yield from self._undo_start(queue)
            raise with_problem(error, problem) from None
        return self._started(queue, [each for each in queue.record.exchanges if each.here])

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
        yield from self._note_removed(queue)
        yield from steps.save(_in_state(queue, QueueState.STOPPED))
        return done()

    def _note_removed(self, queue: Queue) -> Part[None]:
        """What was being removed goes with its log, though its definition goes before."""
        for exchange in queue.record.exchanges:
            if not exchange.wanted:
                yield from self._steps.note_removed(queue, exchange.number)

    def remove(self, name: str) -> Saga:
        """Stop the processes of a queue and forget it.

        A host that does not answer holds nothing up: it is told when it reports again.
        """
        steps = self._steps
        queue = steps.queues.demand(name)
        yield from steps.save(_in_state(queue, QueueState.REMOVING))
        problems = yield from steps.stop_children(queue, "removed", erase=True)
        yield from steps.erase(queue)
        return done(WARNING="; ".join(problems)) if problems else done()

    def remove_unreadable(self, name: str) -> Saga:
        """Remove a definition that nobody can read, and stop what may belong to it."""
        steps = self._steps
        message = StopQueue(
            queue=name, leader_epoch=steps.leader_epoch, reason="removed", cluster=steps.cluster
        )
        calls = [
            Call(host.name, host.control, message, STOP_ASKS_SECONDS, again=True)
            for host in steps.hosts
            if steps.hosts.live(host.name) and any(each.queue == name for each in host.children)
        ]
        yield Calls(tuple(calls))  # what does not stop is told again when its host reports it
        yield from steps.erase_name(name)
        return done()

    # --- what was left half-done ------------------------------------------------------------------

    def left_over(self, queue: Queue) -> str:
        """What an earlier leader, or an attempt that failed, was doing with a queue; "" if nothing.

        It can be finished as soon as all of its hosts are known to be there or not.
        """
        return _DOING.get(queue.record.state, "")

    def finish(self, name: str) -> Saga:
        """Complete what was left half-done with a queue as a whole, or undo it."""
        queue = self._steps.queues.get(name)
        if queue is None:
            return done()
        state = queue.record.state
        if state is QueueState.CREATING:
            deed = yield from self._finish_creation(queue)
        elif state is QueueState.STARTING:
            yield from self.start(name)
            deed = "it is started"
        elif state is QueueState.STOPPING:
            yield from self.stop(name)
            deed = "it is stopped"
        elif state is QueueState.REMOVING:
            yield from self.remove(name)
            deed = "it is removed"
        else:
            return done()
        text = f"queue {name}: {deed}, as was begun before"
        yield Emit((LogLine("queue_finished", text),))
        return done()

    def _finish_creation(self, queue: Queue) -> Part[str]:
        lost = [host for host in queue.record.hosts if self._steps.hosts.lost(host)]
        if lost or queue.record.queue_id in self._refused:
            problem = yield from self._undo_create(queue)
            if problem:
                raise RequestError(problem)
            return "its creation is undone"
        yield from self._complete(queue)
        _remember(self._unanswered, queue)
        return "it is created"

    # --- pieces -----------------------------------------------------------------------------------

    def _without_lost(self, record: QueueRecord) -> QueueRecord:
        """The record without what scaling has added on hosts that are gone.

        A provided host may be lost while the queue is stopped; nothing was in its exchanges.
        """
        kept = tuple(
            exchange
            for exchange in record.exchanges
            if record.durable
            or exchange.origin != SCALING
            or not self._steps.hosts.lost(exchange.host)
        )
        return msgspec.structs.replace(record, exchanges=kept or record.exchanges)

    def _with_away(self, record: QueueRecord) -> QueueRecord:
        """The record in which those are away whose hosts are lost. What is to stand in for them is
        added to the running queue, as ever."""
        lost = self._steps.hosts.lost
        exchanges = tuple(
            msgspec.structs.replace(each, state=AWAY) if lost(each.host)
            else msgspec.structs.replace(each, state="created") if each.away
            else each
            for each in record.exchanges
        )  # fmt: skip
        return msgspec.structs.replace(record, exchanges=exchanges)

    def _on_lost_hosts(self, record: QueueRecord) -> list[int]:
        lost = self._steps.hosts.lost
        numbers = [MONITOR] if lost(record.host) else []
        return numbers + [
            each.number for each in record.exchanges if lost(each.host) and not record.durable
        ]

    def _start(self, queue: Queue) -> Part[None]:
        """Start its monitor, and all exchanges that are not away.

        Raises:
            RequestError: none of the exchanges runs; of a queue in memory: not all of them run.
        """
        yield from self._steps.start_monitor(queue)
        here = tuple(each for each in queue.record.exchanges if not each.away)
        try:
            yield from self._steps.start_exchanges(queue, here)
        except OPEN_ERRORS:
            raise
        except RequestError:
            # What is in the logs of the others can be read; the rest is started again like what
            # was lost, and named.
            if not (queue.record.durable and any(_runs(queue, each) for each in here)):
                raise

    def _started(self, queue: Queue, begun: Iterable[ExchangeRecord]) -> RawDocument:
        """The answer to a start: it says without which exchanges the queue runs.

        Args:
            begun: those that were to be started.
        """
        told = [
            f"{exchange_name(each.number)} {away_text(queue, each, self._steps.hosts)}"
            for each in queue.record.exchanges
            if each.away
        ]
        for each in begun:
            if not _runs(queue, each):
                silent = f"host {each.host} did not answer"
                why = queue.not_started.get(each.number, silent)
                told.append(f"{exchange_name(each.number)} does not run: {why}")
        return done(WARNING="; ".join(told)) if told else done()

    def _undo_create(self, queue: Queue) -> Part[str]:
        try:
            yield from self._steps.stop_children(queue, "removed", erase=True)
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


_DOING: Final = {
    QueueState.CREATING: "creation",
    QueueState.STARTING: "start",
    QueueState.STOPPING: "stop",
    QueueState.REMOVING: "removal",
}


def _remember(known: set[bytes], queue: Queue) -> None:
    if len(known) >= REMEMBERED_MAX:
        known.clear()
    known.add(queue.record.queue_id)


def _runs(queue: Queue, exchange: ExchangeRecord) -> bool:
    """Whether it has started since the queue was stopped: a report may be older than that."""
    child = queue.children.get(exchange.number)
    return child is not None and child.state == "running"


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
            msgspec.structs.replace(exchange, state=AWAY)
            if exchange.away or exchange.number in queue.missing
            else msgspec.structs.replace(exchange, state="created", transaction="")
            for exchange in record.exchanges
        ),
    )


def _hosts_here(record: QueueRecord) -> list[str]:
    """Where something of a queue is to be started."""
    return [record.host, *(each.host for each in record.exchanges if not each.away)]
