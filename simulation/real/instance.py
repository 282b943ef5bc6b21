"""An instance of a service at work, and its endpoints: it writes down each run of a handler."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import count
from typing import Final, cast

import msgspec

import roq
from roq.client.request.calls import HeldWork
from roq.protocol.consuming import Run
from roq.simulation.real.journal import Begun, Ran, Written

SERVICE: Final = "load"
BATCH: Final = 20
RESULT_SECONDS: Final = 10.0
KEEP_SECONDS: Final = 20.0
SETTINGS: Final = {"result_within": RESULT_SECONDS, "keep_result": KEEP_SECONDS}


class Task(msgspec.Struct, frozen=True):
    """What is requested: take so long, and answer, or fail."""

    ticket: str
    seconds: float = 0.0
    fails: bool = False


class Reply(msgspec.Struct, frozen=True):
    """The response, and which run has given it."""

    ticket: str
    run: str


class TaskFailedError(Exception):
    """The text is the run that has failed."""


def _endpoint(name: str, *, idempotent: bool) -> roq.Endpoint[Task, Reply]:
    return roq.endpoint(f"{SERVICE}.{name}", request=Task, response=Reply, idempotent=idempotent)


AGAIN: Final = _endpoint("again", idempotent=True)
ONCE: Final = _endpoint("once", idempotent=False)
AGAIN_MANY: Final = _endpoint("again_many", idempotent=True)
ONCE_MANY: Final = _endpoint("once_many", idempotent=False)


class Instance:
    """Runs handlers: in an event loop, in threads, and for batches.

    Args:
        journal: where each run is written down before it begins, and before it ends.
        name: of the process; runs are named after it.
    """

    def __init__(self, journal: Written, name: str) -> None:
        self._journal = journal
        self._name = name
        self._numbers = count(1)

    def register(self, service: roq.Service) -> None:
        """These are the handlers of a service."""
        service.handler(AGAIN)(self.run_in_loop)
        service.handler(ONCE)(self.run)
        service.handler(AGAIN_MANY, batch=BATCH)(self.run_all)
        service.handler(ONCE_MANY, batch=BATCH)(self.run_all)

    def run(self, task: Task, context: roq.RequestContext) -> Reply:
        """Do it in a thread."""
        run = self._begin(task, context)
        _rest(task.seconds)
        return _answer(self._end(run, task, context))

    async def run_in_loop(self, task: Task, context: roq.RequestContext) -> Reply:
        """Do it beside others."""
        run = self._begin(task, context)
        await asyncio.sleep(task.seconds)
        return _answer(self._end(run, task, context))

    def run_all(
        self, tasks: list[Task], contexts: list[roq.RequestContext]
    ) -> list[Reply | Exception]:
        """Do some together."""
        both = list(zip(tasks, contexts, strict=True))
        runs = [self._begin(task, context) for task, context in both]
        _rest(max(task.seconds for task in tasks))
        return [
            self._end(run, task, context) for run, (task, context) in zip(runs, both, strict=True)
        ]

    def _begin(self, task: Task, context: roq.RequestContext) -> str:
        run = f"{self._name}/{next(self._numbers)}"
        now, lease = time.monotonic(), _lease_of(context)
        self._journal.write(Begun(now, task.ticket, context.id, run, lease))
        return run

    def _end(self, run: str, task: Task, context: roq.RequestContext) -> Reply | Exception:
        self._journal.write(Ran(time.monotonic(), task.ticket, run, _lease_of(context)))
        return TaskFailedError(run) if task.fails else Reply(task.ticket, run)


def _answer(found: Reply | Exception) -> Reply:
    if isinstance(found, Exception):
        raise found
    return found


def _rest(seconds: float) -> None:
    if seconds:
        threading.Event().wait(seconds)


def _lease_of(context: roq.RequestContext) -> int:
    """By which the instance holds a request; 0: it does not any more."""
    work = cast("HeldWork", context._held)._work  # noqa: SLF001 - made for programs without it
    holding = work.holding
    found = holding.leases_of(Run(holding.offset, holding.first + work.at, 1))
    return found[0][0] if found else 0
