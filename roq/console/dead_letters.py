"""Dead letters as pages show them, and what becomes of them.

Whoever looks at letters holds them, so looks and changes take turns; what a page shows is copied
and given back at once. A few may wait for their turn, and not for long: each of them has a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from roq.client.operate.dead_letters import HELD_MAX, Found, Requeue, Wanted, held, paced
from roq.console.source import Source
from roq.errors import Busy, InvalidRequest, RoQError

LETTERS_SHOWN: Final = 200
PAYLOAD_MAX: Final = 4096
"""Bytes of a payload that are shown."""
AT_ONCE_MAX: Final = 4
"""Looks and changes that are under way or wait for their turn."""


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A dead letter, copied.

    Attributes:
        payload: its beginning, as text; what is no text is shown as `\\x00`.
        size: of the whole payload, bytes.
    """

    id: str
    queue: str
    topic: str
    group: str
    attempts: int
    reason: str
    died: datetime
    key: str
    tags: tuple[str, ...]
    properties: dict[str, str]
    payload: str
    size: int


class LetterGone(InvalidRequest):
    """There is no such dead letter any more."""


class Letters:
    """The dead letters of the cluster. From any thread."""

    WAIT_SECONDS: ClassVar = 1.0
    """Without another letter for so long, these are all."""
    TURN_SECONDS: ClassVar = 5.0
    """A turn is waited for so long."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(AT_ONCE_MAX)

    @contextmanager
    def _held(self, queue: str, wanted: Wanted) -> Iterator[list[Found]]:
        """As `held`, in turn.

        Raises:
            Busy: others look at letters, or change them.
        """
        if not self._places.acquire(blocking=False):
            raise Busy(_OTHERS)
        try:
            if not self._turn.acquire(timeout=self.TURN_SECONDS):
                raise Busy(_OTHERS)
            try:
                with held(self._source.cluster(), queue, wanted) as found:
                    yield found
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def list(self, queue: str, wanted: Wanted) -> list[LetterRow]:
        """Those that are wanted, the oldest first."""
        with self._held(queue, wanted) as found:
            return [_row(each) for each in found]

    def show(self, queue: str, letter: str) -> LetterRow:
        """The one with this id.

        Raises:
            LetterGone: it was requeued or purged, or is held by somebody else.
        """
        everything = Wanted(None, "", "", "", HELD_MAX, self.WAIT_SECONDS)
        with self._held(queue, everything) as found:
            for each in found:
                if each.letter.id == letter:
                    return _row(each)
        raise LetterGone(
            f"queue {queue} has no dead letter {letter}: it was requeued or purged, or somebody "
            "else holds it at the moment"
        )

    def count(self, queue: str, wanted: Wanted) -> tuple[int, datetime | None]:
        """How many there are, and when the newest of them died; None: there is none."""
        with self._held(queue, wanted) as found:
            return len(found), max((each.died for each in found), default=None)

    def requeue(self, queue: str, wanted: Wanted) -> str:
        """Publish them anew where they come from, the oldest first; never more than are wanted."""
        cluster = self._source.cluster()
        with self._held(queue, wanted) as letters:
            found = [each for each in letters if not each.letter.cut]  # the others are not whole
            requeueing, done = Requeue(cluster), 0
            try:
                for chunk in paced(found, None):
                    requeueing.publish(chunk)
                    done += len(chunk)
            except RoQError as error:
                raise RoQError(
                    f"{done} of {len(found)} are requeued, the others are where they were: {error}"
                ) from error
        return f"{done} dead letter{'' if done == 1 else 's'} of queue {queue} requeued"

    def purge(self, queue: str, wanted: Wanted) -> str:
        """Drop them for good; never more than are wanted."""
        with self._held(queue, wanted) as found:
            for each in found:
                each.message.ack()
            count = len(found)
        return f"{count} dead letter{'' if count == 1 else 's'} of queue {queue} dropped"


def agreed(wanted: Wanted, count: int, until: str) -> Wanted:
    """The same ones, but no more than were agreed to, and none that died after they were counted.

    Args:
        until: when the newest died that was counted; ISO 8601 with its zone.

    Raises:
        InvalidRequest: there is none of them.
    """
    if count < 1 or not until:
        raise InvalidRequest("no dead letter matched when this page was opened: nothing is done")
    try:
        newest = datetime.fromisoformat(until)
    except ValueError:
        newest = None
    if newest is None or newest.tzinfo is None:
        raise InvalidRequest(f"{until!r} is not when a dead letter died: open the page again")
    return replace(wanted, count=min(count, HELD_MAX), until=newest)


_OTHERS: Final = (
    "others look at dead letters by this console at the moment, or change them, and that goes one "
    "after the other: try again in a few seconds"
)


def shown(payload: bytes) -> str:
    """The beginning of a payload as text that has no control characters but line ends and tabs."""
    text = payload[:PAYLOAD_MAX].decode(errors="backslashreplace")
    return "".join(
        each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
    )


def _row(found: Found) -> LetterRow:
    message, letter = found.message, found.letter
    return LetterRow(
        id=letter.id,
        queue=letter.queue,
        topic=letter.topic,
        group=letter.group,
        attempts=letter.attempts,
        reason=letter.reason,
        died=found.died,
        key=message.key or "",
        tags=tuple(message.tags),
        properties=letter.properties,
        payload=shown(message.payload),
        size=len(message.payload),
    )
