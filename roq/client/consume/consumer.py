"""A consumer: a member of a group that shares the messages of a queue and acknowledges them."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import TracebackType
from typing import Final, Self

import msgspec

from roq.client.consume.holding import ConsumerStats, Holding
from roq.client.consume.message import (
    DONE,
    ConsumedBatch,
    ConsumedMessage,
    Settlement,
    message_at,
)
from roq.client.consume.seat import Membership
from roq.client.consume.shell import ConsumerShell
from roq.client.io import at_exit as farewell
from roq.client.io.bell import deadline_in
from roq.client.io.engine import Engine
from roq.client.io.naming import client_name
from roq.client.session.events import SessionState
from roq.client.session.shell import MonitorSession
from roq.errors import (
    Closed,
    InvalidRequest,
    LeaseLost,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
)
from roq.model import check_count, check_seconds, encode_topic, wait_seconds
from roq.protocol.attributes import NO_ATTRIBUTES, attributes_of
from roq.protocol.consuming import (
    ATTEMPTS_MAX,
    DELAY_SECONDS_MAX,
    EXTEND_SECONDS_MAX,
    LEASE_SECONDS_MAX,
    LEASE_SECONDS_MIN,
    MODES,
    GroupSettings,
)
from roq.read.message import MICROSECONDS

PREFETCH: Final = 4_096
"""Messages that a consumer holds at most,"""
PREFETCH_QUICK: Final = 32_768
"""and one that is quick: eight batches of 500 are done before their exchange has heard of it."""
PREFETCH_BYTES: Final = 16 * 1024 * 1024
CLOSE_SECONDS: Final = 5.0
EXPIRED: Final = "expired"
"""Why a message is a dead letter whose time to live was over."""
LOOK_SECONDS: Final = 1.0
"""Between two looks at everything, whatever may have failed to wake the user's thread."""

Bury = Callable[[ConsumedBatch, str], None]
"""Publishes messages as dead letters, with the reason, and returns when they are kept."""


