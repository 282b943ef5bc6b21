"""Connections, timers and threads around a `ProducerMachine`: tells decisions, answers checks.

The machine belongs to the client's I/O thread. Checks have a thread of their own, so that one that
takes long, or never ends, holds up nothing but other checks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from roq.client.io.engine import Engine
from roq.client.io.queue_connections import QueueConnections
from roq.client.session.events import SessionState
from roq.client.session.shell import MonitorSession
from roq.client.transact.machine import Asked, EndTold, ProducerMachine
from roq.errors import Closed, QueueNotFound, RemoteProtocolError, RoQError, Unavailable
from roq.model import LogId, wait_seconds
from roq.protocol.control import Topology
from roq.protocol.delayed import MESSAGE_ID_BYTES
from roq.protocol.transaction import Decision, Fate
from roq.runtime.interfaces import Timer
from roq.runtime.structured_logs import RateLimited

TICK_SECONDS: Final = 0.25
CHECKS_MAX: Final = 100
"""Checks that wait for a slow one; more are left out, and their exchanges ask again."""
DECIDED_MAX: Final = 10_000
"""Decisions that are remembered, for an exchange that asks before it was told, or asks again."""

log = logging.getLogger(__name__)


class ProducerShell:
    """One producer's connections to the exchanges of its queue.

    Args:
        engine: the client's threads.
        managers: addresses of configuration managers.
        queue: name of the queue.
        group: of producers.
        publisher: under which it prepares.
        check: answers what has become of a transaction; called in a thread of its own, may raise.

    Attributes:
        deciding: held by who decides a transaction, so that it is decided once.
        check_process: raises `Closed` in a forked child, in which nothing is told.
    """

    def __init__(
        self,
        engine: Engine,
        managers: Sequence[str],
        queue: str,
        group: str,
        publisher: bytes,
        check: Callable[[Asked], Decision],
    ) -> None:
        self.queue = queue
        self.deciding = threading.RLock()  # a signal handler may decide, too
        self._engine, self.check_process = engine, engine.check_process
        self._machine = ProducerMachine(group, publisher)
        self._check = check
        self._connections = QueueConnections(
            engine, self._machine, self._machine.places,
            on_gone=lambda name: self._settle(name, self._machine.leave(name)),
            on_answers=self._take,
        )  # fmt: skip
        self._perform = self._connections.perform
        self._waiting: dict[tuple[LogId, bytes], Future[Fate]] = {}
        self._busy: set[bytes] = set()
        """Whose local work goes on in this process."""
        self._decided: OrderedDict[bytes, tuple[Decision, LogId | None]] = OrderedDict()
        """With the log that has acknowledged it."""
        self._checks: SimpleQueue[Asked | None] = SimpleQueue()
        self._checking: threading.Thread | None = None
        self._known = threading.Event()
        self._timer: Timer | None = None
        self._error: RoQError | None = None
        self._limited = RateLimited(log)
        self._session = MonitorSession(
            engine, managers, queue, client_id=os.urandom(16), role="consumer",
            on_topology=self._topology, on_state=self._state,
        )  # fmt: skip
        engine.at_end(self._engine_ended)
        self._session.start()

    # --- any thread -------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Which exchanges cannot be told, and why; empty: all can."""
        return self._machine.trouble or self._session.facts().reason

    def need_exchanges(self, timeout: float) -> None:
        """Wait until the exchanges of the queue are known.

        Raises:
            Unavailable: not in time.
            RoQError: the queue is gone, or this is closed.
        """
        known = self._known.wait(wait_seconds(timeout))
        if self._error is not None:
            raise self._error
        if not known:
            raise Unavailable(f"queue {self.queue} is not known yet: {self.trouble}")

    def begin(self) -> bytes:
        """The id of a new transaction. Until it is decided, checks are told that its work goes
        on."""
        transaction = os.urandom(MESSAGE_ID_BYTES)
        self._busy.add(transaction)
        return transaction

    def leave_open(self, transaction: bytes) -> None:
        """Nobody here decides it any more; checks are."""
        self._busy.discard(transaction)

    def decide(self, place: LogId, transaction: bytes, decision: Decision) -> Future[Fate]:
        """Have this told to the exchange that has it, again and again until it is answered."""
        future: Future[Fate] = Future()
        future.set_running_or_notify_cancel()  # whoever waits for it may give up, and it goes on
        self._note(transaction, decision, place)

        def tell() -> None:
            if self._error is not None:
                future.set_exception(self._error)
                return
            self._waiting[place, transaction] = future
            asks, ended = self._machine.decide(
                place, transaction, decision, self._engine.reactor.now()
            )
            self._perform(asks)
            self._settle(place, ended)

        self._engine.call_soon(tell)
        return future

    def forget(self, transaction: bytes) -> None:
        """It was not prepared, as far as is known; should an exchange have it, that is told so."""
        self._note(transaction, Decision.ROLLBACK, None)

    def close(self) -> None:
        """Tell nothing more, and be asked nothing more; idempotent."""
        self._engine.not_at_end(self._engine_ended)
        with suppress(Closed, Unavailable):
            self._session.close()
            self._engine.run_sync(lambda: self._end(Closed("the producer is closed")))

    def _note(self, transaction: bytes, decision: Decision, place: LogId | None) -> None:
        self._decided[transaction] = decision, place
        self._busy.discard(transaction)
        with suppress(KeyError):  # another thread may have done so
            if len(self._decided) > DECIDED_MAX:
                self._decided.popitem(last=False)

    # --- checks -----------------------------------------------------------------------------------

    def _answer(self, asked: Asked) -> None:
        """What is known here is said at once; for the rest the program is asked."""
        transaction = asked.head.transaction
        busy = transaction in self._busy  # looked at first: who decides it notes that before
        known = self._decided.get(transaction)
        if known is not None:
            decision, place = known
            other = place not in {None, asked.log}  # it was sent there before, and then elsewhere
            self._tell(asked, Decision.ROLLBACK if other else decision)
        elif busy:
            self._tell(asked, Decision.BUSY)
        elif self._checks.qsize() < CHECKS_MAX:
            if self._checking is None:
                self._checking = threading.Thread(
                    target=self._run_checks, name="roq-checks", daemon=True
                )
                self._checking.start()
            self._checks.put(asked)

    def _run_checks(self) -> None:
        while (asked := self._checks.get()) is not None and self._error is None:
            try:
                decision = self._check(asked)
            except BaseException:
                log.exception(
                    "the check of transaction %s has raised, and counts as unknown",
                    asked.head.transaction.hex(),
                )
                decision = Decision.UNKNOWN
            try:
                self._engine.call_soon(lambda asked=asked, it=decision: self._tell(asked, it))  # type: ignore[misc]
            except Closed:
                return

    def _tell(self, asked: Asked, decision: Decision) -> None:
        """I/O thread."""
        if self._error is not None:
            return
        asks, _ = self._machine.decide(
            asked.log, asked.head.transaction, decision, self._engine.reactor.now()
        )
        self._perform(asks)

    # --- the I/O thread ---------------------------------------------------------------------------

    def _topology(self, topology: Topology) -> None:
        if self._error is not None:
            return
        if self._timer is None:
            self._tick()
        self._connections.use(topology)
        self._known.set()

    def _take(self, name: LogId, answers: list[list[bytes]]) -> None:
        now = self._engine.reactor.now()
        for parts in answers:
            try:
                asks, events = self._machine.take(name, parts, now)
            except RemoteProtocolError as error:
                self._limited.warning("malformed", now, "an exchange's message: %s", error)
                continue
            self._perform(asks)
            self._settle(name, [each for each in events if isinstance(each, EndTold)])
            for each in events:
                if isinstance(each, Asked):
                    self._answer(each)

    def _settle(self, place: LogId, ended: list[EndTold]) -> None:
        for each in ended:
            future = self._waiting.pop((place, each.transaction), None)
            if future is not None:
                future.set_result(each.fate)

    def _tick(self) -> None:
        if self._error is not None:
            return
        self._perform(self._machine.tick(self._engine.reactor.now()))
        self._timer = self._engine.reactor.call_later(TICK_SECONDS, self._tick)

    def _state(self, state: str, reason: str) -> None:
        if state == SessionState.REMOVED:
            self._end(QueueNotFound(reason))

    def _engine_ended(self) -> None:
        self._end(self._engine.end)

    def _end(self, error: RoQError) -> None:
        if self._error is not None:
            return
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        self._connections.close(self._machine.farewells())
        self._checks.put(None)
        self._known.set()
        waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            future.set_exception(error)
