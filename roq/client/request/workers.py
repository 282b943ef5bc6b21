"""Threads that run what handlers have to do, woken as they are needed.

One thread is woken at a time: it wakes the next one when it has taken something and there is more.
So handlers that wait run at once in as many threads as there are, and those that are quick are run
by few, one after the other: to hand each of them to a thread of its own costs more than they do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Workers(Generic[T]):
    """Some threads, and what they have to do.

    Args:
        name: of the threads, before their numbers.
        work: called with each thing, in one of them; it raises nothing.
    """

    def __init__(self, name: str, work: Callable[[T], None]) -> None:
        self._name = name
        self._work = work
        self._due: deque[T | None] = deque()
        """None: a thread ends."""
        self._idle: Final[list[threading.Lock]] = []
        """Of each thread that waits: released, it goes on."""
        self._waking = False
        """Some thread is woken, and has not looked yet."""
        self._count = 0

    def start(self, count: int) -> None:
        """Begin so many threads."""
        for number in range(count):
            self._count += 1
            name = f"{self._name}-{number}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, work: Iterable[T]) -> None:
        """This is to be done; from any thread."""
        self._due.extend(work)
        self._wake()

    def stop(self) -> None:
        """End the threads when all is done that is due; does not wait for that."""
        self._due.extend([None] * self._count)
        self._wake()

    def _wake(self) -> None:
        # What is added is added first. So whoever was woken before, and has not looked, sees it.
        if self._waking:
            return
        with suppress(IndexError):  # all of them are awake, and look before they wait
            gate = self._idle.pop()
            self._waking = True
            gate.release()

    def _run(self) -> None:
        due, idle, gate = self._due, self._idle, threading.Lock()
        gate.acquire()
        while True:
            try:
                work = due.popleft()
            except IndexError:
                idle.append(gate)
                if due:  # since the look: nobody may have seen that this one waits
                    self._wake()
                gate.acquire()
                self._waking = False
                continue
            if due:
                self._wake()
            if work is None:
                return
            self._work(work)
