"""What became of a batch, shared by all of its messages.

A receipt costs one small object per batch. Nothing that could wait is created before the
program waits: `wait` lets the publisher look after its own connection in the meantime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from roq.client.io.callbacks import nothing
from roq.errors import DeliveryError
from roq.model import NO_LOG, LogId, wait_seconds


class Outcome(StrEnum):
    """How the delivery of a batch ended."""

    PENDING = "pending"
    OK = "ok"
    """All that the queue promises was achieved: the exchange has it in its log, on its disk if the
    queue says so."""
    FLUSH_TIMEOUT = "flush_timeout"
    """The exchange has it, and its disk did not confirm in time: it may be there later, or not."""
    COPY_TIMEOUT = "copy_timeout"
    """Reserved for copies on other hosts: one did not confirm in time."""
    COPIES_MISSING = "copies_missing"
    """Reserved for copies on other hosts: there are fewer than there should be."""
    REFUSED = "refused"
    """An exchange did not take it; it is certainly not delivered."""
    FAILED = "failed"
    """It was given up and never left; it is certainly not delivered."""
    UNKNOWN = "unknown"
    """It left, and whether it was appended is not known."""


class SendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What exactly was achieved for the messages of one batch."""

    outcome: Outcome
    exchange: str = ""
    """Name of the exchange that accepted it."""
    exchange_epoch: int = 0
    """Of its process."""
    log: LogId = NO_LOG
    """Into which log it went; zeros: into none that is known."""
    offset: int | None = None
    """Of the batch in that log; None: the publisher was not opened with `offsets=True`, or the
    exchange does not know it any more."""
    stored: bool = False
    """It is in the log of the exchange: in its memory, or written to its disk."""
    flushed: bool = False
    """It is on the disk of the exchange, synced."""
    reason: str = ""
    """Why it was not accepted, in a sentence."""

    @property
    def ok(self) -> bool:
        """Whether everything was achieved that the queue promises."""
        return self.outcome is Outcome.OK


REGISTERING: Final = threading.RLock()
"""For all receipts and requests: it is held for a few statements, and only where a callback is
wanted."""


class Waiter(Protocol):
    """Who can wait for a receipt: the publisher."""

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Work on the connection until `condition()`; False when `timeout` seconds have passed."""
        ...

    def call_back(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:
        """Have this called in the thread for callbacks, or at once `left_out` if that cannot be."""
        ...

    def attend(self) -> None:
        """Have what arrives be read at once; raises `Closed` in a forked child."""
        ...


class Receipt:
    """The fate of one batch; `publish()` gives it to every message of the batch.

    Attributes:
        count: messages of the batch that share this receipt; final once it is `done()`.
        one_way: none of its messages is waited for.
    """

    __slots__ = ("_callbacks", "_status", "_waiter", "count", "one_way")

    def __init__(self, waiter: Waiter) -> None:
        self.count = 0
        self.one_way = False
        self._waiter = waiter
        self._status: SendStatus | None = None
        self._callbacks: list[Callable[[], None]] | None = None

    def done(self) -> bool:
        """Whether the fate is known; up to 20 ms after it is there, if some thread has waited for a
        receipt of this publisher shortly before and none does now: use a callback to know at once.
        """
        return self._status is not None

    @property
    def status(self) -> SendStatus | None:
        """The fate, or None as long as it is open."""
        return self._status

    def wait(self, timeout: float | None = None) -> SendStatus:
        """Wait until the fate is known.

        Args:
            timeout: seconds; None waits for as long as the publisher's delivery time-out lets it.

        Returns:
            What was achieved; `pending` if `timeout` passed first.
        """
        if timeout is not None:
            timeout = wait_seconds(timeout)
        if self._status is None:
            self._waiter.wait_for(self.done, timeout)
        return self._status if self._status is not None else PENDING

    def result(self, timeout: float | None = None) -> SendStatus:
        """As `wait`, but anything but success is raised.

        Raises:
            DeliveryError: the messages were not accepted, or not yet.
        """
        status = self.wait(timeout)
        if not status.ok:
            raise failure(status, self.count)
        return status

    def __repr__(self) -> str:
        status, count = self._status, self.count
        sealed = f" {count} message{'s' * (count != 1)}" if count else ""
        if status is None:
            return f"<roq.Receipt pending{sealed}>"
        where = f" by {status.exchange}" if status.exchange else ""
        why = f" ({status.reason})" if status.reason else ""
        return f"<roq.Receipt {status.outcome}{where}{sealed}{why}>"

    def settle(self, status: SendStatus) -> None:
        """Fix the fate, once; later calls change nothing. The publisher's business."""
        if self._status is not None:
            return
        self._status = status
        if self._callbacks is not None:
            self._tell()

    def on_settled(self, callback: Callable[[], object]) -> None:
        """Call back once when the fate is known, in the client's thread for callbacks.

        It may take its time and publish. What it raises is logged, counted
        (`PublisherStats.callback_errors`) and ends nothing. Callbacks come in order, one at a time;
        if a hundred thousand wait for a slow one the oldest are left out, which is logged.
        """
        self.settle_with(callback, nothing)

    def settle_with(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:
        """As `on_settled`; one of the two is called in any case, also after the client was closed.

        Args:
            callback: what is called.
            left_out: called in its place if it is left out, in the thread that learns the fate: it
                does not wait for anybody.
        """
        self._waiter.attend()
        self._ring_when_settled(lambda: self._waiter.call_back(callback, left_out))

    def _ring_when_settled(self, ring: Callable[[], None]) -> None:
        """Call this once, in the thread that learns the fate; it neither blocks nor raises."""
        with REGISTERING:
            if self._callbacks is None:
                self._callbacks = [ring]
            else:
                self._callbacks.append(ring)
        # Looked at afterwards: who settles looks for callbacks after the fate is there.
        if self._status is not None:
            self._tell()

    def _tell(self) -> None:
        with REGISTERING:
            rings, self._callbacks = self._callbacks, None
        for ring in rings or ():
            ring()


def failure(status: SendStatus, messages: int) -> DeliveryError:
    """What is raised for a fate that is no success."""
    return DeliveryError(status.reason or "not acknowledged yet", messages, str(status.outcome))


PENDING = SendStatus(outcome=Outcome.PENDING, reason="not acknowledged yet")