class Consumer:
    """Takes messages of a group, one consumer's share of them. Belongs to one thread.

    Made by `Cluster.consumer`. What it takes it holds under leases, which are renewed in the
    background for as long as the process runs; what it has not acknowledged when it closes, dies or
    is silent for longer than a lease goes to another member.

        for message in consumer:
            handle(message.payload)

    acknowledges each message when the body of the loop has ended, and gives it back if that raises
    or leaves the loop: so call `message.ack()` before a `break`. With `receive` and `batches` the
    program acknowledges by itself.

    Args:
        engine: the client's I/O thread.
        managers: addresses of configuration managers.
        queue: name of the queue.
        group: name of the group.
        topic: a prefix of topics, or several; "" means all. The same for all members.
        tags: only messages that have one of these; none: all. The same for all members.
        mode: `shared`, `exclusive`, `keyed` or `priority`, see `GroupSettings`. The same for all
            members.
        start: where a group that is new begins: `earliest`, `latest`, or an aware time.
        prefetch, prefetch_bytes: what it holds at most, at all exchanges together; at least one
            message of each exchange. Without `prefetch` 4,096 messages, and up to 32,768 if it
            settles so many in a tenth of a second.
        lease: seconds of silence after which it loses what it holds; by the group's first member.
        attempts: how often a message is tried before it is a dead letter; 0: without an end;
            likewise.
        retry, retry_max: seconds before the second attempt, doubled for each further one up to the
            second figure; likewise.
        bury_expired: messages whose time to live is over go to the dead letters, with the reason
            `expired`; else they are done unseen, and counted; likewise.
        bury: takes dead letters.
        on_closed: called when no more will come.
        name: by which people find it; None: program, host and process id.
        timeout: seconds that the queue's exchanges have for taking it in.

    Raises:
        Unavailable: not all exchanges have answered in time; says which.
        QueueNotFound, QueueStopped: there is no such queue, or it does not run.
        InvalidRequest: the group is of another mode, or has other topics; a setting that cannot be.
    """

    def __init__(
        self,
        engine: Engine,
        managers: Sequence[str],
        queue: str,
        group: str,
        *,
        topic: str | Sequence[str] = "",
        tags: Sequence[str] = (),
        mode: str = MODES[0],
        start: str | datetime = "earliest",
        prefetch: int | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        lease: float = 30.0,
        attempts: int = 16,
        retry: float = 1.0,
        retry_max: float = 60.0,
        bury_expired: bool = False,
        bury: Bury,
        on_closed: Callable[[], None] | None = None,
        name: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.queue = queue
        self.group = group
        self.id = os.urandom(16)
        self._engine = engine
        self._burial = bury
        self._not_buried = ""
        """Why the last dead letter could not be written; empty: it was."""
        self._on_closed = on_closed
        self._closed = False
        self._ready = threading.Event()
        self._current: Holding | None = None
        self._lost_before = 0
        topics = [topic] if isinstance(topic, str) else list(topic)
        settings = _checked(
            GroupSettings(
                mode=mode, prefixes=tuple(map(encode_topic, topics)),
                tags=(attributes_of(None, tags, None) or NO_ATTRIBUTES).tags, lease_seconds=lease,
                attempts=attempts, retry_seconds=retry, retry_seconds_max=retry_max,
                bury_expired=bury_expired,
            )
        )  # fmt: skip
        start_us, latest = start_of(start)
        member = Membership(
            id=self.id, name=client_name(name), group=group, settings=settings, latest=latest,
            start_us=start_us,
            prefetch=check_count("prefetch", PREFETCH if prefetch is None else prefetch, 1),
            prefetch_quick=PREFETCH_QUICK if prefetch is None else 0,
            prefetch_bytes=check_count("prefetch_bytes", prefetch_bytes, 1),
        )  # fmt: skip
        self._shell = ConsumerShell(
            engine, member, on_joined=self._ready.set, on_refused=self._fail
        )
        self._session = MonitorSession(
            engine,
            managers,
            queue,
            client_id=self.id,
            role="consumer",
            on_topology=self._shell.topology,
            on_state=self._state,
        )
        engine.at_end(self._engine_ended)
        _opened.add(self)
        farewell.opened(self)
        try:
            self._session.start()
            self._wait(timeout)
        except BaseException:
            self.close(0.0)
            raise

    # --- receiving --------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None) -> ConsumedMessage | None:
        """The next message; None if none has come within `timeout` seconds (None: wait for ever).

        Raises:
            Closed: this consumer is closed.
            QueueNotFound: the queue was removed.
        """
        while True:
            current = self._fill(timeout)
            if current is None:
                return None
            index, current.begun = current.begun, current.begun + 1
            if current.is_open(index):
                return message_at(current, index, self._settle)

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """All messages from now on, each acknowledged when the loop comes back for the next one.

        Ends when the consumer is closed.
        """
        shell, settle = self._shell, self._settle
        settled, ranked = shell.done, shell.ranked
        while True:
            try:
                current = self._fill(None)
            except Closed:
                self._engine.check_process()
                return
            if current is None:
                continue
            batch, states = current.batch, current.states
            payloads, sequence = batch.payloads, batch.sequence
            size = len(payloads)
            # The body may take messages by `receive` as well: so each turn looks where that is.
            while self._current is current and (index := current.begun) < size:
                current.begun = index + 1
                if states[index]:
                    continue
                message = ConsumedMessage(
                    payloads[index], batch, sequence + index, current, index, settle
                )
                done = False
                try:
                    yield message
                    done = True
                finally:
                    if not done:
                        self._give_back(message)
                settled(current, index)
                if ranked:
                    break

    def batches(self, most: int = 500, wait: float | None = None) -> Iterator[ConsumedBatch]:
        """All messages from now on, by batches as they were published, to be acknowledged whole.

        Args:
            most: messages in one batch, at most.
            wait: seconds without a message after which the iteration ends; None: it goes on until
                the consumer is closed.

        Raises:
            InvalidRequest: no batch can be that small.
        """
        most = check_count("most", most, 1)
        if wait is not None:
            wait = wait_seconds(wait, what="wait")
        while True:
            try:
                current = self._fill(wait)
            except Closed:
                self._engine.check_process()
                return
            if current is None:
                return
            index, count = current.next_run(most)
            if count:
                yield ConsumedBatch(current, index, count, self._settle)

    def extend(
        self, message: ConsumedMessage | ConsumedBatch, seconds: float, timeout: float = 10.0
    ) -> datetime:
        """Hold a message or a batch for so long at least, also if nothing is heard of this process.

        Leases go on by themselves while the process runs. This is for a handler that may stand
        still for longer than a lease: in a library that lets no other thread run, on a machine that
        sleeps. If the process ends, or its connection does, the message is free all the same.

        Args:
            seconds: from now on, up to a day. Less than it has already changes nothing.
            timeout: seconds for its exchange to answer.

        Returns:
            Until when it is held, in UTC by this machine's clock.

        Raises:
            InvalidRequest: that is no such time, or the message is acknowledged or given back.
            LeaseLost: it is not this consumer's any more, or never was.
            Unavailable: its exchange has not answered in time; it is asked again while the time
                runs, so the message may be held all the same.
            Closed: this consumer is closed.
        """
        timeout = wait_seconds(timeout)
        self._engine.check_outside()
        future = self._extend(message, seconds)
        try:
            return self._until(future.result(timeout))
        except TimeoutError:
            future.cancel()
            raise self._not_extended(timeout) from None

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every acknowledgement so far is kept by its exchange.

        Raises:
            LeaseLost: messages were lost to other members since the last call; how many.
            Unavailable: not in time.
            Closed: this consumer is closed.
        """
        shell, timeout = self._shell, wait_seconds(timeout)
        self._engine.check_process()
        if not self._wait_for(lambda: not shell.unsettled, timeout):
            raise Unavailable(
                f"acknowledgements of {shell.unsettled} messages are not confirmed after "
                f"{timeout:g} s: {self.trouble or 'the exchanges are slow'}"
            )
        lost = shell.stats().lost - self._lost_before
        if lost:
            self._lost_before += lost
            raise LeaseLost(
                f"{lost} messages were taken from this consumer while it held them: what was done "
                "with them may be done twice"
            )

    def stats(self) -> ConsumerStats:
        """What has happened so far."""
        return self._shell.stats()

    @property
    def trouble(self) -> str:
        """Why something does not come though it should, or dead letters stay where they are; empty:
        it is a member at every exchange."""
        error = self._shell.error
        if error is not None:
            return str(error)
        session = self._session.facts()
        if not self._shell.joined and session.reason:
            return session.reason
        away = [f"exchange {name}: {why}" for name, why in self._shell.places()]
        return "; ".join([*away, *filter(None, [self._not_buried])])

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Give back what is not acknowledged, and leave the group; idempotent, from any thread.

        Args:
            timeout: seconds for acknowledgements to be confirmed.
        """
        if self._closed:
            return
        timeout = wait_seconds(timeout)
        self._engine.check_outside()
        self._closed = True
        farewell.closed(self)
        if self._engine.forked:
            return  # the sockets are the parent's
        self._engine.not_at_end(self._engine_ended)
        shell = self._shell
        with contextlib.suppress(Closed, Unavailable):
            self._engine.run_sync(shell.take_no_more)
            self._wait_for(lambda: not shell.unsettled, timeout)
            self._session.close()
            self._engine.run_sync(shell.close, CLOSE_SECONDS)
        shell.end(Closed("the consumer is closed"))
        if self._on_closed is not None:
            with contextlib.suppress(RoQError):  # all letters are kept: nothing is lost by that
                self._on_closed()

    @property
    def _left_open(self) -> bool:
        """Whether it is still to be closed."""
        return not self._closed and not self._engine.forked

    def _part(self, seconds: float) -> tuple[str, int]:
        """The program ends without `close`."""
        self.close(max(0.0, seconds))
        return self.queue, 0

    def __repr__(self) -> str:
        with contextlib.suppress(Exception):
            state = "closed" if self._shell.error is not None else "open"
            stats = self._shell.stats()
            return (
                f"<roq.Consumer of {self.queue}, group {self.group}: {state}, "
                f"{stats.received:,} received, {stats.acknowledged:,} acknowledged>"
            )
        return "<roq.Consumer>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        """What the user says of messages."""
        if verdict.dead and not holding.is_lost(index, count) and self._shell.error is None:
            self._engine.check_process()
            self._bury(ConsumedBatch(holding, index, count, self._shell.settle), verdict.reason)
            verdict = DONE
        self._shell.settle(holding, index, count, verdict)

    def _bury(self, batch: ConsumedBatch, reason: str) -> None:
        """Publish dead letters; raises `RoQError` if that cannot be, and it is told and counted."""
        try:
            self._burial(batch, reason)
        except RoQError as error:
            self._shell.stats().unburied += len(batch)
            self._not_buried = f"no dead letter could be written: {error}"
            raise
        self._not_buried = ""

    # --- for event loops --------------------------------------------------------------------------

    def _on_ready(self, hook: Callable[[], None] | None) -> None:
        """Have `hook` called in the I/O thread whenever `_take` may have something."""
        self._shell.on_ready = hook

    def _quick(self, most: int) -> None:
        """Have it hold up to so many if it settles them in a tenth of a second."""
        self._shell.quick(most)

    def _take(self) -> Holding | None:
        """What is there; never waits. Dead letters are for the caller to bury.

        Raises:
            RoQError: as `receive`, once everything that had come is taken.
        """
        shell = self._shell
        self._engine.check_process()
        holding = shell.take()
        if holding is not None:
            return holding
        if shell.error is not None:
            raise shell.error
        return None

    def _extend(self, message: ConsumedMessage | ConsumedBatch, seconds: float) -> Future[float]:
        """As `extend`; never waits."""
        seconds = check_seconds("seconds", seconds, 0, EXTEND_SECONDS_MAX, above=True)
        return self._shell.extend(*message._place(), seconds)  # noqa: SLF001 - made for this

    def _until(self, until: float) -> datetime:
        """A time by the clock of the loop, as people tell it."""
        return datetime.now(UTC) + timedelta(seconds=until - self._engine.reactor.now())

    def _not_extended(self, timeout: float) -> Unavailable:
        why = self.trouble or "its exchange is slow"
        return Unavailable(f"more time for a message was not granted within {timeout:g} s: {why}")

    def _dead(self, holding: Holding) -> str:
        """Why these messages are dead letters; empty: they are not."""
        if holding.overdue:
            return EXPIRED
        tried = 0 < self._shell.attempts < holding.attempt
        return f"tried {holding.attempt - 1} times" if tried else ""

    def _bury_all(self, holding: Holding, reason: str) -> None:
        """These messages go to the dead letters; if that cannot be, they come again later."""
        while (run := holding.next_run(len(holding.batch)))[1]:
            batch = ConsumedBatch(holding, *run, self._shell.settle)
            with contextlib.suppress(LeaseLost):
                try:
                    self._bury(batch, reason)
                except RoQError as error:
                    batch.nack(reason=f"no dead letter could be written: {error}"[:200])
                else:
                    batch.ack()

    # --- the user's side --------------------------------------------------------------------------

    def _fill(self, timeout: float | None) -> Holding | None:
        """What is being read, with something left of it; None when the time is over."""
        current = self._current
        if current is None or current.begun >= len(current.batch) or self._shell.put_aside(current):
            current = self._current = self._next(timeout)
        return current

    def _next(self, timeout: float | None) -> Holding | None:
        """The next holding that is the user's; None when the time is over."""
        shell, deadline = self._shell, deadline_in(timeout)
        while True:
            holding = self._take()
            if holding is not None:
                why = self._dead(holding)
                if not why:
                    return holding
                self._bury_all(holding, why)
                continue
            if not self._wait_for(lambda: shell.ready, deadline - monotonic()):
                return None

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until this is so; whether it is."""
        shell, deadline = self._shell, monotonic() + seconds
        if condition():
            return True
        self._engine.check_outside()
        with shell.condition:
            shell.waiting += 1
            try:
                while not condition():
                    remaining = deadline - monotonic()
                    if remaining <= 0:
                        return False
                    shell.condition.wait(min(remaining, LOOK_SECONDS))
            finally:
                shell.waiting -= 1
        return True

    def _give_back(self, message: ConsumedMessage) -> None:
        with contextlib.suppress(RoQError):  # lost, or closed: then it goes to another one anyway
            message.nack(reason="its handler did not end")

    # --- the start --------------------------------------------------------------------------------

    def _wait(self, timeout: float) -> None:
        if not self._ready.wait(timeout):
            self._engine.check()
            raise Unavailable(
                f"group {self.group} of queue {self.queue} was not joined within {timeout:g} s: "
                f"{self.trouble}. Trying again may help"
            )
        if self._shell.error is not None:
            raise self._shell.error

    def _state(self, state: str, reason: str) -> None:
        if state == SessionState.REMOVED:
            self._fail(QueueNotFound(reason))
        elif state == SessionState.STOPPED and not self._shell.joined:
            self._fail(QueueStopped(reason))

    def _fail(self, error: RoQError) -> None:
        self._shell.end(error)
        self._ready.set()

    def _engine_ended(self) -> None:
        self._shell.close()
        self._fail(self._engine.end)


_opened: weakref.WeakSet[Consumer] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child: what was held is its parent's, and the next call is refused."""
    for consumer in _opened:
        consumer._current = None  # noqa: SLF001 - of this module
        consumer._shell.arrived.clear()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)


