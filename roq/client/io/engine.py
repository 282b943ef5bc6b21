"""The background thread of a client: a reactor in which every socket of the client lives.

Everything that waits on the network runs here as a callback; a caller's thread hands work over with
`run_sync` or `call_soon`. The stated exceptions are shared under a lock: the publishers' data
sockets (`roq.client.publish.shell`) and the subscribers' fan-out (`roq.client.subscribe.shell`).
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

import zmq

from roq.client.io.callbacks import Callbacks
from roq.client.io.exchange_connections import ExchangeConnections
from roq.client.io.lock import ClientLock
from roq.client.io.monitor_connections import MonitorConnections
from roq.client.io.ticker import Ticker
from roq.errors import Closed, Reentered, Unavailable
from roq.runtime import descriptors
from roq.runtime.addresses import Translate
from roq.runtime.backoff import Jitter
from roq.runtime.reactor import Reactor
from roq.runtime.rpc_connections import RpcConnections
from roq.runtime.sockets import new_context
from roq.runtime.structured_logs import RateLimited

logger = logging.getLogger(__name__)

DESCRIPTORS: Final = 24
"""What a client takes by itself, and for its first connection."""
LOG_SECONDS: Final = 30.0
"""The same trouble is logged once in so long."""
GRACE_SECONDS: Final = 0.5
"""An answer that says that time is over may come so late."""

T = TypeVar("T")


class Engine:
    """Owns the reactor, its thread and the ZeroMQ context of one client.

    Args:
        translate: applied to each address before it is connected to.

    Attributes:
        translate: the same; addresses stay as they are if there was none.
        reactor: add sockets and timers from inside the thread only.
        context: for every socket of this client.
        managers: connections to configuration managers, shared by all who ask one.
        monitors: connections to monitors, shared by sessions.
        exchanges: connections by which logs are read, shared by subscribers.
        ticker: beats for everybody who looks after something.
        callbacks: calls users back, in a thread of its own.
        repeats: sends requests once more, in a thread of its own: users take their time.
        limited: for what many publishers and subscribers may have to say at once.
        jitter: spreads what this client and others do again at the same time: in [0, 1).
        wall_clock: gives seconds since 1970.
        forked: whether this is a child process, which has neither the thread nor the connections.

    Raises:
        Unavailable: too few descriptors are left.
    """

    def __init__(self, name: str = "roq-client", translate: Translate | None = None) -> None:
        descriptors.need(DESCRIPTORS, "a client")
        self.translate: Translate = translate or str
        self.reactor = Reactor()
        self.context: zmq.Context[zmq.Socket[bytes]] = new_context()
        self.managers = RpcConnections(self.reactor, self.context)
        self.monitors = MonitorConnections(self.reactor, self.context)
        self.ticker = Ticker(self.reactor)
        self.callbacks = Callbacks(self._locked)
        self.repeats = Callbacks(self._locked, "roq-repeats")
        self.limited = RateLimited(logger, LOG_SECONDS)
        # A generator of its own: applications that seed the global one alike must not act as one.
        self.jitter: Jitter = random.Random().random  # noqa: S311 - spreads retries, guards nothing
        self.wall_clock: Callable[[], float] = time.time
        self.exchanges = ExchangeConnections(self.reactor, self.jitter)
        self.failure: BaseException | None = None
        """What ended the thread, if it did not end by `close`."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.forked = False
        # May be taken twice: what is done with it is done in one step each.
        self._lock = threading.RLock()
        self._guards: dict[int, weakref.ref[ClientLock]] = {}
        self._calls: set[Future[Any]] = set()
        self._at_end: dict[Callable[[], None], None] = {}
        self._ended = False
        self._closed = False
        _engines.add(self)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def inside(self) -> bool:
        """Whether the caller is the engine's own thread."""
        return threading.current_thread() is self._thread

    def check(self) -> None:
        """Make sure that work can still be handed over.

        Raises:
            Closed: the engine was closed, its thread ended, or this is a forked child process.
        """
        self.check_process()
        if self.failure is not None or self._closed or self._ended:
            raise self.end

    @property
    def end(self) -> Closed:
        """What to tell when the thread has ended, or is about to."""
        if self.failure is not None:
            return Closed(f"the client's background thread ended: {self.failure!r}")
        return Closed("the connection to the cluster is closed")

    def check_process(self) -> None:
        """Make sure that this is the process that opened the connection.

        Raises:
            Closed: it is a forked child.
        """
        if self.forked:
            raise Closed(
                "this connection was opened before the process was forked; "
                "open a new one with roq.connect() in the child (or use the spawn start method)"
            )

    def guard(self, who: str) -> ClientLock:
        """The lock for a part of this client; see `ClientLock`."""
        guard = ClientLock(who)
        key, guards = id(guard), self._guards
        guards[key] = weakref.ref(guard, lambda _: guards.pop(key, None))
        return guard

    def _locked(self) -> bool:
        """Whether this thread holds a lock of this client."""
        guards = [reference() for reference in list(self._guards.values())]
        return any(guard is not None and guard.held() for guard in guards)

    def check_outside(self) -> None:
        """Make sure that this thread holds no lock that the I/O thread may be waiting for, and does
        not stand in its place (`call_here`).

        Raises:
            Reentered: it does.
        """
        if self.forked:
            return  # whatever was held is the parent's
        if self.reactor.here == threading.get_ident():
            raise Reentered(
                "called while this thread was sending for the client's background thread, by a "
                "__del__ method or a logging handler: nothing was done. Let it leave a note, and "
                "call from the program itself"
            )
        for reference in list(self._guards.values()):
            guard = reference()
            if guard is not None:
                guard.check()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run `function` in the I/O thread; does not wait for it.

        Raises:
            Closed: see `check`.
        """
        self.check()
        self.reactor.call_soon(function)

    def call_here(self, function: Callable[[], None]) -> None:
        """Run `function` in this thread in the place of the I/O thread if that sleeps, else there.

        It saves that thread from being woken; see `Reactor.call_here`. From the main thread it is
        run there: a signal handler may end what that does anywhere.

        Raises:
            Closed: see `check`.
        """
        self.check()
        if threading.current_thread() is threading.main_thread():
            self.reactor.call_soon(function)
        else:
            self.reactor.call_here(function)

    def run_sync(self, function: Callable[[], T], timeout: float = 10.0) -> T:
        """Run `function` in the I/O thread and give its result, or raise what it raised.

        Raises:
            Unavailable: it did not run within `timeout` seconds; it will not run later.
            Closed: see `check`.
            Reentered: see `check_outside`.
        """
        self.check()
        if self.inside:
            return function()
        self.check_outside()
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                future.set_exception(error)

        self._remember(future)
        try:
            self.reactor.call_soon(run)
            return future.result(timeout)
        except FutureTimeoutError:
            future.cancel()
            raise Unavailable(
                f"the client's background thread is busy: no answer in {timeout:g} s"
            ) from None
        finally:
            with self._lock:
                self._calls.discard(future)

    def at_end(self, function: Callable[[], None]) -> None:
        """Call `function` once when the thread ends, from that thread; it must not block.

        Raises:
            Closed: this is a forked child, in which there is no thread.
        """
        self.check_process()
        with self._lock:
            if not self._ended:
                self._at_end[function] = None
                return
        function()

    def not_at_end(self, function: Callable[[], None]) -> None:
        """Do not call it any more: who has closed is to be forgotten before the engine ends."""
        if self.forked:
            return
        with self._lock:
            self._at_end.pop(function, None)

    def close(self, timeout: float = 5.0) -> None:
        """Stop the thread and end the context; idempotent, and takes at most `timeout` seconds.

        The owner of a socket closes it before; what is left over is closed without linger.
        """
        if self._closed:
            return
        self._closed = True
        if self.forked:
            return
        self.reactor.stop()
        if self.inside or self.reactor.here == threading.get_ident():
            return
        if self._thread.ident is not None:
            self._thread.join(timeout)
        self.repeats.close()
        self.callbacks.close()
        if self._thread.is_alive():
            logger.error("the client's background thread does not end; its sockets stay open")
            return
        self.reactor.close()
        self.context.destroy(linger=0)

    def _remember(self, future: Future[T]) -> None:
        with self._lock:
            if self._ended:
                raise self.end
            self._calls.add(future)

    def _run(self) -> None:
        try:
            self.reactor.run()
        except BaseException as error:
            self.failure = error
            logger.exception("the client's background thread ended")
        finally:
            with self._lock:
                self._ended = True
                calls, self._calls = self._calls, set()
                at_end, self._at_end = self._at_end, {}
            for future in calls:
                if not future.done() and future.set_running_or_notify_cancel():
                    future.set_exception(self.end)
            for function in at_end:
                function()


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def wait_result(future: Future[T], timeout: float) -> T:
    """The result of a future in the caller's thread.

    Raises:
        RoQError: what the future failed with.
        Unavailable: the I/O thread gave no answer at all.
    """
    try:
        return future.result(timeout + GRACE_SECONDS)
    except FutureTimeoutError:
        raise Unavailable(f"no answer within {timeout:g} s") from None


def _after_fork() -> None:
    """In a forked child: remember it, for to ask the system with each batch costs a tenth of it.

    No lock is taken there from then on: a thread that the child does not have may hold it.
    """
    for engine in _engines:
        engine.forked = True


os.register_at_fork(after_in_child=_after_fork)
