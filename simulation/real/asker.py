"""A requester at work: it makes requests in all ways, and writes down how each ends.

A callback is registered as soon as a request is made, and the request is said to be accepted after
that: its response is confirmed when the callback has written it down, so nobody can have fetched
what stands in no journal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

import roq
from roq.errors import NoResponse, RequestFailed, ResponseLost, RoQError
from roq.simulation.real.instance import AGAIN, AGAIN_MANY, ONCE, ONCE_MANY, Reply, Task
from roq.simulation.real.journal import UNAVAILABLE, Accepted, Asked, Left, Told, Written

WITHIN_SECONDS: Final = 6.0
"""Of a request; less than its service allows."""
DELAY_SECONDS: Final = (0.3, 2.0)
SLOW_SECONDS: Final = (0.05, 2.5)
ONCE_SHARE: Final = 0.5
MANY_SHARE: Final = 0.2
"""The part of the calls that make several."""
MANY: Final = 8
BY_ID_SHARE: Final = 0.25
"""The part of the others whose responses are asked for by their ids."""
SLOW_SHARE: Final = 0.1
FAILS_SHARE: Final = 0.05
DELAY_SHARE: Final = 0.05
PRIORITY_SHARE: Final = 0.2
CANCEL_SHARE: Final = 0.02
TEXT_MAX: Final = 200
_RUN: Final = re.compile(r"TaskFailedError: (\S+)")


@dataclass(slots=True, eq=False)
class Waiting:
    """A request whose end is waited for.

    Attributes:
        ask: number of its callback.
        told: the state that this has told; empty: it was not called.
        early: it may have ended before the callback was there.
        id: as it is written down.
        fetches: its response is asked for by its id, when it has one.
    """

    ticket: str
    ask: int
    pending: roq.Pending[Reply]
    told: str = ""
    early: bool = False
    id: str = ""
    fetches: bool = False


class Asker:
    """Makes requests.

    Args:
        journal: where it is written down.
        name: of the process; tickets are named after it.
        requester: collects its responses.
        silent: does not.
        response: asks for one by its id.
    """

    def __init__(
        self, journal: Written, name: str, requester: roq.Requester, silent: roq.Requester,
        response: Callable[[roq.Endpoint[Task, Reply], str], roq.Pending[Reply]],
    ) -> None:  # fmt: skip
        self._journal = journal
        self._name = name
        self._requester = requester
        self._silent = silent
        self._response = response
        self._chance = Random(name)
        self._tickets = count(1)
        self._asks = count(1)
        self._waiting: list[Waiting] = []
        self._fetched: list[Left] = []
        """That are to be asked for."""

    def ask(self) -> None:
        """Make the next request, or some together.

        Raises:
            RoQError: it cannot be made.
        """
        chance, once = self._chance, self._chance.random() < ONCE_SHARE
        priority = chance.randint(1, 9) if chance.random() < PRIORITY_SHARE else 0
        if chance.random() < MANY_SHARE:
            tasks = self._tasks(MANY, once=once)
            endpoint = ONCE_MANY if once else AGAIN_MANY
            many = self._requester.request_many(
                endpoint, tasks, within=WITHIN_SECONDS, priority=priority
            )
            some = [
                Waiting(task.ticket, next(self._asks), pending)
                for task, pending in zip(tasks, many, strict=True)
            ]
            self._watch(some, many)
            return
        cancels = chance.random() < CANCEL_SHARE
        (task,) = self._tasks(1, once=once, cancels=cancels)
        by_id = chance.random() < BY_ID_SHARE
        delay = chance.uniform(*DELAY_SECONDS) if chance.random() < DELAY_SHARE else None
        requester = self._silent if by_id else self._requester
        endpoint = ONCE if once else AGAIN
        pending = requester.request(
            endpoint, task, within=WITHIN_SECONDS, priority=priority, delay=delay
        )
        waiting = Waiting(task.ticket, next(self._asks), pending, fetches=by_id)
        self._watch([waiting], None if by_id else pending)
        if cancels:
            pending.cancel()

    def fetch_all(self, left: list[Left]) -> None:
        """Ask for the responses to requests that others have made."""
        self._fetched += left
        self.look()

    def look(self) -> None:
        """Write down what was accepted, and ask for what is to be asked for by its id."""
        self._waiting = [each for each in self._waiting if self._goes_on(each)]
        some, self._fetched = self._fetched, []
        for each in some:
            try:
                pending = self._response(AGAIN, each.id)
            except RoQError:  # there is no manager, or no exchange: again
                self._fetched.append(each)
                continue
            waiting = Waiting(each.ticket, next(self._asks), pending, id=each.id)
            self._watch([waiting], pending)

    # --- inside -----------------------------------------------------------------------------------

    def _tasks(self, number: int, *, once: bool, cancels: bool = False) -> list[Task]:
        chance = self._chance
        tasks = []
        for _ in range(number):
            seconds = chance.uniform(*SLOW_SECONDS) if chance.random() < SLOW_SHARE / number else 0
            ticket = f"{self._name}/{next(self._tickets)}"
            tasks.append(Task(ticket, seconds, chance.random() < FAILS_SHARE))
        tickets = [each.ticket for each in tasks]
        self._journal.write(Asked(time.monotonic(), tickets, once, WITHIN_SECONDS, cancels))
        return tasks

    def _watch(
        self, some: list[Waiting],
        requested: roq.Pending[Reply] | roq.PendingMany[Reply] | None = None,
    ) -> None:  # fmt: skip
        """Wait for these.

        Args:
            requested: all of them, if it is called back for them.
        """
        if requested is not None:
            requested.on_done(lambda _: self._tell(some))
        for waiting in some:
            waiting.early = waiting.pending.done()
            self._waiting.append(waiting)

    def _goes_on(self, waiting: Waiting) -> bool:
        """Look at one; whether there is more to come of it."""
        id_, told = _id_of(waiting.pending), waiting.told
        if id_ not in ("", waiting.id) and (told or not waiting.early):
            waiting.id = id_
            self._journal.write(Accepted(time.monotonic(), waiting.ticket, id_))
        if not (told or waiting.fetches):
            return True
        if told not in ("", UNAVAILABLE):
            return False
        if waiting.id:
            self._fetched.append(Left(waiting.ticket, waiting.id))
            return False
        receipt = waiting.pending.accepted
        if receipt is not None and not receipt.done():
            return True
        if not told:
            self._write(waiting, "refused")
        return False

    def _tell(self, some: list[Waiting]) -> None:
        """A callback; it may be called in another thread than `look`."""
        for waiting in some:
            self._told(waiting)

    def _told(self, waiting: Waiting) -> None:
        run = text = ""
        try:
            reply = waiting.pending.result(0)
        except RequestFailed as error:
            found = _RUN.search(str(error))
            state, run = "failed", found[1] if found else ""
        except RoQError as error:
            state, text = UNAVAILABLE, str(error)[-TEXT_MAX:]
            if isinstance(error, NoResponse):
                state = "lost" if isinstance(error, ResponseLost) else waiting.pending.state
        else:
            state, run = "done", reply.run if reply.ticket == waiting.ticket else "of another one"
        self._write(waiting, state, run, text)
        waiting.told = state

    def _write(self, waiting: Waiting, state: str, run: str = "", text: str = "") -> None:
        id_ = _id_of(waiting.pending)
        told = Told(time.monotonic(), waiting.ticket, waiting.ask, id_, state, run, text)
        self._journal.write(told)


def _id_of(pending: roq.Pending[Reply]) -> str:
    """Empty: it has none, yet or for good."""
    with suppress(RoQError):
        return pending.id
    return ""
