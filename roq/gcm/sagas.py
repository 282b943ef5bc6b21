"""What each change of a queue consists of, step by step.

The order is always: write down what shall be, start or stop it, write down what is. A change that
cannot be completed is undone; where even that fails, the definition stays behind in a state
(`creating`, `stopping`, …) from which the same command, or a later leader, can go on. Every step is
idempotent at the host manager.

    create    creating  -> StartMonitor, StartExchange      -> running    undo: StopQueue, erase
    start     starting  -> StartMonitor, all StartExchange  -> running    undo: StopQueue, stopped
    exchange  creating  -> StartExchange                    -> created    undo: StopQueue(number)
    stop      stopping  -> StopQueue on every host          -> stopped
    remove    removing  -> StopQueue on every host          -> erased
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from roq.errors import REQUEST_ERRORS, QueueExists, QueueStopped, RequestError
from roq.gcm.events import Change, Drop, Put
from roq.gcm.hosts import AWAY, Hosts
from roq.gcm.operations import Call, Calls, Outcome, Saga, Save, Step
from roq.gcm.queues import MONITOR, Queue, Queues, transactions_of
from roq.gcm.records import (
    TRANSACTIONS_MAX,
    ExchangeRecord,
    QueueRecord,
    encode,
    queue_path,
    rules_path,
    transactions_path,
)
from roq.model import Limits, QueueState, exchange_name
from roq.policy import placement
from roq.protocol.control import (
    Control,
    Done,
    Failure,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
)
from roq.protocol.public import CreateExchange
from roq.protocol.public_answers import done

START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 10.0

EVERYTHING: Final = -1
"""Number that means the monitor and all exchanges."""


class Sagas:
    """The sagas of one leader."""

    def __init__(self, queues: Queues, hosts: Hosts) -> None:
        self._queues = queues
        self._hosts = hosts
        self.leader_epoch = 0

    # --- creation ---------------------------------------------------------------------------------

    def create(
        self, name: str, host: str, *, queue_id: bytes, wall: float, limits: Limits, durability: str
    ) -> Saga:
        """Create a queue; `host` empty: the least loaded."""
        left_over = self._queues.get(name)
        if left_over is not None and left_over.record.state is not QueueState.CREATING:
            raise QueueExists(f"queue {name!r} exists already")
        if left_over is not None:
            yield from self._stop_children(left_over, "removed")
            yield from self._erase(left_over)
        host = self._place(host)
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
        self._queues.reserved[name, 1] = host
        try:
            queue = yield from self._save(record)
        finally:
            del self._queues.reserved[name, 1]
        try:
            yield from self._start(queue)
            yield from self._save(_now_running(queue))
        except RequestError as error:
            problem = yield from self._undo_create(queue)
            raise _with_problem(error, problem) from None
        return done(Host=host)

    def _undo_create(self, queue: Queue) -> Generator[Step, Outcome, str]:
        try:
            yield from self._stop_children(queue, "removed")
            yield from self._erase(queue)
        except RequestError as error:
            return f"its definition is left behind: {error}"
        return ""

    # --- life -------------------------------------------------------------------------------------

    def start(self, name: str) -> Saga:
        """Start a stopped queue, or one whose start, stop or creation was not completed.

        Of a running queue, what failed for good or was lost with its host manager starts again.
        """
        queue = self._queues.demand(name)
        if queue.running:
            yield from self._restore(queue)
            return done()
        if queue.record.state is QueueState.REMOVING:
            raise QueueStopped(f"queue {name!r} is being removed; repeat the removal")
        for host in queue.record.hosts:
            self._hosts.demand(host)
        yield from self._save(_in_state(queue, QueueState.STARTING))
        try:
            yield from self._start(queue)
            yield from self._save(_now_running(queue))
        except RequestError as error:
            problem = yield from self._undo_start(queue)
            raise _with_problem(error, problem) from None
        return done()

    def _restore(self, queue: Queue) -> Generator[Step, Outcome, None]:
        record = queue.record
        if self._hosts.lost(record.host, queue.children.get(MONITOR)):
            yield from self._start_monitor(queue, restarted=True)
        missing = tuple(
            exchange
            for exchange in record.exchanges
            if self._hosts.lost(exchange.host, queue.children.get(exchange.number))
        )
        yield from self._start_exchanges(queue, missing)
        told = queue.with_addresses()
        if told != record:
            yield from self._save(told)

    def _undo_start(self, queue: Queue) -> Generator[Step, Outcome, str]:
        try:
            yield from self._stop_children(queue, "stopped")
            yield from self._save(_in_state(queue, QueueState.STOPPED))
        except RequestError as error:
            return f"it is left in the state {queue.record.state}: {error}"
        return ""

    def stop(self, name: str) -> Saga:
        """Stop the processes of a queue; its definition stays."""
        queue = self._queues.demand(name)
        if queue.record.state is QueueState.STOPPED:
            return done()
        if queue.record.state is QueueState.REMOVING:
            raise QueueStopped(f"queue {name!r} is being removed; repeat the removal")
        yield from self._save(_in_state(queue, QueueState.STOPPING))
        problems = yield from self._stop_children(queue, "stopped")
        if problems:
            raise RequestError(
                f"queue {name!r} is not completely stopped: {'; '.join(problems)}. "
                "Its processes end as soon as their host manager answers again; repeat to be sure"
            )
        yield from self._save(_in_state(queue, QueueState.STOPPED))
        return done()

    def remove(self, name: str) -> Saga:
        """Stop the processes of a queue and forget it.

        A host that does not answer holds nothing up: it is told when it reports again.
        """
        queue = self._queues.demand(name)
        yield from self._save(_in_state(queue, QueueState.REMOVING))
        problems = yield from self._stop_children(queue, "removed")
        yield from self._erase(queue)
        return done(WARNING="; ".join(problems)) if problems else done()

    # --- exchanges --------------------------------------------------------------------------------

    def create_exchange(self, request: CreateExchange) -> Saga:
        """Start one more exchange of a running queue."""
        queue = self._queues.demand_running(request.QName)
        transaction = str(request.TransactionID)
        if transaction and transaction in queue.transactions:
            return _exchange_done(queue.transactions[transaction])
        exchange = yield from self._define_exchange(queue, request.Host, transaction)
        number = exchange.number
        try:
            yield from self._start_exchanges(queue, (exchange,))
            yield from self._save_exchange(queue, number, transaction)
        except RequestError as error:
            problem = yield from self._undo_exchange(queue, exchange)
            raise _with_problem(error, problem) from None
        return _exchange_done(number)

    def _define_exchange(
        self, queue: Queue, host: str, transaction: str
    ) -> Generator[Step, Outcome, ExchangeRecord]:
        """The exchange of a request that was begun before, or a new one, written down."""
        record = queue.record
        for begun in record.exchanges:
            if transaction and begun.transaction == transaction:
                self._hosts.demand(begun.host)
                return begun
        self._place(host)
        exchange = ExchangeRecord(number=record.next_number, host=host, transaction=transaction)
        key = (queue.name, exchange.number)
        self._queues.reserved[key] = host
        try:
            yield from self._save(
                msgspec.structs.replace(
                    record,
                    next_number=exchange.number + 1,
                    exchanges=(*record.exchanges, exchange),
                )
            )
        finally:
            del self._queues.reserved[key]
        return exchange

    def _save_exchange(
        self, queue: Queue, number: int, transaction: str
    ) -> Generator[Step, Outcome, None]:
        record = queue.with_addresses()
        exchange = record.exchange(number)
        assert exchange is not None  # noqa: S101 - nobody else works on this queue meanwhile
        record = record.replacing(
            msgspec.structs.replace(exchange, state="created", transaction="")
        )
        if not transaction:
            yield from self._save(record)
            return
        kept = [*transactions_of(queue), (transaction, number)][-TRANSACTIONS_MAX:]
        yield from self._save(record, Put(transactions_path(queue.name), encode(tuple(kept))))
        queue.transactions = dict(kept)

    def _undo_exchange(
        self, queue: Queue, exchange: ExchangeRecord
    ) -> Generator[Step, Outcome, str]:
        number = exchange.number
        try:
            yield from self._stop_children(queue, "removed", number, (exchange.host,))
            record = queue.record
            yield from self._save(
                msgspec.structs.replace(
                    record,
                    exchanges=tuple(each for each in record.exchanges if each.number != number),
                )
            )
        except RequestError as error:
            return f"the definition of {exchange_name(number)} is left behind: {error}"
        queue.children.pop(number, None)
        return ""

    # --- upkeep -----------------------------------------------------------------------------------

    def note_addresses(self, name: str) -> Saga:
        """Write down where the processes of a queue are now."""
        queue = self._queues.get(name)
        if queue is not None and queue.running:
            record = queue.with_addresses()
            if record != queue.record:
                yield from self._save(record)
        return done()

    def stop_stray(self, host: str, queue: str, queue_id: bytes, number: int) -> Saga:
        """Stop a process that a host reports and the cluster does not want."""
        live = self._hosts.live(host)
        if live is not None and self.is_stray(queue, queue_id, number):
            present = self._queues.get(queue)
            stopped = present is not None and present.record.queue_id == queue_id
            whole = not stopped or number == MONITOR or not _wants_children(present)
            message = StopQueue(
                queue=queue,
                queue_id=queue_id,
                number=EVERYTHING if whole else number,
                leader_epoch=self.leader_epoch,
                reason="stopped" if stopped and whole else "removed",
            )
            yield Calls((Call(host, live.report.control, message, STOP_SECONDS),))
        return done()

    def is_stray(self, name: str, queue_id: bytes, number: int) -> bool:
        """Whether no definition wants this process (number 0: a monitor)."""
        queue = self._queues.get(name)
        if queue is None or queue.record.queue_id != queue_id or not _wants_children(queue):
            return True
        return number != MONITOR and queue.record.exchange(number) is None

    # --- steps ------------------------------------------------------------------------------------

    def _place(self, host: str) -> str:
        """The named host if it can take an exchange, or the least loaded one if none is named."""
        loads = self._hosts.loads(*self._queues.placed())
        return placement.demand(loads, host) if host else placement.choose(loads)

    def _save(self, record: QueueRecord, *more: Change) -> Generator[Step, Outcome, Queue]:
        yield Save((Put(queue_path(record.name), encode(record)), *more))
        return self._queues.put(record)

    def _erase(self, queue: Queue) -> Generator[Step, Outcome, None]:
        name = queue.name
        yield Save((Drop(rules_path(name)), Drop(transactions_path(name)), Drop(queue_path(name))))
        self._queues.drop(name)

    def _start(self, queue: Queue) -> Generator[Step, Outcome, None]:
        yield from self._start_monitor(queue)
        yield from self._start_exchanges(queue, queue.record.exchanges)

    def _start_monitor(
        self, queue: Queue, *, restarted: bool = False
    ) -> Generator[Step, Outcome, None]:
        record = queue.record
        host = self._hosts.demand(record.host)
        message = StartMonitor(
            queue=queue.name,
            queue_id=record.queue_id,
            leader_epoch=self.leader_epoch,
            limits=record.limits,
            restarted=restarted,
        )
        answers = yield Calls((Call(host.name, host.report.control, message, START_SECONDS),))
        self._started(queue, host.name, answers[0])

    def _start_exchanges(
        self, queue: Queue, exchanges: tuple[ExchangeRecord, ...]
    ) -> Generator[Step, Outcome, None]:
        calls = []
        for exchange in exchanges:
            host = self._hosts.demand(exchange.host)
            message = StartExchange(
                queue=queue.name,
                queue_id=queue.record.queue_id,
                number=exchange.number,
                leader_epoch=self.leader_epoch,
                monitor=queue.monitor,
                limits=queue.record.limits,
            )
            calls.append(Call(host.name, host.report.control, message, START_SECONDS))
        answers = yield Calls(tuple(calls))
        for call, answer in zip(calls, answers, strict=True):
            self._started(queue, call.host, answer)

    def _started(self, queue: Queue, host: str, answer: Control | str) -> None:
        match answer:
            case Started():
                queue.observe(answer.child)
            case Failure():
                kind = REQUEST_ERRORS.get(answer.CODE, RequestError)
                raise kind(f"host {host} refused: {answer.COMMENT}")
            case str():
                raise RequestError(f"host {host} did not start it: {answer}")
            case _:
                raise RequestError(f"host {host} gave an unexpected answer")

    def _stop_children(
        self,
        queue: Queue,
        reason: str,
        number: int = EVERYTHING,
        hosts: tuple[str, ...] = (),
    ) -> Generator[Step, Outcome, list[str]]:
        """Stop processes on every host that is not away; gives what went wrong where."""
        calls = []
        message = StopQueue(
            queue=queue.name,
            queue_id=queue.record.queue_id,
            number=number,
            leader_epoch=self.leader_epoch,
            reason=reason,
        )
        for name in hosts or queue.record.hosts:
            host = self._hosts.get(name)
            if host is not None and host.state is not AWAY:
                calls.append(Call(name, host.report.control, message, STOP_SECONDS))
        answers = yield Calls(tuple(calls))
        problems = []
        for call, answer in zip(calls, answers, strict=True):
            match answer:
                case Done():
                    continue
                case Failure():
                    problems.append(f"host {call.host} refused: {answer.COMMENT}")
                case str():
                    problems.append(f"host {call.host} did not confirm: {answer}")
                case _:
                    problems.append(f"host {call.host} gave an unexpected answer")
        return problems


def _wants_children(queue: Queue | None) -> bool:
    return queue is not None and queue.record.state in {
        QueueState.CREATING,
        QueueState.STARTING,
        QueueState.RUNNING,
    }


def _in_state(queue: Queue, state: QueueState) -> QueueRecord:
    return msgspec.structs.replace(queue.record, state=state)


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


def _exchange_done(number: int) -> dict[str, object]:
    return done(Exchange=exchange_name(number), Number=number)


def _with_problem(error: RequestError, problem: str) -> RequestError:
    """The error that the caller gets, with what undoing could not undo."""
    if not problem:
        return error
    return type(error)(f"{error} ({problem})")
