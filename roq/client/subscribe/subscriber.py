"""A subscriber: gets everything that matches its topics, in order per (publisher, topic)."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from time import monotonic
from typing import Final, Self

from roq.client.io import at_exit as farewell
from roq.client.io.bell import deadline_in
from roq.client.io.engine import Engine
from roq.client.session.events import ClientState, SessionState
from roq.client.session.shell import MonitorSession
from roq.client.session.status import (
    QUIET_SECONDS,
    Status,
    SubscriberFacts,
    subscriber_status,
)
from roq.client.session.status_reporter import OnState, StatusReporter
from roq.client.subscribe.machine import ReceptionStats, Starts
from roq.client.subscribe.receive_queue import BUFFER_BYTES, ReceiveQueue
from roq.client.subscribe.shell import SubscriberShell
from roq.errors import (
    Closed,
    InvalidRequest,
    NotKept,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
)
from roq.model import check_seconds, encode_topic
from roq.protocol.channel import PREFIXES_MAX
from roq.protocol.control import Topology
from roq.read.events import BelowFloor, From, Start
from roq.read.message import MICROSECONDS, Batch, Gap, Message
from roq.timing import AWAY_SECONDS

StartOption = str | int | datetime | Mapping[str, int]
"""`latest`, `earliest`, an offset, offsets by exchange name (`{"x1": 5}`), or an aware time."""

CLOSE_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 1.0
"""Between two looks at everything, whatever may have failed to wake the user's thread."""


