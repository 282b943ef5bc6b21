"""What an exchange sends is one ZeroMQ frame; here its parts are joined, and taken apart again.

    fan-out       topic, FF, entry [, batch]         topic: UTF-8, so FF ends it; or a control topic
    to one peer   FF and a letter, then what belongs to it: a document, a number
                  FF d, u64 id, topic, FF, entry, batch
                  FF D, u64 id, topic, FF, entry       and then, as a message of its own, the batch
                  FF L and FF M: likewise, with a lease in the place of the id

Behind the letter of what is for one of several readers stand the four bytes of that reader.

Two reasons for one frame. A socket of libzmq 4.3.5 that loses its connection between two frames of
a message aborts the process (`Assertion failed: !_more`). And each frame costs on its way: an
exchange with one frame instead of three takes a fifth less for small batches, with 1 and with 20
subscribers, and as much for batches of 50 kB.

A large batch that is fetched is a message of its own: it is sent as it lies in the log, and shared
by all that fetch it. Joined it would be copied for each of them.

What an exchange receives has two frames, topic and batch: it never looks into a batch, and does not
copy a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from roq.protocol.channel import (
    CONTROL,
    END_TOPIC,
    FETCHED_ENTRY,
    FETCHED_LARGE,
    NONCE_BYTES,
    NUMBER,
    PRESENCE_TOPIC,
)
from roq.protocol.consuming import LEASED, LEASED_LARGE, lease_bytes
from roq.protocol.entry import ENTRY_BYTES

END_OF_TOPIC: Final = bytes((CONTROL,))
"""Stands in no UTF-8 text, so a prefix that subscribers filter by matches topics alone."""
LETTER_BYTES: Final = 2
LARGE_BYTES: Final = 8 * 1024
"""From this size on a batch for one peer is a message of its own."""
_PLAIN_PARTS: Final = 2
_LARGE_PARTS: Final = 4
_ENTRY_AT: Final = 1 + ENTRY_BYTES
_LARGE: Final = {FETCHED_ENTRY: FETCHED_LARGE, LEASED: LEASED_LARGE}
_SMALL: Final = {large: small for small, large in _LARGE.items()}
_FETCHED: Final = frozenset({FETCHED_ENTRY, FETCHED_LARGE})
_LEASED: Final = frozenset({LEASED, LEASED_LARGE})
_CONTROL_TOPIC_BYTES: Final = {
    END_TOPIC: len(END_TOPIC),
    PRESENCE_TOPIC: len(PRESENCE_TOPIC) + NONCE_BYTES,
}


def join_live(topic: bytes, entry: bytes, batch: bytes | memoryview = b"") -> bytes:
    """The frame of one entry for the fan-out."""
    return b"".join((topic, END_OF_TOPIC, entry, batch))


def split_live(frame: bytes, start: int = 0) -> list[bytes]:
    """Topic and entry of a frame of the fan-out, and the batch if there is one.

    One that cannot be taken apart is given back whole, as the only part.

    Args:
        start: they begin here.
    """
    at = frame.find(END_OF_TOPIC, start)
    if at == start:
        at += _CONTROL_TOPIC_BYTES.get(frame[start : start + LETTER_BYTES], 0)
        if frame[at : at + 1] != END_OF_TOPIC:
            at = -1
    batch_at = at + _ENTRY_AT
    size = len(frame)
    if at < 0 or size < batch_at:
        return [frame]
    if size == batch_at:
        return [frame[start:at], frame[at + 1 :]]
    return [frame[start:at], frame[at + 1 : batch_at], frame[batch_at:]]


def join_answer(parts: Sequence[bytes], batch: bytes = b"") -> bytes:
    """The frame for one peer; the parts of an entry are letter, id or lease, topic, entry.

    The first part may have a reader's four bytes behind the letter.
    """
    if len(parts) <= _PLAIN_PARTS:
        return b"".join(parts)
    letter, number, topic, entry = parts
    return b"".join((letter, number, topic, END_OF_TOPIC, entry, batch))


def join_large(parts: Sequence[bytes]) -> bytes:
    """The frame after which a large batch is sent; the parts as for `join_answer`."""
    letter = parts[0]
    large = _LARGE[letter[:LETTER_BYTES]]
    return join_answer((large + letter[LETTER_BYTES:], *parts[1:]))


def split_answer(frame: bytes, tag_bytes: int = 0) -> list[bytes]:
    """The parts of a frame from an exchange: letter and body; five of an entry and its batch.

    One that cannot be taken apart is given back whole, as the only part.

    Args:
        tag_bytes: so many behind the letter are left out: they say which reader it is for.
    """
    letter, body_at = frame[:LETTER_BYTES], LETTER_BYTES + tag_bytes
    number_bytes = 0
    if letter in _LEASED:
        number_bytes = lease_bytes(frame, body_at)
    elif letter in _FETCHED:
        number_bytes = NUMBER.size
    if number_bytes:
        parts = split_live(frame, body_at + number_bytes)
        number = frame[body_at : body_at + number_bytes]
        return [letter, number, *parts] if len(parts) > 1 else [frame]
    if letter[:1] != END_OF_TOPIC:
        return [frame]
    return [letter, frame[body_at:]]


class Answers:
    """Takes the frames of one connection apart, and puts large batches to their entries.

    Args:
        tag_bytes: see `split_answer`.

    Attributes:
        tag: of what was taken last.
    """

    __slots__ = ("_entry", "_tag_bytes", "tag")

    def __init__(self, tag_bytes: int = 0) -> None:
        self.tag = b""
        self._tag_bytes = tag_bytes
        self._entry: list[bytes] | None = None
        """The parts of an entry whose batch is to come."""

    def take(self, frame: bytes) -> list[bytes] | None:
        """The parts as of `split_answer`; None: the rest is the next frame."""
        entry, self._entry = self._entry, None
        if entry is not None and frame[:1] != END_OF_TOPIC:
            return [_SMALL[entry[0]], *entry[1:], frame]
        parts = split_answer(frame, self._tag_bytes)
        self.tag = frame[LETTER_BYTES : LETTER_BYTES + self._tag_bytes]
        if parts[0] in _SMALL and len(parts) == _LARGE_PARTS:
            self._entry = parts
            return None
        return parts
