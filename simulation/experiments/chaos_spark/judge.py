"""Whether what came out is what was put in: as multisets, and in order. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from roq.model import LogId

SHOWN: Final = 3
"""Of many examples."""

K = TypeVar("K", bound=Hashable)


class Row(NamedTuple):
    """A message, wherever it stands."""

    publisher: bytes
    topic: str
    sequence: int
    payload: bytes

    @property
    def place(self) -> tuple[bytes, str, int]:
        """What makes it unique in its queue."""
        return self.publisher, self.topic, self.sequence


class Loss(NamedTuple):
    """A log that went when its exchange was killed.

    Attributes:
        log: which one.
        offsets: of what stood in it shortly before, by payload.
        late: what was published from then on until the exchange was dead: perhaps it stood there,
            too.
    """

    log: LogId
    offsets: Mapping[bytes, int]
    late: frozenset[bytes]

    def sent_again(self) -> frozenset[bytes]:
        """What may stand in another log as well: publishers did not know whether it was safe."""
        return self.late.union(self.offsets)

    def unread(self, read: int) -> frozenset[bytes]:
        """What may be missing where the log had been read up to this offset."""
        return self.late.union(key for key, offset in self.offsets.items() if offset >= read)


def differences(
    what: str,
    wanted: Iterable[K],
    found: Iterable[K],
    *,
    lost: Container[K] = (),
    again: Container[K] = (),
) -> list[str]:
    """How two multisets differ, in sentences; none if they do not.

    Args:
        lost: these may be missing.
        again: these may be there more than once.
    """
    left, right = Counter(wanted), Counter(found)
    missing = Counter({key: n for key, n in (left - right).items() if key not in lost})
    more = right - left
    told = []
    if missing:
        told.append(f"{what}: {missing.total()} messages are missing, such as {_some(missing)}")
    if more:
        doubled = Counter({key: count for key, count in more.items() if left[key]})
        foreign = more - doubled
        doubled = Counter({key: count for key, count in doubled.items() if key not in again})
        if doubled:
            told.append(f"{what}: {doubled.total()} doubles, such as {_some(doubled)}")
        if foreign:
            told.append(f"{what}: {foreign.total()} that nobody sent, such as {_some(foreign)}")
    return told


def disorder(what: str, stretches: Mapping[str, Sequence[Row]]) -> list[str]:
    """Where sequences of one publisher and topic do not rise within a stretch, in sentences.

    Args:
        stretches: what must be in order, each by the name under which people know it.
    """
    told = []
    for name, rows in stretches.items():
        newest: dict[tuple[bytes, str], int] = {}
        for row in rows:
            stream = row.publisher, row.topic
            if row.sequence <= newest.get(stream, -1):
                told.append(
                    f"{what}: in {name} {row.topic!r} {row.sequence} comes after {newest[stream]}"
                )
                break
            newest[stream] = row.sequence
    return told


def distinct(rows: Iterable[Row]) -> list[Row]:
    """The first of each place, as `dropDuplicates` leaves them."""
    return list({row.place: row for row in reversed(list(rows))}.values())[::-1]


def back(rows: Sequence[Row], source: Mapping[bytes, tuple[str, Row]]) -> dict[str, list[Row]]:
    """What was copied, as it was called where it came from: by copier and log, in order.

    Args:
        rows: messages whose payloads stand in `source`.
        source: by payload, the log and the message that was copied.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.payload in source:
            log, original = source[row.payload]
            found.setdefault(f"{row.publisher.hex()[:8]} from {log}", []).append(original)
    return found


def _some(keys: Mapping[K, int]) -> str:
    return ", ".join(f"{key!r:.60}" for key in list(keys)[:SHOWN])