class Subscriber:
    """Receives from all exchanges of a queue. Belongs to one thread.

    Made by `Cluster.subscriber`. It is in force when the constructor returns: everything that is
    published afterwards under one of its topics arrives, once and in order per (publisher, topic).

    Args:
        engine: the client's I/O thread.
        managers: addresses of configuration managers.
        queue: name of the queue.
        topic: a prefix of topics, or several; "" means all.
        start: see `StartOption`; exchanges that appear later are read from their beginning.
        timeout: seconds that the queue's exchanges have for confirming.
        below_floor: if `start` is an offset that is not kept any more: `earliest` begins with the
            oldest message that is, `latest` with what comes now, and both tell what was passed
            over as lost; `error` raises. The same for an offset beyond the end: it is one of
            another log, so nothing of this one was read.
        on_gap: called with a `Gap` when something was lost, in the thread that receives.
        on_state: called with a `StateChange` whenever the subscriber stands differently, in a
            thread for such calls; what it raises is logged.
        buffer_bytes: memory of what may wait for a slow user; beyond it the exchanges' memory is
            the buffer.
        away_seconds: of a durable queue, for so long messages wait for older ones that may be in
            the log of an exchange that does not answer: its host is started again, say; or at one
            of which the monitor, which is silent, has not told yet. Then these
            are given up, reported as lost, and can still be read from the log once it is back.
        repair, check_duplicates: off only in tests that prove what these are good for.

    Raises:
        Unavailable: not all exchanges have confirmed in time; says which.
        QueueNotFound, QueueStopped: there is no such queue, or it does not run.
        InvalidName: a topic that cannot be.
        InvalidRequest: too many topics, or an unknown start.
        NotKept: `start` is an offset that is not kept any more, or beyond the end, and
            `below_floor` is `error`.
    """

    def __init__(
        self,
        engine: Engine,
        managers: Sequence[str],
        queue: str,
        topic: str | Sequence[str] = "",
        *,
        start: StartOption = "latest",
        below_floor: str = "earliest",
        timeout: float = 10.0,
        on_gap: Callable[[Gap], None] | None = None,
        on_state: OnState | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        away_seconds: float = AWAY_SECONDS,
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.queue = queue
        self.id = os.urandom(16)
        self._engine = engine
        self._on_gap = on_gap
        self._closed = False
        self._error: RoQError | None = None
        self._ready = threading.Event()
        self._rest: Iterator[Message] = iter(())
        self._receive_queue = ReceiveQueue(bytes_max=buffer_bytes)
        self._items = self._receive_queue.items
        _opened.add(self)
        self._shell = SubscriberShell(
            engine,
            self.id,
            _prefixes(topic),
            _start(start),
            self._receive_queue,
            on_confirmed=self._confirmed,
            on_refused=self._refused,
            below_floor=_below_floor(below_floor),
            on_news=self._news,
            on_doubt=self._doubt,
            away_seconds=check_seconds("away_seconds", away_seconds),
            repair=repair,
            check_duplicates=check_duplicates,
        )
        self._session = MonitorSession(
            engine,
            managers,
            queue,
            client_id=self.id,
            role="subscriber",
            on_topology=self._topology,
            on_state=self._state,
            alive=self._shell.alive,
        )
        self._reporter = StatusReporter(
            engine, f"subscriber of queue {queue}", self._status, self._shell.losses, on_state
        )
        engine.at_end(self._engine_ended)
        farewell.opened(self)
        try:
            self._session.start()
            self._reporter.start()
            self._wait(timeout)
        except BaseException:
            self.close()
            raise

    # --- receiving --------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none has come within `timeout` seconds (None: wait for ever).

        Raises:
            Closed: this subscriber is closed.
            QueueNotFound: the queue was removed, and everything that had come is read.
        """
        while True:
            for message in self._rest:  # not `next`: a signal handler could raise after the call
                return message
            if not self._fill(timeout):
                return None
            self._rest = self._take_messages()

    def __iter__(self) -> Iterator[Message]:
        """All messages from now on; ends when the subscriber is closed."""
        return chain.from_iterable(self._message_runs())

    def batches(self) -> Iterator[Batch]:
        """All messages from now on, by batches; ends when the subscriber is closed."""
        rest = remaining(self._rest)
        if rest is not None:
            yield rest
        items = self._items
        while self._fill_or_end():
            while items and isinstance(batch := items[0], Batch):
                del items[0]
                yield batch

    def stats(self) -> ReceptionStats:
        """What has happened so far.

        Raises:
            Closed: the connection to the cluster is closed.
        """
        return self._engine.run_sync(self._shell.stats)

    def close(self) -> None:
        """Stop receiving; idempotent, and from any thread."""
        if self._closed:
            return
        self._engine.check_outside()
        self._closed = True
        farewell.closed(self)
        if self._engine.forked:
            return  # the sockets are the parent's
        self._engine.not_at_end(self._engine_ended)
        # An engine that has ended has closed everything already.
        with contextlib.suppress(Closed, Unavailable):
            self._session.close()
            self._engine.run_sync(self._shell.close, CLOSE_SECONDS)
        self._error = self._error or Closed("the subscriber is closed")
        self._shell.end(Closed("the subscriber is closed"))
        self._reporter.close(str(self._error))

    @property
    def _left_open(self) -> bool:
        """Whether it is still to be closed."""
        return not self._closed and not self._engine.forked

    def _part(self, seconds: float) -> tuple[str, int]:  # noqa: ARG002 - it has nothing to flush
        """The program ends without `close`."""
        return self.queue, 0

    # --- how it stands ----------------------------------------------------------------------------

    @property
    def state(self) -> ClientState:
        """How this subscriber stands at this moment; from any thread."""
        return self._reporter.status.state

    @property
    def trouble(self) -> str:
        """Why nothing flows though it should, or what is not as it should be; empty: all is well.

        From any thread.
        """
        return self._reporter.status.reason

    def _status(self, late: float) -> Status:
        session = self._session.facts()
        facts = self._shell.facts(self.queue, session)
        if facts is None:
            late = max(late, QUIET_SECONDS)
        ended = str(self._error) if self._error is not None else ""
        return subscriber_status(
            replace(facts or SubscriberFacts(self.queue, session), late=late, ended=ended)
        )

    def __repr__(self) -> str:
        # From the debugger, from a log line, half made: it neither raises nor waits for the lock.
        with contextlib.suppress(Exception):
            if self._closed or self._error is not None:
                state = "closed"
            else:
                state = "subscribed" if self._shell.confirmed else "connecting"
            counts = f"{len(self._items):,} batches to take, {self._shell.losses().messages:,} lost"
            return f"<roq.Subscriber of {self.queue}: {state}, {counts}>"
        return "<roq.Subscriber>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for event loops --------------------------------------------------------------------------

    def _on_ready(self, hook: Callable[[], None] | None) -> None:
        """Have `hook` called in the I/O thread whenever `_take` may have something."""
        self._receive_queue.on_ready = hook

    def _take(self, most: int) -> list[Batch]:
        """Up to `most` batches that are there; never waits.

        Raises:
            RoQError: as `receive`, once everything that had come is taken.
        """
        items, taken = self._items, list[Batch]()
        self._engine.check_process()
        while items and len(taken) < most:
            item = items[0]
            if isinstance(item, Batch):
                taken.append(item)
                del items[0]
            elif taken:
                break
            else:
                self._report(item)
        if not items:
            self._shell.emptied()
        return taken

    # --- the user's side --------------------------------------------------------------------------

    def _message_runs(self) -> Iterator[Iterator[Message]]:
        rest: Iterator[Message] | None = None
        # Another one: `receive` was called in the loop, and has taken the first of a batch.
        while self._rest is not rest or self._fill_or_end():
            if self._rest is rest:
                self._rest = self._take_messages()
            rest = self._rest
            yield rest

    def _take_messages(self) -> Iterator[Message]:
        batch = self._items[0]
        assert isinstance(batch, Batch)  # noqa: S101 - after `_fill`
        messages = batch.messages()
        del self._items[0]
        return messages

    def _fill_or_end(self) -> bool:
        """Wait for a batch; False if the subscriber is closed."""
        try:
            return self._fill(None)
        except Closed:
            self._engine.check_process()
            return False

    def _fill(self, timeout: float | None) -> bool:
        """Wait until a batch is the first of the items; False when the time is over."""
        items, shell = self._items, self._shell
        deadline = deadline_in(timeout)
        while True:
            while items:
                item = items[0]
                if isinstance(item, Batch):
                    return True
                self._report(item)
            self._engine.check_process()
            if shell.read():
                continue
            remaining_seconds = deadline - monotonic()
            if remaining_seconds <= 0:
                return False
            shell.wait(min(remaining_seconds, WAIT_SECONDS))

    def _report(self, item: Gap | RoQError) -> None:
        """The first of the items is no batch."""
        if isinstance(item, RoQError):
            raise item
        del self._items[0]
        if self._on_gap is not None:
            self._on_gap(item)

    # --- the start --------------------------------------------------------------------------------

    def _wait(self, timeout: float) -> None:
        if not self._ready.wait(timeout):
            self._engine.check()
            trouble = self._reporter.status.reason
            raise Unavailable(
                f"no subscription to queue {self.queue} within {timeout:g} s: {trouble}. "
                "Trying again may help"
            )
        if self._error is not None:
            raise self._error

    def _confirmed(self) -> None:
        self._ready.set()
        self._reporter.look_soon()

    def _refused(self, reason: str) -> None:
        self._fail(
            NotKept(
                f"no subscription to queue {self.queue}: {reason}. Begin at 'earliest' or at a "
                "later offset, or say what is to be done: below_floor='earliest' or 'latest'"
            )
        )

    def _topology(self, topology: Topology) -> None:
        self._shell.topology(topology)

    def _news(self) -> None:
        self._session.tell_alive()

    def _doubt(self) -> None:
        self._session.ask_topology()

    def _state(self, state: str, reason: str) -> None:
        if state == SessionState.REMOVED:
            self._fail(QueueNotFound(reason))
        elif state == SessionState.STOPPED and not self._shell.confirmed:
            self._fail(QueueStopped(reason))
        self._reporter.look_soon()

    def _fail(self, error: RoQError) -> None:
        self._error = error
        if not self._ready.is_set():
            self._ready.set()
        else:
            self._shell.end(error)

    def _engine_ended(self) -> None:
        self._shell.close()
        self._fail(self._engine.end)
        self._reporter.close(str(self._engine.end))


def remaining(rest: Iterator[Message]) -> Batch | None:
    """What is left of a batch whose messages were being read one by one; None: nothing."""
    messages = list(rest)
    if not messages:
        return None
    batch = messages[0].batch
    return Batch(
        [message.payload for message in messages],
        batch.topic,
        batch.publisher,
        messages[0].sequence,
        batch.created_us,
        batch.size,
        batch.attributes,
    )


_opened: weakref.WeakSet[Subscriber] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child: what has come is its parent's, and the next call is refused."""
    for subscriber in _opened:
        # To its end, and not another one: a loop that was begun stands in this one.
        deque(subscriber._rest, maxlen=0)  # noqa: SLF001 - of this module
        subscriber._items.clear()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)


