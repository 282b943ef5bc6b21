"""A service: one instance of it, that runs handlers for requests and answers them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, process_time
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar, overload

import msgspec

from roq.client.consume.consumer import _checked, start_of
from roq.client.consume.seat import Membership
from roq.client.io import at_exit as farewell
from roq.client.io.engine import Engine
from roq.client.io.naming import client_name
from roq.client.request.context import RequestContext
from roq.client.request.endpoint import Endpoint
from roq.client.request.handling import BATCHES_HELD, Handling, ServiceStats
from roq.client.request.instance_shell import InstanceShell
from roq.client.session.events import SessionState
from roq.client.session.shell import MonitorSession
from roq.errors import (
    Closed,
    InvalidRequest,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
    brief,
)
from roq.model import check_count, wait_seconds
from roq.protocol.consuming import GroupSettings, clean
from roq.protocol.defined_services import overruled, settings_from
from roq.protocol.requesting import (
    ENDPOINTS_MAX,
    SETTINGS,
    Figures,
    ServiceSettings,
    prefix_of,
)
from roq.runtime.signals import SignalEvent

Q = TypeVar("Q")
R = TypeVar("R")

Handler = Callable[[Q, RequestContext], R | Awaitable[R]]
"""Gives the response to a request."""
Answers = Sequence[R | BaseException]
BatchHandler = Callable[[list[Q], list[RequestContext]], Answers[R] | Awaitable[Answers[R]]]
"""Gives an answer to each of some requests: its response, or the exception with which it fails."""

BATCH_MAX: Final = 10_000
"""Requests that one call of a batch handler has at most."""
THREADS: Final = 16
THREADS_MAX: Final = 10_000
DRAIN_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0
FIGURES_SECONDS: Final = 1.0
HANGS_SECONDS: Final = 5.0
"""An availability function that takes longer makes its instance unavailable."""
RULE_MAX: Final = 200
VERSION_MAX: Final = 64
"""Characters, as of `Figures`."""
log = logging.getLogger(__name__)
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class InstanceState:
    """How an instance is; what an availability function decides by.

    Attributes:
        busy: requests that run. Each of a batch, and each that an `async def` handler runs, counts:
            these may be more than `threads`.
        threads: `def` handlers that run at once.
        response_ms: how long handlers that have ended in the last ten seconds have run, in the
            mean of the last hundred; 0: there are none.
        memory_bytes, cpu_percent: of the process.
        flag: what the program has set by `Service.flag`.
    """

    busy: int = 0
    threads: int = 0
    response_ms: float = 0.0
    memory_bytes: int = 0
    cpu_percent: float = 0.0
    flag: bool = True


class Service:
    """One instance of a service. Made by `Cluster.service`.

        service = cluster.service("billing", queue="work")

        @service.handler(create)
        def create_invoice(order: Order, context: roq.RequestContext) -> Invoice: ...

        service.run()   # until SIGTERM

    Handlers that are `def` run in threads, `async def` ones in one event loop. What a handler
    returns is the response. What it raises fails the request, with the traceback as its text; if
    that matches `retry_on` it is run again, up to `retries` times.

    Attributes:
        drained: `Cluster.drain_service` has told it to end.

    Args:
        engine: the client's threads.
        managers: addresses of configuration managers.
        name: of the service.
        queue: name of the queue.
        threads: requests that run at once.
        prefetch: requests that it holds at most, at all exchanges together, however slow it is; at
            least 1. None: as many as can begin at once (one for each thread; with batch handlers
            the largest batch for each of up to four threads; with coroutines alone twice
            `threads`), and while it is quick more, up to twice `threads` or four times the largest
            batch.
        available: called with an `InstanceState` each second: whether it takes requests. None: it
            always does.
        retry_on: a regular expression, searched for in the text of an error.
        retries: how often a request is run again for that.
        retry, retry_max: seconds before the second run, doubled for each further one.
        lease: seconds of silence after which it is lost; by who has made the service.
        settings: of the service.
        instance: by which people find it; None: program, host and process id.
        version: of the program, for people.
        timeout: seconds that the queue's exchanges have for taking it in.

    Raises:
        InvalidRequest: a setting that cannot be.
    """

    def __init__(
        self,
        engine: Engine,
        managers: Sequence[str],
        name: str,
        queue: str,
        *,
        threads: int = THREADS,
        prefetch: int | None = None,
        available: Callable[[InstanceState], bool] | None = None,
        retry_on: str | None = None,
        retries: int = 1,
        retry: float = 1.0,
        retry_max: float = 60.0,
        lease: float = 10.0,
        settings: ServiceSettings,
        instance: str | None = None,
        version: str = "",
        timeout: float = 10.0,
    ) -> None:
        self.name = name
        self.queue = queue
        self.instance = client_name(instance)
        self._engine = engine
        self._managers = managers
        self._available = available
        self._threads = check_count("threads", threads, 1, THREADS_MAX)
        self._handling = Handling(
            name, queue, self.instance, self._threads, _pattern(retry_on),
            check_count("retries", retries, 0),
        )  # fmt: skip
        self._version = clean(version, VERSION_MAX)
        self._timeout = timeout
        self._flag = True
        self._id = os.urandom(16)
        group = _checked(
            GroupSettings(
                prefixes=(prefix_of(name),), attempts=0, lease_seconds=lease,
                retry_seconds=retry, retry_seconds_max=retry_max, service=settings,
            )
        )  # fmt: skip
        start_us, _ = start_of("earliest")
        self._prefetch = None if prefetch is None else check_count("prefetch", prefetch, 1)
        self._member = Membership(
            id=self._id, name=self.instance, group=name, settings=group, latest=False,
            start_us=start_us, prefetch=2 * self._threads, prefetch_bytes=1 << 30,
        )  # fmt: skip
        self._shell: InstanceShell | None = None
        self._session: MonitorSession | None = None
        self._ready = threading.Event()
        self._error: RoQError | None = None
        self._stop = SignalEvent()
        self.drained = False
        self._awaited = False
        """Somebody waits for `stop`, and drains then."""
        self._closed = False
        self._looked_at = math.inf
        """When the availability function has returned last; infinity: it was not called."""
        self._cpu = process_time(), monotonic()

    # --- the user's -------------------------------------------------------------------------------

    @overload
    def handler(
        self, endpoint: Endpoint[Q, R]
    ) -> Callable[[Handler[Q, R]], Callable[..., Any]]: ...

    @overload
    def handler(
        self, endpoint: Endpoint[Q, R], *, batch: int
    ) -> Callable[[BatchHandler[Q, R]], Callable[..., Any]]: ...

    def handler(
        self, endpoint: Endpoint[Any, Any], *, batch: int | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Have requests to this endpoint run by the function below, `def` or `async def`.

        Args:
            batch: the function takes so many requests at once at most, as a list of values and one
                of contexts, and gives a list with an answer to each: a response, or an exception,
                with which that request fails alone. It is called with what has come and has not
                begun, and waits for no more. None: it takes them one by one.

        Raises:
            InvalidRequest: the endpoint is another service's, or has a handler; or it has begun; or
                no batch can be so large.
        """
        if self._shell is not None:
            raise InvalidRequest("the service has begun: register handlers before")
        most = 0 if batch is None else check_count("batch", batch, 1, BATCH_MAX)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._handling.register(endpoint, function, most)
            return function

        return register

    def flag(self, *, available: bool) -> None:
        """Set the flag that availability functions see; without such a function it decides.

        `Cluster.flag_service` sets it from elsewhere.
        """
        self._engine.check_process()
        self._flag = available

    @property
    def stats(self) -> ServiceStats:
        """What has happened so far."""
        return self._handling.stats

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Take requests from now on.

        Args:
            loop: where `async def` handlers run; None: in one of its own.

        Raises:
            InvalidRequest: there is no handler, or a consumer group of this name.
            Unavailable: not all exchanges have answered in time.
            QueueNotFound, QueueStopped: there is no such queue, or it does not run.
            Closed: it was closed or drained, or could not start before: make another one.
        """
        self._engine.check_process()
        if not self._handling.handlers:
            raise InvalidRequest(f"service {self.name} has no handler")
        if self._closed:
            raise Closed(f"service {self.name} was closed: make another one to take requests again")
        if self._shell is not None:
            return
        self._handling.start(loop)
        most = self._prefetch or max(2 * self._threads, BATCHES_HELD * self._handling.largest)
        at_once = min(self._handling.at_once or most, most)
        member = replace(self._member, prefetch=most)
        if self._prefetch is None:
            member = replace(member, prefetch=at_once, prefetch_quick=most)
        self._shell = self._handling.shell = InstanceShell(
            self._engine, member, self._handling, self._watch, self._ordered,
            on_joined=self._ready.set, on_refused=self._fail, at_once=at_once,
        )  # fmt: skip
        self._session = MonitorSession(
            self._engine, self._managers, self.queue, client_id=self._id, role="consumer",
            on_topology=self._shell.topology, on_state=self._state,
        )  # fmt: skip
        self._engine.at_end(self._engine_ended)
        farewell.opened(self)
        try:
            self._session.start()
            self._wait()
        except BaseException:
            self.close(0.0)
            raise
        self._looked_at = monotonic()
        self._start_looking()

    def run(self) -> None:
        """Take requests until SIGTERM or SIGINT, then `drain`. In the main thread of a program.

        Raises:
            RoQError: as `start`, or what has ended the service.
        """
        if self._shell is None:  # else it may have been drained since
            self.start()
        before: dict[signal.Signals, Any] = {}

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's
            self._stop.set()

        if threading.current_thread() is threading.main_thread():
            before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            self.wait_stopped()
            self.drain()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            self.close()

    def wait_stopped(self) -> None:
        """Wait until it is stopped, and `drain` it then; raises what has ended it."""
        self._awaited = True
        while not self._stop.wait(1.0):
            self._engine.check_process()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End `run`, from any thread, and from a signal's handler."""
        self._stop.set()

    def drain(self, timeout: float = DRAIN_SECONDS) -> None:
        """Take nothing new, give back what has not begun, finish what runs, and close.

        Args:
            timeout: seconds for what runs; what has not ended by then may have run, and is given to
                others only if it is idempotent.
        """
        shell = self._shell
        timeout = wait_seconds(timeout)
        self._engine.check_process()
        if shell is None or self._closed:
            return
        self._handling.draining = True
        with contextlib.suppress(Closed, Unavailable):
            self._engine.run_sync(shell.drain)
        self._handling.wait_idle(timeout)
        self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Leave at once; idempotent, from any thread.

        Args:
            timeout: seconds for answers to be confirmed.
        """
        timeout = wait_seconds(timeout)
        if self._closed:
            return
        self._closed = True
        farewell.closed(self)
        self._stop.set()
        self._handling.stop()
        shell, session = self._shell, self._session
        if shell is not None and session is not None and not self._engine.forked:
            self._engine.not_at_end(self._engine_ended)
            deadline = monotonic() + timeout
            with contextlib.suppress(Closed, Unavailable):  # what is answered is confirmed at once
                self._engine.run_sync(shell.take_no_more, CLOSE_SECONDS)
            with shell.condition:
                shell.waiting += 1
                try:
                    while shell.unsettled and shell.error is None and monotonic() < deadline:
                        shell.condition.wait(0.1)
                finally:
                    shell.waiting -= 1
            with contextlib.suppress(Closed, Unavailable):
                session.close()
                self._engine.run_sync(shell.close, CLOSE_SECONDS)
            shell.end(Closed("the service is closed"))

    @property
    def trouble(self) -> str:
        """Why nothing comes though it should; empty: it is a member at every exchange."""
        if self._error is not None:
            return str(self._error)
        shell, session = self._shell, self._session
        if shell is None or session is None:
            return "it has not begun"
        away = "; ".join(f"exchange {name}: {why}" for name, why in shell.places())
        return away or ("" if shell.joined else session.facts().reason)

    @property
    def state(self) -> InstanceState:
        """How this instance is."""
        before, at = self._cpu
        now, seconds = process_time(), monotonic()
        cpu = 100 * (now - before) / (seconds - at) if seconds - at >= 0.5 else 0.0
        if seconds - at >= 0.5:
            self._cpu = now, seconds
        work = self._handling
        return InstanceState(
            work.busy, self._threads, work.response_ms, _resident(), cpu, self._flag
        )

    @property
    def _left_open(self) -> bool:
        return self._shell is not None and not self._closed and not self._engine.forked

    def _part(self, seconds: float) -> tuple[str, int]:
        """The program ends without `close`."""
        self.close(max(0.0, seconds))
        return self.queue, 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._shell else "not begun"
        return (
            f"<roq.Service {self.name} of {self.queue}: {state}, {self.stats.answered:,} answered>"
        )

    # --- how it is --------------------------------------------------------------------------------

    def _start_looking(self) -> None:
        threading.Thread(target=self._look_on, name=f"roq-{self.name}-look", daemon=True).start()

    def _look_on(self) -> None:
        """A thread of its own: the availability function may take its time, or hang."""
        while not self._closed:
            self._look()
            if self._stop.wait(FIGURES_SECONDS):
                return

    def _look(self) -> None:
        state = self.state
        available, rule = self._decide(state)
        self._looked_at = monotonic()
        figures = self._figures(state, available=available, rule=rule)
        shell = self._shell
        if shell is not None:
            with contextlib.suppress(Closed):
                self._engine.call_soon(lambda: shell.tell_figures(figures))

    def _watch(self) -> None:
        """The I/O thread looks whether the availability function has returned."""
        seconds = monotonic() - self._looked_at
        if seconds > HANGS_SECONDS and self._shell is not None:
            rule = f"its availability function has not returned for {seconds:.0f} s"
            state = InstanceState(threads=self._threads, flag=self._flag)
            self._shell.tell_figures(self._figures(state, available=False, rule=rule))

    def _ordered(self, order: str) -> None:
        """An operator wants something; I/O thread."""
        if order != "drain":
            self._flag = order == "flag"
        elif not self.drained:
            self.drained = True
            if self._awaited:
                self._stop.set()
            else:
                threading.Thread(target=self.drain, name=f"roq-{self.name}-drain").start()

    def _figures(self, state: InstanceState, *, available: bool, rule: str) -> Figures:
        return Figures(
            available, clean(rule, RULE_MAX), state.busy, state.threads, state.response_ms,
            state.memory_bytes, state.cpu_percent, state.flag, self._version,
            [each.endpoint.name for each in self._handling.handlers.values()][:ENDPOINTS_MAX],
        )  # fmt: skip

    def _decide(self, state: InstanceState) -> tuple[bool, str]:
        if self._available is None:
            return state.flag, "" if state.flag else "its flag is not set"
        try:
            available = bool(self._available(state))
        except BaseException as error:  # noqa: BLE001 - the program's own, and is told
            return False, f"its availability function has raised {brief(error)}"
        return available, "" if available else "its availability function says so"

    # --- its life ---------------------------------------------------------------------------------

    def _wait(self) -> None:
        if not self._ready.wait(self._timeout):
            self._engine.check()
            raise Unavailable(
                f"service {self.name} was not taken in within {self._timeout:g} s: {self.trouble}"
            )
        if self._error is not None:
            raise self._error
        chosen, shell = self._member.settings.service, self._shell
        if chosen and shell and shell.service and (text := overruled(chosen, shell.service)):
            log.warning("service %s: queue %s defines that %s", self.name, self.queue, text)

    def _state(self, state: str, reason: str) -> None:
        if state == SessionState.REMOVED:
            self._fail(QueueNotFound(reason))
        elif state == SessionState.STOPPED and not self._ready.is_set():
            self._fail(QueueStopped(reason))

    def _fail(self, error: RoQError) -> None:
        self._error = error
        self._ready.set()
        self._stop.set()

    def _engine_ended(self) -> None:
        if self._shell is not None:
            self._shell.close()
        self._fail(self._engine.end)


def settings_of(given: Mapping[str, float] | ServiceSettings | None) -> ServiceSettings:
    """What somebody chooses for a service, checked.

    Raises:
        InvalidRequest: there is no such setting, or it is out of bounds.
    """
    if given is None:
        return ServiceSettings()
    if isinstance(given, ServiceSettings):
        given = {each: getattr(given, each) for each in SETTINGS}
    return msgspec.structs.replace(settings_from(given, "settings of a service"), chosen=True)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise InvalidRequest(f"retry_on {text!r} is no regular expression: {error}") from None


def _resident() -> int:
    """Bytes of this process that are in memory; 0: the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    return 0
