"""The steps of which sagas are made: save, start, stop, and what may come back from each."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

import msgspec

from roq.errors import REQUEST_ERRORS, NoCapacity, RequestError
from roq.gcm.events import Change, Drop, Put
from roq.gcm.hosts import AWAY, Hosts
from roq.gcm.operations import Call, Calls, Outcome, Save, Step
from roq.gcm.queues import Queue, Queues
from roq.gcm.records import (
    ExchangeRecord,
    QueueRecord,
    encode,
    queue_path,
    rules_path,
    transactions_path,
)
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

START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 10.0

EVERYTHING: Final = -1
"""Number that means the monitor and all exchanges."""

T = TypeVar("T")
Part: TypeAlias = Generator[Step, Outcome, T]
"""A piece of a saga, which gives a T to the rest of it."""


class NoRoom(NoCapacity):
    """No host has a free slot; another host would help."""


class Steps:
    """What all sagas of one leader work on, and the steps that they share.

    Attributes:
        queues, hosts: what there is.
        leader_epoch: host managers obey no lower one.
    """

    def __init__(self, queues: Queues, hosts: Hosts) -> None:
        self.queues = queues
        self.hosts = hosts
        self.leader_epoch = 0

    # --- placement --------------------------------------------------------------------------------

    def place(self, host: str) -> str:
        """The named host if it can take an exchange, or the least loaded one if none is named."""
        loads = self.hosts.loads(*self.queues.placed())
        return placement.demand(loads, host) if host else placement.choose(loads)

    def place_beside(self, queue: Queue) -> str:
        """The host for one more exchange of this queue: rather one that has none of it yet.

        Raises:
            NoRoom: no host has a free slot.
        """
        loads = self.hosts.loads(*self.queues.placed())
        try:
            return placement.choose(loads, [exchange.host for exchange in queue.record.exchanges])
        except NoCapacity as error:
            raise NoRoom(str(error)) from None

    # --- registry ---------------------------------------------------------------------------------

    def save(self, record: QueueRecord, *more: Change) -> Part[Queue]:
        """Write a definition down."""
        yield Save((Put(queue_path(record.name), encode(record)), *more))
        return self.queues.put(record)

    def erase(self, queue: Queue) -> Part[None]:
        """Forget a queue."""
        name = queue.name
        yield Save((Drop(rules_path(name)), Drop(transactions_path(name)), Drop(queue_path(name))))
        self.queues.drop(name)

    # --- processes --------------------------------------------------------------------------------

    def start_monitor(self, queue: Queue, *, restarted: bool = False) -> Part[None]:
        """Start the monitor of a queue."""
        record = queue.record
        host = self.hosts.demand(record.host)
        message = StartMonitor(
            queue=queue.name,
            queue_id=record.queue_id,
            leader_epoch=self.leader_epoch,
            limits=record.limits,
            restarted=restarted,
        )
        answers = yield Calls((Call(host.name, host.report.control, message, START_SECONDS),))
        _started(queue, host.name, answers[0])

    def start_exchanges(self, queue: Queue, exchanges: tuple[ExchangeRecord, ...]) -> Part[None]:
        """Start these exchanges of a queue, side by side."""
        calls = []
        for exchange in exchanges:
            host = self.hosts.demand(exchange.host)
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
            _started(queue, call.host, answer)

    def stop_children(
        self,
        queue: Queue,
        reason: str,
        number: int = EVERYTHING,
        hosts: tuple[str, ...] = (),
    ) -> Part[list[str]]:
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
            host = self.hosts.get(name)
            if host is not None and host.state is not AWAY:
                calls.append(Call(name, host.report.control, message, STOP_SECONDS))
        answers = yield Calls(tuple(calls))
        problems = (
            _stop_problem(call.host, answer) for call, answer in zip(calls, answers, strict=True)
        )
        return [problem for problem in problems if problem]


def without_exchange(record: QueueRecord, number: int) -> QueueRecord:
    """The record without this exchange."""
    return msgspec.structs.replace(
        record, exchanges=tuple(each for each in record.exchanges if each.number != number)
    )


def with_problem(error: RequestError, problem: str) -> RequestError:
    """The error that the caller gets, with what undoing could not undo."""
    if not problem:
        return error
    return type(error)(f"{error} ({problem})")


def _started(queue: Queue, host: str, answer: Control | str) -> None:
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


def _stop_problem(host: str, answer: Control | str) -> str:
    match answer:
        case Done():
            return ""
        case Failure():
            return f"host {host} refused: {answer.COMMENT}"
        case str():
            return f"host {host} did not confirm: {answer}"
        case _:
            return f"host {host} gave an unexpected answer"