def _prefixes(topic: str | Sequence[str]) -> list[bytes]:
    topics = [topic] if isinstance(topic, str) else list(topic)
    if not 1 <= len(topics) <= PREFIXES_MAX:
        raise InvalidRequest(
            f"a subscriber has 1 to {PREFIXES_MAX} topics, not {len(topics)}; "
            "a topic is a prefix, so a shorter one matches more"
        )
    return [encode_topic(prefix) for prefix in topics]


def _start(option: StartOption) -> Starts:
    match option:
        case "latest":
            return Start(From.LATEST)
        case "earliest":
            return Start(From.EARLIEST)
        case datetime() if option.tzinfo is not None:
            return Start(From.TIME, max(0, int(option.timestamp() * MICROSECONDS)))
        case int() if _is_offset(option):
            return Start(From.OFFSET, option)
        case Mapping() if all(map(_is_offset, option.values())):
            return {_number(name): offset for name, offset in option.items()}
        case _:
            raise InvalidRequest(
                f"start {option!r}: use 'latest', 'earliest', an offset, offsets by exchange name "
                "({'x1': 5}) or a datetime with a time zone"
            )


def _below_floor(policy: str) -> BelowFloor:
    try:
        return BelowFloor(policy)
    except ValueError:
        raise InvalidRequest(
            f"below_floor {policy!r}: use {', '.join(repr(str(each)) for each in BelowFloor)}"
        ) from None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(name: str) -> int:
    if name[:1] != "x" or not name[1:].isdecimal():
        raise InvalidRequest(f"{name!r} is no exchange name: they look like x1")
    return int(name[1:])