def _checked(settings: GroupSettings) -> GroupSettings:
    if settings.mode not in MODES:
        raise InvalidRequest(f"mode {settings.mode!r}: use one of {', '.join(MODES)}")
    lease, delays = settings.lease_seconds, (0.0, DELAY_SECONDS_MAX)
    settings = msgspec.structs.replace(
        settings,
        lease_seconds=check_seconds("lease", lease, LEASE_SECONDS_MIN, LEASE_SECONDS_MAX),
        retry_seconds=check_seconds("retry", settings.retry_seconds, *delays),
        retry_seconds_max=check_seconds("retry_max", settings.retry_seconds_max, *delays),
        attempts=check_count("attempts", settings.attempts, 0, ATTEMPTS_MAX),
    )
    try:
        return msgspec.convert(msgspec.to_builtins(settings), GroupSettings)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"settings of a consumer group: {error}") from None


def start_of(option: str | datetime) -> tuple[int, bool]:
    """What a place in time is on the wire: µs UTC, and whether it is the end instead.

    Raises:
        InvalidRequest: it is none.
    """
    match option:
        case "earliest":
            return 0, False
        case "latest":
            return 0, True
        case datetime() if option.tzinfo is not None:
            return max(0, int(option.timestamp() * MICROSECONDS)), False
        case _:
            raise InvalidRequest(
                f"{option!r} is no place to begin: use 'earliest', 'latest' or a datetime with a "
                "time zone"
            )
