"""The synchronous publisher: `publish()` appends, batches fill up, leave and are accounted for."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Final, Self

from roq.client.io import at_exit as farewell
from roq.client.io.engine import Engine
from roq.client.io.naming import client_name
from roq.client.publish.batching import Lifetime, Payload, lifetime_ms, payload_of, with_attributes
from roq.client.publish.delayed import LaterPublishing, When
from roq.client.publish.latency import LatencyBook
from roq.client.publish.receipt import REGISTERING, Outcome, Receipt, SendStatus
from roq.client.publish.resume import Identity
from roq.client.publish.sends import AsyncSend, check_tries, send
from roq.client.publish.shell import PublisherShell
from roq.client.publish.stats import PublisherStats
from roq.client.session.events import ClientState
from roq.client.session.status import Status, publisher_status
from roq.client.session.status_reporter import Losses, OnState, StatusReporter
from roq.errors import (
    DeliveryError,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
    WouldBlock,
)
from roq.model import PublisherId, check_client_name, check_name, check_seconds, wait_seconds
from roq.protocol.attributes import attributes_of

DELIVERY_SECONDS_MAX: Final = 600.0
"""Below the time after which an exchange forgets a link, so nothing is doubled by a late replay."""
CLOSE_SECONDS_MAX: Final = 5.0
"""For the last flush when the block of a `with` has failed anyway."""

log = logging.getLogger(__name__)


class Publisher(LaterPublishing):
    """Publishes to one logical queue. Thread-safe; a context manager. Made by `Cluster.publisher`.

    Args:
        engine: the client's I/O thread.
        addresses: endpoints of configuration managers.
        queue: name of the queue.
        publisher_id: 16 random bytes.
        resumed: a named publisher goes on with this, where an earlier one of its name has ended.
        timeout: seconds that `publish` waits for room in the window, and leaving `with` for
            acknowledgements.
        connect_timeout: seconds that opening may take.
        name: by which people find it in `roq top`, 1 to 64 characters; None: the program's name,
            the host and the process id.
        group: the publishers that it belongs to; people see it before the name.
        linger: seconds that a message waits for others at most, when the link is busy.
        delivery_timeout: seconds after which an unacknowledged batch is given up.
        block: False: `publish` raises `WouldBlock` instead of waiting.
        receipt: the class of the receipts.
        offsets: receipts tell the offset of their batch in the log of the exchange.
        retry_times, retry_times_async: how often a message of `send`, and of `send_async`, is tried
            at another exchange, beyond the first try.
        retry_refused: a message of these that an exchange has refused is published once more, at
            another exchange and behind what was published since; counts as one of these tries.
        avoid_slower_than: an exchange that takes more seconds to acknowledge, again and again, is
            left, and left alone for a while, as long as there is another one; None: none is.
        on_state: called with a `StateChange` whenever the publisher stands differently, in a thread
            for such calls; what it raises is logged.

    Raises:
        QueueNotFound: no such queue.
        QueueStopped: it was not started within `connect_timeout`.
        Unavailable: no exchange could be reached within `connect_timeout`.
    """

    def __init__(
        self,
        engine: Engine,
        addresses: Sequence[str],
        queue: str,
        *,
        publisher_id: bytes,
        resumed: Identity | None = None,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        name: str | None = None,
        group: str = "",
        linger: float = 0.001,
        delivery_timeout: float = 60.0,
        block: bool = True,
        receipt: type[Receipt] = Receipt,
        offsets: bool = False,
        retry_times: int = 2,
        retry_times_async: int = 2,
        retry_refused: bool = False,
        avoid_slower_than: float | None = None,
        on_state: OnState | None = None,
    ) -> None:
        timeout = check_seconds("timeout", timeout)
        connect_timeout = check_seconds("connect_timeout", connect_timeout, above=True)
        linger = check_seconds("linger", linger)
        delivery_timeout = check_seconds(
            "delivery_timeout", delivery_timeout, 0, DELIVERY_SECONDS_MAX, above=True
        )
        check_tries(retry_times, retry_times_async, avoid_slower_than)
        self.queue = check_name(queue)
        self.name = client_name(name)
        self.group = group
        self.id = PublisherId(publisher_id)
        shown = check_client_name(f"{group}/{self.name}") if group else self.name
        self._engine = engine
        self.timeout = timeout
        self.delivery_timeout = delivery_timeout
        self.retry_times, self.retry_times_async = retry_times, retry_times_async
        self._retry_refused = retry_refused
        self._block = block
        self._window_waits = self._callback_errors = self._reported = 0
        self._closed = False
        self._reporter = StatusReporter(
            engine, f"publisher of queue {queue}", self._status, self._losses, on_state
        )
        self._shell = PublisherShell(
            engine, addresses, queue, publisher=self.id, name=shown, linger_seconds=linger,
            delivery_seconds=delivery_timeout, new_receipt=lambda: receipt(self),
            on_change=self._reporter.look_soon, offsets=offsets, resumed=resumed,
            latency=None if avoid_slower_than is None else LatencyBook(avoid_slower_than),
        )  # fmt: skip
        self._packer = self._shell.machine.packer
        _opened.add(self)
        farewell.opened(self)
        self._fast = self._packer.fast
        self._await_exchange(connect_timeout)

    def _await_exchange(self, timeout: float) -> None:
        shell = self._shell
        try:
            shell.start()
            self._engine.at_end(self._engine_ended)
            self._reporter.start()
            if shell.wait_for(lambda: shell.machine.links.ready, timeout):
                return
            shell.check()
        except BaseException:
            self.abort()
            raise
        why, stopped = shell.why, shell.stopped
        self.abort()
        if stopped:
            raise QueueStopped(why or f"queue {self.queue} is stopped: start it first")
        raise Unavailable(
            f"no exchange of queue {self.queue} could be reached in {timeout:g} s: {why}"
        )

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        wait: bool = True,
        priority: int = 0,
        delay: When | None = None,
        ttl: Lifetime | None = None,
    ) -> Receipt:
        """Publish one message.

        On an idle link it leaves at once; under load it waits for the batch to fill, or `linger`.

        Args:
            payload: any bytes, also none.
            topic: for routing; subscribers filter by its beginning. At most 255 bytes of UTF-8.
            key: what the message is about, such as an order number; at most 1,024 bytes of UTF-8.
            tags, properties: at most 32 of at most 255 bytes; at most 128, names of at most 255
                bytes that do not begin with `roq.`, and texts of at most 32 KiB.
            wait: False: one way. Neither `flush` nor `close` nor the end of the program waits for
                it, and only its receipt and `stats().one_way_lost` tell if it is given up. In a
                batch with messages that are waited for it is one of these.
            delay: publish it later, as `publish_later` does.
            priority: 0 to 9; consumers of a group with `mode="priority"` get higher ones first.
            ttl: seconds, or a `timedelta`, after which no consumer group is given it any more.

        Returns:
            The receipt, shared by all messages of the batch.

        Raises:
            TypeError: the payload is not bytes; key, a tag or a property is not text.
            MessageTooLarge: above the queue's limit, with key, tags and properties.
            InvalidName, InvalidRequest: no valid topic, key, tag, property or priority.
            WouldBlock: the window is full and `block` is False.
            Unavailable: the window stayed full for `timeout` seconds; the text says why.
            QueueNotFound: the queue was removed.
            Fenced: another publisher of this name was opened later.
            Closed: the publisher is closed.
            Reentered: called from a signal handler in the middle of another call.
        """
        batch = self._fast.get(topic)
        if (
            batch is not None
            and type(payload) is bytes
            and len(payload) <= batch.small
            and not priority
            and (tags is None and properties is None and delay is None and ttl is None)
            and (item := payload if key is None else self._packer.keyed(batch, payload, key))
            is not None
        ):
            # Append first, look at the limit afterwards: see roq.client.publish.batching.
            items = batch.items
            items.append(item)
            if len(items) < batch.limit:
                return batch.receipt
            shell = self._shell
            if shell.guard.held():
                self._packer.withdraw(batch, item)
                shell.guard.check()
            with shell.lock:
                if self._packer.keeps(batch, item):
                    if batch.limit:
                        shell.look_at(batch)
                    return batch.receipt
        lifetime = lifetime_ms(ttl, delayed=delay is not None)
        if delay is not None:
            return self.publish_later(
                payload, topic, key, tags, properties, delay=delay, priority=priority
            ).receipt
        attributes = attributes_of(key, tags, properties, priority)
        return self.publish_raw(payload_of(payload, attributes, lifetime, wait=wait), topic)

    def publish_raw(self, data: bytes, topic: str, within: float | None = None) -> Receipt:
        """As `publish`, of a payload that has its attributes already, whatever their names; it
        waits for room no longer than `within` seconds, either."""
        seconds = self.timeout if within is None else min(self.timeout, within)
        deadline: float | None = None
        while True:
            receipt = self._shell.publish(data, topic)
            if receipt is not None:
                return receipt
            deadline = self._wait_for_room(deadline, seconds)

    def send(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        priority: int = 0,
        ttl: Lifetime | None = None,
        timeout: float | None = None,
    ) -> SendStatus:
        """Publish one message and wait until its fate is known.

        Args:
            payload, topic, key, tags, properties, priority, ttl: as in `publish`.
            timeout: seconds for all tries, of which each has an equal part, and for room, for which
                `publish` waits; None: the publisher's `delivery_timeout`. An exchange that has not
                acknowledged in its part is left, and what it has not acknowledged, this message
                with it, is sent at another one.

        Returns:
            What was achieved.

        Raises:
            DeliveryError: it was not delivered, or it is not known yet; `outcome` says which.
            RoQError: as `publish`.
        """
        seconds = wait_seconds(timeout, self.delivery_timeout)
        attributes = attributes_of(key, tags, properties, priority)
        data = payload_of(payload, attributes, lifetime_ms(ttl), wait=True)
        return send(self, partial(self.publish_raw, data, topic), seconds, self.retry_times)

    def send_async(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        priority: int = 0,
        ttl: Lifetime | None = None,
        callback: Callable[[SendStatus], object] | None = None,
    ) -> Future[SendStatus]:
        """Publish one message; its fate comes by a future, and by a callback if there is one.

        Args:
            payload, topic, key, tags, properties, priority, ttl: as in `publish`. The time for all
                tries is the publisher's `delivery_timeout`, and the tries are `retry_times_async`.
            callback: called once with what was achieved, in the client's thread for callbacks.

        Returns:
            A future: what was achieved, or `DeliveryError`.

        Raises:
            RoQError: as `publish`.
        """
        attributes = attributes_of(key, tags, properties, priority)
        data = payload_of(payload, attributes, lifetime_ms(ttl), wait=True)
        once = partial(self.publish_raw, data, topic)
        return AsyncSend(self, once, self.delivery_timeout, self.retry_times_async, callback).future

    def watch(self, receipt: Receipt, seconds: float, tries: int) -> None:
        """Have what is not acknowledged tried at other exchanges, so often within this time."""
        self._shell.watch(receipt, wait_seconds(seconds, what="seconds"), tries)

    def tries_again(self, status: SendStatus, tries: int) -> bool:
        """Whether a message of this fate is published once more; its exchange is left then.

        Only what is certainly not delivered is: anything else might come twice.
        """
        if not (self._retry_refused and tries > 0 and status.outcome is Outcome.REFUSED):
            return False
        self._shell.leave_exchange(status.exchange, status.reason)
        return True

    def publish_many(
        self,
        payloads: Iterable[Payload],
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        priority: int = 0,
        ttl: Lifetime | None = None,
    ) -> list[Receipt]:
        """Publish many messages of one topic; the fastest way.

        Args:
            payloads: the messages, in order.
            topic, key, tags, properties, priority, ttl: of all, as in `publish`. With more than a
                topic each message is put into its batch by itself, which takes longer.

        Returns:
            The receipts of the batches that they went into, in order.

        Raises:
            RoQError: as `publish`; the messages before the one that failed are published.
        """
        attributes = attributes_of(key, tags, properties, priority)
        every = with_attributes(payloads, attributes, lifetime_ms(ttl))
        receipts: list[Receipt] = []
        position = self.publish_from(every, 0, topic, receipts)
        while position < len(every):
            # Each batch that finds room has had its full time to wait for it.
            self._wait_for_room(None, self.timeout)
            position = self.publish_from(every, position, topic, receipts)
        return receipts

    def publish_from(
        self, payloads: list[Payload], position: int, topic: str, receipts: list[Receipt]
    ) -> int:
        """As `publish_many` from this position on, but as far as there is room; where it stopped.

        Args:
            payloads: all of them.
            position: of the first one to publish.
            topic: of all of them.
            receipts: the receipts are added here.
        """
        shell = self._shell
        shell.guard.check()
        while position < len(payloads):
            count, receipt = shell.publish_chunk(payloads, position, topic)
            if receipt is None:
                return position
            position += count
            if not receipts or receipts[-1] is not receipt:
                receipts.append(receipt)
        return position

    def _wait_for_room(self, deadline: float | None, seconds: float) -> float:
        """Wait for the window; gives the deadline for the next call."""
        if not self._block:
            self._shell.attend()
            raise WouldBlock(f"the window of queue {self.queue} is full: {self._shell.why}")
        if deadline is None:
            deadline = monotonic() + seconds
            self._window_waits += 1
        remaining = max(0.0, deadline - monotonic())
        if not self._shell.wait_for(self._shell.has_room, remaining):
            self.raise_no_room(seconds)
        return deadline

    def raise_no_room(self, waited: float) -> None:
        """Say why the window is full.

        Raises:
            Unavailable: the time is over.
            RoQError: nothing will ever be published again.
        """
        self._shell.check()
        raise Unavailable(
            f"queue {self.queue} took nothing for {waited:g} s "
            f"({self.stats().unacked_batches} batches are waiting): {self._shell.why}"
        )

    # --- for receipts and event loops -------------------------------------------------------------

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Work on the connection until `condition()`; see `PublisherShell.wait_for`."""
        return self._shell.wait_for(condition, timeout)

    def attempt(self, condition: Callable[[], bool], wake: Callable[[], None]) -> bool:
        """Ask `condition` once, and `wake` when it is worth asking again."""
        return self._shell.attempt(condition, wake)

    def attend(self) -> None:
        """Have what arrives be read at once: a callback wants to know of it."""
        self._shell.attend()

    def call_back(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:
        """Have this called in the client's thread for callbacks, or `left_out`; for receipts."""

        def call() -> None:
            try:
                callback()
            except BaseException:
                self._callback_errors += 1
                raise

        self._engine.callbacks.post(call, left_out)

    def next_sequence(self, topic: str = "") -> int:
        """The sequence that the next message of a topic gets: so many were published before it.

        Of a named publisher those of earlier ones count, as far as an exchange has them.
        """
        self._engine.check_process()
        with self._shell.lock:
            return self._shell.machine.next_sequence(topic)

    def has_room(self) -> bool:
        """Whether `publish` has room for another batch; for `attempt` and `wait_for`."""
        return self._shell.has_room()

    def is_flushed(self) -> bool:
        """Whether everything was acknowledged; for `attempt` and `wait_for`."""
        return self._shell.is_flushed()

    @property
    def failed(self) -> bool:
        """Whether nothing can ever be published again."""
        return self._shell.failure is not None

    # --- the end ----------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything published so far has been acknowledged, but for `wait=False`.

        Args:
            timeout: seconds; None: the publisher's own.

        Raises:
            DeliveryError: messages were given up since the last flush.
            Unavailable: `timeout` passed; what is open stays open.
        """
        seconds = wait_seconds(timeout, self.timeout)
        self.flushed(seconds, done=self._shell.wait_for(self.is_flushed, seconds))

    def flushed(self, waited: float, *, done: bool) -> None:
        """How a flush has ended; raises as `flush`."""
        self._raise_failures()
        if not done:
            self._shell.check()
            raise Unavailable(
                f"{self.stats().unacked_batches} batches to queue {self.queue} were not "
                f"acknowledged within {waited:g} s: {self._shell.why}"
            )

    def _raise_failures(self) -> None:
        tally = self._shell.machine.links.tally
        unknown = tally.unknown_messages
        failed = tally.failed_messages + unknown
        new, self._reported = failed - self._reported, failed
        if new:
            raise DeliveryError(
                f"{new} messages to queue {self.queue} could not be delivered "
                f"(whether {unknown} of them were is unknown): {tally.last_reason}",
                new,
            )

    def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye and release everything; idempotent.

        Args:
            timeout: seconds for the flush; None: the publisher's own.

        Raises:
            DeliveryError: messages could not be delivered.
        """
        if self._closed:
            return
        self._engine.check_outside()
        seconds = wait_seconds(timeout, self.timeout)
        reason = f"the publisher of queue {self.queue} was closed"
        try:
            self.flush(seconds)
        except QueueNotFound:
            self.abort(reason)  # the queue is gone and nothing was open
        except DeliveryError:
            self.abort(reason)
            raise
        except RoQError as error:
            self.abort(f"{reason}: {error}")
            self._raise_failures()
        else:
            self.abort(reason)

    def abort(self, reason: str = "the publisher was aborted") -> None:
        """Close without waiting; what is not acknowledged is given up."""
        if not self._closed:
            self._engine.check_outside()
            self._closed = True
            farewell.closed(self)
            self._engine.not_at_end(self._engine_ended)
            self._shell.close(reason)
            self._reporter.close(reason)

    @property
    def _left_open(self) -> bool:
        """Whether it is still to be closed."""
        return not self._closed and not self._engine.forked

    def _part(self, seconds: float) -> tuple[str, int]:
        """The program ends without `close`: flush, and tell how much was not acknowledged.

        It is not closed: a thread that is still publishing ends with the program.
        """
        with suppress(RoQError, OSError):  # to wait takes a descriptor
            self._shell.wait_for(self.is_flushed, seconds)
        with self._shell.lock:
            return self.queue, self._shell.machine.unacknowledged - self._reported

    def _engine_ended(self) -> None:
        self._reporter.close(str(self._engine.end))

    # --- how it stands ----------------------------------------------------------------------------

    @property
    def state(self) -> ClientState:
        """How this publisher stands at this moment; from any thread, and never waits."""
        return self._reporter.status.state

    @property
    def trouble(self) -> str:
        """Why nothing flows though it should, or what is not as it should be; empty: all is well.

        From any thread; never waits.
        """
        return self._reporter.status.reason

    def _status(self, late: float) -> Status:
        return publisher_status(self._shell.facts(late))

    def _losses(self) -> Losses:
        tally = self._shell.machine.links.tally
        return Losses(tally.failed_messages + tally.unknown_messages, 0, tally.last_reason)

    def stats(self) -> PublisherStats:
        """Counters and state at this moment."""
        return self._shell.machine.stats(
            window_waits=self._window_waits, callback_errors=self._callback_errors
        )

    def __repr__(self) -> str:
        # From the debugger, from a log line, half made: it neither raises nor waits.
        with suppress(Exception):
            machine = self._shell.machine
            owed = machine.links.owed_batches
            counts = f"{machine.messages:,} messages sent, {owed:,} batches unacknowledged"
            return f"<roq.Publisher {self.name!r} of {self.queue}: {self.state}, {counts}>"
        return "<roq.Publisher>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close(min(self.timeout, CLOSE_SECONDS_MAX))
        except RoQError as second:
            # The error in the body is the one to see.
            log.warning("closing the publisher of queue %s: %s", self.queue, second)


_opened: weakref.WeakSet[Publisher] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child: let every call get to where it is refused, and wait for no thread."""
    REGISTERING._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001 - as `Condition` does
    for publisher in _opened:
        shell = publisher._shell  # noqa: SLF001 - of this module
        shell.guard.renew()
        shell.lock = shell.guard.lock
        publisher._fast.clear()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)
