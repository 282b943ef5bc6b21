"""What an operator does with the delayed messages of a queue, as methods of `roq.Cluster`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec

from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import ask_all, told
from roq.errors import InvalidName, RemoteProtocolError, Unavailable
from roq.model import check_count
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.delayed import (
    CANCEL_DELAYED,
    DELAYED,
    MESSAGE_ID_BYTES,
    ROWS_MAX,
    CancelDelayed,
    CancelledDelayed,
    DelayedList,
    DelayedRequest,
)
from roq.protocol.public_answers import QueueDescription

_REQUEST: Final = 1
"""Each question has a connection's tag of its own, so its number tells nothing."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T", DelayedList, CancelledDelayed)


class PendingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waits for its time."""

    id: str
    due: datetime
    exchange: str
    """Where it waits."""


class PendingMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The delayed messages of a queue."""

    pending: int
    """How many wait, at all exchanges that have answered."""
    size: int
    """Bytes that they take, with all that they have, as exchanges count them."""
    messages: list[PendingMessage]
    """The soonest of them, in order."""
    missing: dict[str, str]
    """Exchanges that have not answered, and why; empty: the answer is complete."""


class DelayedCommands(ABC):
    """Each goes to every exchange of the queue, and may be repeated."""

    _engine: Engine

    @abstractmethod
    def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""

    @abstractmethod
    def _seconds(self, timeout: float | None) -> float:
        """A time limit, or that of the connection."""

    def delayed_messages(
        self, queue: str, *, most: int = 100, timeout: float | None = None
    ) -> PendingMessages:
        """The delayed messages of a queue that wait: how many, and the soonest.

        Args:
            most: so many are listed, at most 1,000.
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Raises:
            Unavailable: nobody has answered.
            QueueStopped: the queue does not run.
        """
        most = min(check_count("most", most, 0), ROWS_MAX)
        described = self.describe(queue)
        request = DelayedRequest(id=_REQUEST, queue=bytes.fromhex(described.queue_id), most=most)
        answers = ask_all(self._engine, described, DELAYED, request, self._seconds(timeout))
        found, missing = _read(answers.letters, answers.missing, DELAYED, DelayedList)
        if missing and not found:
            raise Unavailable(f"delayed messages of queue {queue} are not known: {told(missing)}")
        rows = [
            PendingMessage(
                id=message.hex(), due=_EPOCH + timedelta(microseconds=due_us), exchange=name
            )
            for name, each in found.items()
            for message, due_us in each.messages
        ]
        rows.sort(key=lambda row: row.due)
        return PendingMessages(
            pending=sum(each.pending for each in found.values()),
            size=sum(each.size for each in found.values()),
            messages=rows[:most], missing=missing,
        )  # fmt: skip

    def cancel_message(self, queue: str, message: str, *, timeout: float | None = None) -> bool:
        """Have a delayed message not be published.

        Args:
            message: its id, as `publish_later` gave it.
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Returns:
            Whether it waited, and now never comes; False: it was published or cancelled before, or
            there never was one.

        Raises:
            InvalidName: that cannot be an id.
            Unavailable: it was not found, and not every exchange has answered. Repeat it.
            QueueStopped: the queue does not run.
        """
        try:
            name = bytes.fromhex(message)
        except (TypeError, ValueError):
            name = b""
        if len(name) != MESSAGE_ID_BYTES:
            raise InvalidName(
                f"{message!r:.80} is no id of a delayed message: that has "
                f"{2 * MESSAGE_ID_BYTES} hexadecimal digits"
            )
        described = self.describe(queue)
        request = CancelDelayed(id=_REQUEST, queue=bytes.fromhex(described.queue_id), message=name)
        answers = ask_all(self._engine, described, CANCEL_DELAYED, request, self._seconds(timeout))
        found, missing = _read(answers.letters, answers.missing, CANCEL_DELAYED, CancelledDelayed)
        cancelled = any(each.found for each in found.values())
        if missing and not cancelled:
            raise Unavailable(
                f"message {message} of queue {queue} was not found, but {told(missing)}. Repeat it"
            )
        return cancelled


def _read(
    letters: Mapping[str, list[bytes]], missing: Mapping[str, str], letter: bytes, kind: type[T]
) -> tuple[dict[str, T], dict[str, str]]:
    found: dict[str, T] = {}
    without = dict(missing)
    for name, parts in letters.items():
        try:
            if parts[0] == letter and len(parts) == 2:
                found[name] = documents.decode(parts[1], kind)
            elif parts[0] == REFUSED:
                refused = documents.decode(parts[-1], Refused)
                without[name] = f"{refused.text} ({refused.code})"
            else:
                without[name] = "its answer is none"
        except RemoteProtocolError as error:
            without[name] = f"its answer cannot be read: {error}"
    return found, without
