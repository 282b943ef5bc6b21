"""Dead letters as pages show them, and what becomes of them.

Whoever looks at letters holds them, so looks and changes take turns; what a page shows is copied
and given back at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Final

from roq.client.letters import HELD_MAX, Found, Requeue, Wanted, held, paced
from roq.console.source import Source
from roq.errors import InvalidRequest, RoQError

LETTERS_SHOWN: Final = 200
PAYLOAD_MAX: Final = 4096
"""Bytes of a payload that are shown."""


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

    def __init__(self, source: Source) -> None:
        self._source = source
        self._turn = threading.Lock()

    def list(self, queue: str, wanted: Wanted) -> list[LetterRow]:
        """Those that are wanted, the oldest first."""
        with self._turn, held(self._source.cluster(), queue, wanted) as found:
            return [_row(each) for each in found]

    def show(self, queue: str, letter: str) -> LetterRow:
        """The one with this id.

        Raises:
            LetterGone: it was requeued or purged, or is held by somebody else.
        """
        everything = Wanted(None, "", "", "", HELD_MAX, self.WAIT_SECONDS)
        with self._turn, held(self._source.cluster(), queue, everything) as found:
            for each in found:
                if each.letter.id == letter:
                    return _row(each)
        raise LetterGone(
            f"queue {queue} has no dead letter {letter}: it was requeued or purged, or somebody "
            "else holds it at the moment"
        )

    def count(self, queue: str, wanted: Wanted) -> int:
        """How many there are."""
        with self._turn, held(self._source.cluster(), queue, wanted) as found:
            return len(found)

    def requeue(self, queue: str, wanted: Wanted) -> str:
        """Publish them anew where they come from, the oldest first; never more than are wanted."""
        cluster = self._source.cluster()
        with self._turn, held(cluster, queue, wanted) as found:
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
        with self._turn, held(self._source.cluster(), queue, wanted) as found:
            for each in found:
                each.message.ack()
            count = len(found)
        return f"{count} dead letter{'' if count == 1 else 's'} of queue {queue} dropped"


def at_most(wanted: Wanted, count: int) -> Wanted:
    """The same ones, but no more than were agreed to."""
    return replace(wanted, count=max(1, min(count, HELD_MAX)))


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
