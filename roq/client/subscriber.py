"""A subscriber: gets everything that matches its topics, in order per (publisher, topic)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import TracebackType
from typing import Final, Self

from roq.client.engine import Engine
from roq.client.feed import Feed
from roq.client.handoff import BUFFER_BYTES, Handoff
from roq.client.message import MICROSECONDS, Batch, Gap, Message
from roq.client.reading import From, Start
from roq.client.reception import ReceptionStats, Starts
from roq.client.session import MonitorSession
from roq.client.session_machine import SessionState
from roq.errors import Closed, InvalidRequest, QueueNotFound, QueueStopped, RoQError, Unavailable
from roq.model import encode_topic
from roq.protocol.channel import PREFIXES_MAX
from roq.protocol.control import Topology

StartOption = str | int | datetime | Mapping[str, int]
"""`latest`, `earliest`, an offset, offsets by exchange name (`{"x1": 5}`), or an aware time."""

CLOSE_SECONDS: Final = 5.0


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
        on_gap: called with a `Gap` when something was lost, in the thread that receives.
        translate: applied to each address before it is connected to.
        buffer_bytes: what may wait for a slow user; beyond it the exchanges' memory is the buffer.
        repair, check_duplicates: off only in tests that prove what these are good for.

    Raises:
        Unavailable: not all exchanges have confirmed in time; says which.
        QueueNotFound, QueueStopped: there is no such queue, or it does not run.
        InvalidName: a topic that cannot be.
        InvalidRequest: too many topics, or an unknown start.
    """

    def __init__(
        self,
        engine: Engine,
        managers: Sequence[str],
        queue: str,
        topic: str | Sequence[str] = "",
        *,
        start: StartOption = "latest",
        timeout: float = 10.0,
        on_gap: Callable[[Gap], None] | None = None,
        translate: Callable[[str], str] | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.queue = queue
        self.id = os.urandom(16)
        self._engine = engine
        self._on_gap = on_gap
        self._closed = False
        self._error: RoQError | None = None
        self._reason = ""
        self._ready = threading.Event()
        self._batches: deque[Batch] = deque()
        self._rest: Iterator[Message] = iter(())
        self._handoff = Handoff(self._resume, bytes_max=buffer_bytes)
        self._feed = Feed(
            engine,
            _prefixes(topic),
            _start(start),
            self._handoff,
            translate=translate,
            on_confirmed=self._ready.set,
            on_news=self._news,
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
            alive=self._feed.alive,
            translate=translate,
        )
        engine.at_end(self._engine_ended)
        self._session.start()
        try:
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
        message = next(self._rest, None)
        while message is None:
            batch = self._next(timeout)
            if batch is None:
                return None
            self._rest = batch.messages()
            message = next(self._rest, None)
        return message

    def __iter__(self) -> Iterator[Message]:
        """All messages from now on; ends when the subscriber is closed."""
        return chain.from_iterable(self._message_runs())

    def batches(self) -> Iterator[Batch]:
        """All messages from now on, by batches; ends when the subscriber is closed."""
        rest = remaining(self._rest)
        if rest is not None:
            yield rest
        batches = self._batches
        while True:
            while batches:
                yield batches.popleft()
            if not self._fill_or_end():
                return

    def stats(self) -> ReceptionStats:
        """What has happened so far.

        Raises:
            Closed: the connection to the cluster is closed.
        """
        return self._engine.run_sync(self._feed.stats)

    def close(self) -> None:
        """Stop receiving; idempotent, and from any thread."""
        if self._closed:
            return
        self._closed = True
        # An engine that has ended has closed everything already.
        with contextlib.suppress(Closed, Unavailable):
            self._session.close()
            self._engine.run_sync(self._feed.close, CLOSE_SECONDS)
        self._handoff.end(Closed("the subscriber is closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- for event loops --------------------------------------------------------------------------

    def _on_ready(self, hook: Callable[[], None] | None) -> None:
        """Have `hook` called in the I/O thread whenever `_take` may have something."""
        self._handoff.on_ready = hook

    def _take(self, most: int) -> list[Batch]:
        """Up to `most` batches that are there; never waits.

        Raises:
            RoQError: as `receive`, once everything that had come is taken.
        """
        try:
            while len(self._batches) < most and self._fill(0):
                continue
        except RoQError:
            if not self._batches:
                raise
        return [self._batches.popleft() for _ in range(min(most, len(self._batches)))]

    # --- the user's side --------------------------------------------------------------------------

    def _message_runs(self) -> Iterator[Iterator[Message]]:
        yield self._rest
        batches = self._batches
        while True:
            while batches:
                self._rest = batches.popleft().messages()
                yield self._rest
            if not self._fill_or_end():
                return

    def _next(self, timeout: float | None) -> Batch | None:
        if self._batches or self._fill(timeout):
            return self._batches.popleft()
        return None

    def _fill_or_end(self) -> bool:
        """Wait for batches; False if the subscriber is closed."""
        self._engine.check_process()
        try:
            return self._fill(None)
        except Closed:
            return False

    def _fill(self, timeout: float | None) -> bool:
        """Wait for batches; False when the time is over."""
        while True:
            if self._error is not None:
                raise self._error
            self._engine.check_process()
            item = self._handoff.take(timeout)
            if item is None:
                return False
            if isinstance(item, list):
                self._batches.extend(item)
                return True
            if isinstance(item, Gap):
                if self._on_gap is not None:
                    self._on_gap(item)
            else:
                self._error = item

    def _resume(self) -> None:
        with contextlib.suppress(Closed):
            self._engine.call_soon(self._feed.resume)

    # --- the start --------------------------------------------------------------------------------

    def _wait(self, timeout: float) -> None:
        if not self._ready.wait(timeout):
            self._engine.check()
            trouble = self._reason or self._engine.run_sync(self._feed.trouble)
            raise Unavailable(
                f"no subscription to queue {self.queue} within {timeout:g} s: {trouble}. "
                "Trying again may help"
            )
        if self._error is not None:
            raise self._error

    def _topology(self, topology: Topology) -> None:
        self._reason = ""
        self._feed.topology(topology)

    def _news(self) -> None:
        self._session.tell_alive()

    def _state(self, state: str, reason: str) -> None:
        match state:
            case SessionState.REMOVED:
                self._fail(QueueNotFound(reason))
            case SessionState.STOPPED if not self._feed.confirmed:
                self._fail(QueueStopped(reason))
            case SessionState.UNAVAILABLE:
                self._reason = reason
            case _:
                self._reason = ""

    def _fail(self, error: RoQError) -> None:
        if not self._ready.is_set():
            self._error = error
            self._ready.set()
        else:
            self._handoff.end(error)

    def _engine_ended(self) -> None:
        self._feed.close()
        self._fail(Closed("the connection to the cluster is closed"))


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
    )


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
            return Start(From.TIME, int(option.timestamp() * MICROSECONDS))
        case int() if option >= 0:
            return Start(From.OFFSET, option)
        case Mapping():
            return {_number(name): offset for name, offset in option.items()}
        case _:
            raise InvalidRequest(
                f"start {option!r}: use 'latest', 'earliest', an offset, offsets by exchange name "
                "({'x1': 5}) or a datetime with a time zone"
            )


def _number(name: str) -> int:
    if name[:1] != "x" or not name[1:].isdecimal():
        raise InvalidRequest(f"{name!r} is no exchange name: they look like x1")
    return int(name[1:])
