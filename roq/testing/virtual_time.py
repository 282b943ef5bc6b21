"""A clock that a test moves, and what is to happen on it: timers, threads that take turns, asyncio.

One thing happens at a time, in the order of the times at which it is due, so what a test sees is
the same each time. Code that waits has a thread of its own (`Turn`), as in production, but one of
these runs only while everybody else stands still.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from datetime import datetime
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, TypeVar, TypeVarTuple

from roq.client.io.lock import ClientLock
from roq.errors import Closed, InvalidRequest, RoQError
from roq.runtime.interfaces import Call, Loop, Source, Timer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

AT_ONCE_MAX: Final = 100_000
"""So many calls at one time: something asks for the same again and again."""
LONGEST_SECONDS: Final = 86_400.0
"""Of the test's clock; who waits without a limit waits no longer."""
BEGIN_SECONDS: Final = 1_000.0


class GivenUp(BaseException):
    """What waits on a clock that has ended is ended by this."""


class Turn:
    """A thread that runs only while whoever has it run stands still.

    Args:
        run: what it does.
        lives: whether its process is there; if not, it is ended where it waits.
        patience: seconds of real time that it may take until it waits for the clock, or ends.
    """

    def __init__(self, run: Call, lives: Callable[[], bool], patience: float) -> None:
        self.lives = lives
        self._run = run
        self._patience = patience
        self._given_up = self._over = False
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, name="roq-testing", daemon=True)

    @property
    def here(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def go_on(self) -> None:
        """Let it run until it waits for the clock, or ends.

        Raises:
            InvalidRequest: it does neither.
        """
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        if not self._back.acquire(timeout=None if sys.gettrace() else self._patience):
            raise InvalidRequest(
                f"a handler or a callback has not come back for {self._patience:g} s: it waits for "
                "something real (a lock, a socket, time.sleep). On a test's clock it may wait for "
                "`world.sleep`, and for results"
            )
        if self._over:
            self._thread.join()

    def wait(self) -> None:
        """Stand still until it is to go on; in this thread.

        Raises:
            GivenUp: it is to end.
        """
        self._back.release()
        self._go.acquire()
        self.check()

    def check(self) -> None:
        """Raises `GivenUp` if it is to end."""
        if self._given_up:
            raise GivenUp

    def give_up(self) -> None:
        """It is to end when it goes on."""
        self._given_up = True

    def _work(self) -> None:
        self._go.acquire()
        try:
            self._run()
        except GivenUp:
            pass
        finally:
            self._over = True
            self._back.release()


class VirtualTime(Loop):
    """The clock, and what is to happen on it.

    Args:
        begin: what a calendar shows at the beginning, with a time zone.
        patience: seconds of real time that a `Turn` may take.

    Attributes:
        before: called before time passes, or anything happens.
        between: called behind each thing that has happened; does not wait.
        errors: what callbacks of users have raised, to be raised where time passes.
        over: it has ended, and nothing happens any more.

    Raises:
        InvalidRequest: the time has no zone.
    """

    def __init__(self, begin: datetime, patience: float) -> None:
        if begin.tzinfo is None:
            raise InvalidRequest(f"a time needs a time zone, and {begin} has none")
        self.before: Call = lambda: None
        self.between: Call = lambda: None
        self.errors: list[BaseException] = []
        self.over = False
        self._now = BEGIN_SECONDS
        self._wall = begin.timestamp() - BEGIN_SECONDS
        self._patience = patience
        self._due: list[tuple[float, int, Timer]] = []
        self._serial = 0
        self._running = False
        self._turn: Turn | None = None
        """The one that runs."""
        self._waiting: dict[Turn, tuple[Callable[[], bool], float]] = {}
        """Until what each of them stands still, and when at the latest."""

    def now(self) -> float:
        """Seconds."""
        return self._now

    def wall_clock(self) -> float:
        """Seconds since 1970."""
        return self._wall + self._now

    def add(self, source: Source, handler: Call) -> None:
        """There is nothing to be read here."""

    def remove(self, source: Source) -> None:
        """There is nothing to be read here."""

    def call_soon(self, function: Call) -> None:
        """Call `function` behind what is due now."""
        self.call_at(self._now, function)

    def call_at(self, when: float, function: Call) -> Timer:
        """Call `function` at the time `when` of `now()`."""
        timer = Timer(when, function)
        self._serial += 1
        heappush(self._due, (max(when, self._now), self._serial, timer))
        return timer

    def begin(self, run: Call, lives: Callable[[], bool] = lambda: True) -> None:
        """Run this in a thread of its own, until it waits for the clock or ends.

        Args:
            lives: as of `Turn`.
        """
        self._go_on(Turn(run, lives, self._patience))

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Let time pass until this is so; False: it was not so within so many seconds.

        Raises:
            InvalidRequest: nothing can happen while the caller waits; or it would wait for ever.
            Closed: the clock has ended.
        """
        if not self._running:
            self.before()
        if condition():
            return True
        if isinstance(asyncio._get_running_loop(), VirtualEventLoop):  # noqa: SLF001 - as asyncio says
            raise InvalidRequest(
                "this waits in an event loop, and holds up all that runs there: await it"
            )
        until = self._now + (LONGEST_SECONDS if timeout is None else max(0.0, timeout))
        turn = self._turn
        if turn is not None and turn.here:
            turn.check()
            self._waiting[turn] = condition, until
            self.call_at(until, lambda: None)
            turn.wait()
        elif self._running:
            raise InvalidRequest("an availability function does not wait for anything")
        else:
            self.run(until, condition)
        if not (done := condition()) and timeout is None:
            raise InvalidRequest(f"it was waited for {LONGEST_SECONDS:g} s of the test's clock")
        return done

    def run(self, until: float, condition: Callable[[], bool] = lambda: False) -> None:
        """Have everything happen that is due by then, or until this is so.

        Raises:
            Closed: the clock has ended.
            Exception: what a callback of the user has raised.
        """
        if self.over:
            raise Closed("the test's clock has ended, at the end of its block")
        if self._running:
            raise InvalidRequest("a handler lets no time pass but by waiting: `world.sleep`")
        self.before()
        self._running = True
        try:
            # As a thread begins: handlers do not see the context variables of the test.
            Context().run(self._run, until, condition)
        finally:
            self._running = False
        if self.errors:
            raise self.errors.pop(0)

    def end(self) -> None:
        """Nothing happens any more; what waits is ended."""
        self.over = True
        self._due.clear()
        waiting, self._waiting = list(self._waiting), {}
        for turn in waiting:
            turn.give_up()
            self._go_on(turn)

    def _run(self, until: float, condition: Callable[[], bool]) -> None:
        at_once = 0
        while not (condition() or self.errors):
            if not self._due or self._due[0][0] > until:
                self._now = max(self._now, until)
                return
            when, _, timer = heappop(self._due)
            at_once = at_once + 1 if when <= self._now else 0
            if at_once > AT_ONCE_MAX:
                raise RoQError(f"time stands still: {timer.call} is called again and again")
            self._now = max(self._now, when)
            call, timer.call = timer.call, None
            if call is not None:
                call()
                self.between()
                self._wake()

    def _wake(self) -> None:
        """Let those go on that have waited for what is so now."""
        found = True
        while found:
            found = False
            for turn, (condition, until) in list(self._waiting.items()):
                if not (lives := turn.lives()) or condition() or self._now >= until:
                    del self._waiting[turn]
                    if not lives:
                        turn.give_up()
                    self._go_on(turn)
                    found = True

    def _go_on(self, turn: Turn) -> None:
        before, self._turn = self._turn, turn
        try:
            turn.go_on()
        finally:
            self._turn = before


class OneThread:
    """What a client's shells ask of its threads (`Engine`), where there is one."""

    forked = False
    inside = True
    failure = None

    def run_sync(self, function: Callable[[], T], timeout: float = 0.0) -> T:  # noqa: ARG002
        """Run it now."""
        return function()

    def guard(self, who: str) -> ClientLock:
        """A lock that nobody waits for."""
        return ClientLock(who)

    def at_end(self, call: Call) -> None:
        """It ends with its process, which calls nobody."""

    def not_at_end(self, call: Call) -> None:
        """It ends with its process, which calls nobody."""

    def check(self) -> None:
        """It can be used."""

    def check_process(self) -> None:
        """Nothing forks here."""

    def check_outside(self) -> None:
        """Nobody holds a lock that others wait for."""


class VirtualEventLoop(asyncio.BaseEventLoop):
    """An event loop on such a clock, for what waits for nothing else.

    Args:
        time: the clock, or a process on it.
        begin: has something run in a thread of its own.
    """

    def __init__(self, time: Loop, begin: Callable[[Call], None]) -> None:
        super().__init__()
        self._on = time
        self._begin = begin

    def __del__(self, warn: object = None) -> None:
        """There is nothing to close."""

    def time(self) -> float:
        """Seconds."""
        return self._on.now()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio`."""
        handle = asyncio.Handle(callback, args, self, context)
        self._on.call_soon(partial(self._call, handle))
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio`."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        """See `asyncio`."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._on.call_at(when, partial(self._call, handle))
        return handle

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts  # noqa: ARG002 - there is none
    ) -> asyncio.Future[T]:  # fmt: skip
        """See `asyncio`; what is run may wait for the clock."""
        future: asyncio.Future[T] = self.create_future()

        def told(settle: Callable[[Any], None], value: object) -> None:
            if not future.done():
                settle(value)

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                self.call_soon(told, future.set_exception, error)
            else:
                self.call_soon(told, future.set_result, result)

        self._on.call_soon(lambda: self._begin(run))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody awaits is of no interest: the process was killed, or the test is over."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when it is due."""

    def _call(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        before = asyncio._get_running_loop()  # noqa: SLF001 - for event loops, as asyncio says
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            handle._run()  # noqa: SLF001
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001
