"""One message whose fate somebody wants to know: published, waited for, and published once more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Final, Protocol

from roq.client.io.callbacks import UserFuture
from roq.client.publish.receipt import PENDING, Receipt, SendStatus, failure
from roq.model import check_count, check_seconds

log = logging.getLogger(__name__)


RETRIES_MAX: Final = 100


def check_tries(retries: int, retries_async: int, avoid_slower_than: float | None) -> None:
    """Refuse numbers that cannot be.

    Raises:
        InvalidRequest: says what is allowed.
    """
    check_count("retry_times", retries, 0, RETRIES_MAX)
    check_count("retry_times_async", retries_async, 0, RETRIES_MAX)
    if avoid_slower_than is not None:
        check_seconds("avoid_slower_than", avoid_slower_than, above=True)


class Sender(Protocol):
    """What is wanted of a publisher."""

    def watch(self, receipt: Receipt, seconds: float, tries: int) -> None:
        """Have what is not acknowledged tried at other exchanges, so often within this time."""
        ...

    def tries_again(self, status: SendStatus, tries: int) -> bool:
        """Whether a message of this fate is published once more; its exchange is left then."""
        ...


def send(
    sender: Sender, publish: Callable[[float], Receipt], seconds: float, tries: int
) -> SendStatus:
    """Publish a message and wait until it is delivered.

    Args:
        publish: publishes it, each time that it is called; waits no more than these seconds for
            room.
        seconds: for all tries.
        tries: beyond the first one.

    Raises:
        DeliveryError: it is not delivered, or that is not known.
    """
    deadline = monotonic() + seconds
    remaining = seconds
    while True:
        receipt = publish(remaining)
        remaining = max(0.0, deadline - monotonic())
        sender.watch(receipt, remaining, tries)
        status = receipt.wait(remaining)
        if status.ok:
            return status
        remaining = max(0.0, deadline - monotonic())
        if not remaining or not sender.tries_again(status, tries):
            raise failure(status, 1)
        tries -= 1


class AsyncSend:
    """As `send`, but nobody waits: `future` gets what was achieved, or the error."""

    def __init__(
        self,
        sender: Sender,
        publish: Callable[[float], Receipt],
        seconds: float,
        tries: int,
        callback: Callable[[SendStatus], object] | None,
    ) -> None:
        self.future: Future[SendStatus] = UserFuture()
        self.future.set_running_or_notify_cancel()
        self._sender = sender
        self._publish = publish
        self._deadline = monotonic() + seconds
        self._tries = tries
        self._callback = callback
        self._begin(seconds)

    def _begin(self, remaining: float) -> None:
        receipt = self._publish(remaining)
        self._sender.watch(receipt, max(0.0, self._deadline - monotonic()), self._tries)
        receipt.settle_with(
            lambda: self._settled(receipt.status or PENDING),
            lambda: self._end(receipt.status or PENDING),
        )

    def _settled(self, status: SendStatus) -> None:
        remaining = self._deadline - monotonic()
        try:
            if not status.ok and remaining > 0 and self._sender.tries_again(status, self._tries):
                self._tries -= 1
                self._begin(remaining)
                return
        except Exception as error:  # noqa: BLE001 - to wait takes a descriptor, say
            log.debug("not published once more: %s", error)
        self._end(status)
        if self._callback is not None:
            self._callback(status)

    def _end(self, status: SendStatus) -> None:
        """No more is tried. Who waits for the future hears that also if nobody is called back."""
        if status.ok:
            self.future.set_result(status)
        else:
            self.future.set_exception(failure(status, 1))
