"""One poll loop with synchronous handlers: readable sources, timers, calls from other threads.

Handlers run one at a time and to their end, so whatever decides is never interleaved. The loop is
level-triggered (`zmq_poll` looks at a socket's state, not at its descriptor), so no wake-up is lost
when a handler leaves messages behind. An exception that leaves a handler ends `run()` and is raised
there: a shell catches only what it can name. Signals become calls in the loop (`signals.py`).
"""

from __future__ import annotations

import heapq
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, cast

import zmq
from zmq import zmq_poll

from roq.errors import LocalProtocolError
from roq.runtime.interfaces import BEAT_SECONDS, Call, Loop, Socket, Source, Timer

_Key = zmq.Socket[bytes] | int
_POLLIN: Final = int(zmq.POLLIN)
_POLLOUT: Final = int(zmq.POLLOUT)


class Reactor(Loop):
    """The loop. One thread runs it; `call_soon`, `call_here` and `stop` may come from any thread.

    What is for the loop's thread only is also for who runs something in its place.

    Attributes:
        at_close: called by `close`: what ends connections that are still there.
        here: the thread that runs something in the place of the loop; 0: none does.
    """

    def __init__(self) -> None:
        self.at_close: set[Call] = set()
        self.here = 0
        self._polled: list[tuple[_Key, int]] | None = None
        """What is polled; None: it has changed, and is made anew once before the next poll."""
        self._handlers: dict[_Key, Call] = {}
        self._writers: dict[_Key, Call] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self.phase = random.random() * BEAT_SECONDS  # noqa: S311 - no secret
        self._order = count()
        self._calls: deque[Call] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._asleep = False
        self._changed = False
        """What is run in place of the loop has something for it to do."""
        self._stopping = False
        self._closed = False
        self._woke = 0.0
        self._longest_turn = 0.0
        self._turn = threading.Lock()
        """Held by the loop, but while it sleeps; then by who runs something in its place."""
        self._awake = False
        """Whether it is the loop that holds it, and gives it back at its end: what the handler of a
        signal raises may leave the loop while it waits for another one that holds it."""
        # A signal handler may call while the thread that it interrupts is waking the loop itself.
        self._lock = threading.RLock()
        self._handlers[self._wake_read] = self._woken

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def add(self, source: Source, handler: Call) -> None:
        """Call `handler` whenever `source` is readable. Loop thread only."""
        key = _key(source)
        if key in self._handlers:
            raise LocalProtocolError(f"{source!r} has a handler already")
        self._handlers[key] = handler
        self._poll_anew()

    def remove(self, source: Source) -> None:
        """Forget `source`; do so before it is closed. Loop thread only."""
        key = _key(source)
        if self._handlers.pop(key, None) is not None:
            self._polled = None

    def add_writer(self, fd: int, handler: Call) -> None:
        """Call `handler` whenever something can be written to a descriptor. Loop thread only."""
        self._writers[fd] = handler
        self._poll_anew()

    def remove_writer(self, fd: int) -> None:
        """Call it no more. Loop thread only."""
        if self._writers.pop(fd, None) is not None:
            self._polled = None

    def call_soon(self, function: Call) -> None:
        """Call `function` in the loop; from any thread, in order of the calls."""
        self._calls.append(function)
        self._rouse()

    def call_here(self, function: Call) -> None:
        """Call `function` in this thread if the loop sleeps, which goes on sleeping; else soon.

        It must touch no ZeroMQ socket: `zmq_poll` looks at these while it sleeps. For threads that
        no signal handler interrupts: what it does is not to be left half done.
        """
        if not (self._asleep and self._turn.acquire(blocking=False)):
            self.call_soon(function)
            return
        # What was to be called before comes first; and it may have woken up, or ended, meanwhile.
        if self._calls or not self._asleep:
            self._turn.release()
            self.call_soon(function)
            return
        began = time.monotonic()
        self.here = threading.get_ident()
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - it ends the loop, as of any handler
            self.call_soon(partial(_raise, error))
        finally:
            self._longest_turn = max(self._longest_turn, time.monotonic() - began)
            self.here, changed, self._changed = 0, self._changed, False
            self._turn.release()
            if changed:
                self._wake()

    def call_at(self, when: float, function: Call) -> Timer:
        """Call `function` at the time `when` of `now()`. Loop thread only."""
        timer = Timer(when, function)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        self._rouse()
        return timer

    def _poll_anew(self) -> None:
        self._polled = None
        self._rouse()

    def run(self) -> None:
        """Serve until `stop()`; the first exception of a handler ends it."""
        self._woke = time.monotonic()
        self._turn.acquire()
        self._awake = True
        try:
            while not self._stopping:
                self._run_calls()
                self._run_timers()
                self._run_calls()  # what these have called: to ask the system first costs more
                for key, events in self._poll():
                    if events & ~_POLLIN and (writer := self._writers.get(key)) is not None:
                        writer()
                    if events & ~_POLLOUT and (handler := self._handlers.get(key)) is not None:
                        handler()
            self._run_calls()
        finally:
            self._asleep = False
            if self._awake:
                self._awake = False
                self._turn.release()

    def take_longest_turn(self) -> float:
        """Seconds that the longest turn since the last call has taken: so long nobody was heard."""
        longest, self._longest_turn = self._longest_turn, 0.0
        return longest

    def stop(self) -> None:
        """Let `run()` return after the present handler; from any thread."""
        self._stopping = True
        self._wake()

    def close(self) -> None:
        """Give the descriptors back. Sources that are not in `at_close` are their owners'."""
        for close in list(self.at_close):
            close()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._wake_read)
                os.close(self._wake_write)

    def _poll(self) -> list[tuple[_Key, int]]:
        turn = time.monotonic() - self._woke
        self._longest_turn = max(self._longest_turn, turn)
        polled = self._polled
        if polled is None:
            wanted = dict.fromkeys(self._handlers, _POLLIN)
            for key in self._writers:
                wanted[key] = wanted.get(key, 0) | _POLLOUT
            polled = self._polled = list(wanted.items())
        self._asleep = True
        timeout_ms = self._timeout_ms()
        self._awake = False
        self._turn.release()
        try:
            return cast("list[tuple[_Key, int]]", zmq_poll(polled, timeout_ms))
        finally:
            self._asleep = False  # before it waits: else who calls here again and again goes first
            self._turn.acquire()
            self._awake = True
            self._woke = time.monotonic()

    def _timeout_ms(self) -> int:
        # Looked at after `_asleep` is set, so that a call from another thread is either seen here
        # or writes to the pipe.
        if self._calls or self._stopping:
            return 0
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        seconds = self._timers[0][0] - self.now()
        return max(0, min(int(seconds * 1000) + 1, 3_600_000))

    def _run_calls(self) -> None:
        # No more than there are now: a call that calls soon again must not starve the sockets.
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _run_timers(self) -> None:
        # Those that are due now, and none that they set anew: a deadline that lies in the past
        # again and again must not starve the sockets.
        now = self.now()
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            if timer.call is not None:
                call, timer.call = timer.call, None
                call()

    def _rouse(self) -> None:
        """Wake the loop if it sleeps; who runs something in its place does so at the end."""
        if self._asleep:
            if self.here == threading.get_ident():
                self._changed = True
            else:
                self._wake()

    def _wake(self) -> None:
        with self._lock:
            if not self._closed:
                try:
                    os.write(self._wake_write, b"\0")
                except BlockingIOError:
                    return  # full: the loop will wake anyway

    def _woken(self) -> None:
        # The calls first: the thread that has woken the loop takes the interpreter back as soon as
        # this one reads, and what it has told would wait for that.
        self._run_calls()
        try:
            while len(os.read(self._wake_read, 4096)) == 4096:
                continue
        except BlockingIOError:
            return


def _raise(error: BaseException) -> None:
    raise error


def _key(source: Source) -> _Key:
    if isinstance(source, zmq.Socket | int):
        return source
    return source.fileno()


def drain(socket: Socket, handle: Callable[[list[bytes]], None], most: int = 50) -> None:
    """Read what is there, at most `most` messages, so that other sources get their turn."""
    for _ in range(most):
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        handle(frames)
        if socket.closed:
            return
