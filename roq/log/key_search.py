"""Where in a log a key may be: of closed segments by their indexes, of all else as a whole. Pure.

segment closed -> due --load, in another thread--> made -> written with the next group
find: the newest first; a segment whose index is missing, or not whole, is told as a range
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from roq.log.files import Files, keys_name
from roq.log.key_index import KeyIndex, look_up, make_keys
from roq.log.log import NotAtHand
from roq.log.segment_reader import Segment

SEGMENTS_MAX: Final = 16
"""So many are looked up for one answer."""
PLACES_MAX: Final = 1_000
"""Of one answer, but for those of the segment that was looked up last."""
_FOUND_MAX: Final = 2 * SEGMENTS_MAX

Places = tuple[list[tuple[int, int]], int]
"""Ranges of offsets [first, behind the last), the newest first; and the offset down to which this
is all."""


class KeySearch:
    """Of one log.

    Args:
        files: its folder; read here, written by whoever gets what was made.
        closed: the segments that are complete, in order, as the log has them at any time.
        made: takes name and bytes of a file that is to be written.
    """

    def __init__(
        self, files: Files, closed: list[Segment], made: Callable[[tuple[str, bytes]], None]
    ) -> None:
        self._files = files
        self._closed = closed
        self._made = made
        self._waiting = list(closed)
        """Whose index may be missing; the newest at the end."""
        self._broken: set[str] = set()
        """Of these a look-up has found that the index is not whole, or missing."""
        self._found: OrderedDict[tuple[str, int], list[int] | None] = OrderedDict()

    def closes(self, segment: Segment) -> None:
        """This one is complete now. Of one without keys there is nothing to be found out."""
        if segment.keyed:
            self._waiting.append(segment)
        else:
            data = KeyIndex(segment.base, segment.end - segment.base).pack()
            self._made((keys_name(segment.name), data))

    def due(self, pause: Callable[[], None]) -> NotAtHand | None:
        """An index that is to be made: where, and what to do with it. None: there is none.

        Args:
            pause: called every few batches.
        """
        while self._waiting:
            segment = self._waiting.pop()
            if self._is_there(segment):
                return NotAtHand(
                    partial(self._make, segment, pause), partial(self._keep_made, segment)
                )
        return None

    def find(self, key: int, floor: int, before: int, open_at: int, *, patient: bool) -> Places:
        """Where below `before` batches with a message of this key may be.

        Args:
            key: `key_hash` of it.
            floor: of the log.
            open_at: where the segment begins that is not complete.
            patient: wait for the disk.

        Raises:
            NotAtHand: not patient, and something has to be read first.
        """
        places: list[tuple[int, int]] = []
        if open_at < before:
            _put(places, max(open_at, floor), before)
        reached, looked = min(open_at, before), 0
        for segment in reversed(self._closed):
            if segment.base >= before:
                continue
            if looked == SEGMENTS_MAX or len(places) >= PLACES_MAX:
                break
            found, behind = self._look_up(segment, key, patient=patient), min(segment.end, before)
            if found is None:
                _put(places, max(segment.base, floor), behind)
            else:
                for offset in reversed(found):
                    if floor <= offset < behind:
                        _put(places, offset, offset + 1)
            looked += 1
            reached = segment.base
        else:
            reached = min(reached, floor)
        # What is not there, or is made just now, may be there when somebody asks later.
        for asked in [each for each, told in self._found.items() if told is None]:
            del self._found[asked]
        return places, reached

    def _look_up(self, segment: Segment, key: int, *, patient: bool) -> list[int] | None:
        asked, load = (segment.name, key), partial(look_up, self._files, segment, key)
        keep = partial(self._keep_found, segment, key)
        if asked not in self._found:
            if not patient:
                raise NotAtHand(load, keep)
            keep(load())
        return self._found[asked]

    def _keep_found(self, segment: Segment, key: int, found: object) -> None:
        offsets = cast("list[int] | None", found)
        if offsets is None and segment not in self._waiting and self._is_there(segment):
            self._waiting.append(segment)
            self._broken.add(segment.name)
        self._found[segment.name, key] = offsets
        if len(self._found) > _FOUND_MAX:
            self._found.popitem(last=False)

    def _make(self, segment: Segment, pause: Callable[[], None]) -> bytes | None:
        """The file of an index that is missing, or is not whole; any thread."""
        broken = segment.name in self._broken  # perhaps of other keys than the one asked for here
        if not broken and look_up(self._files, segment, 0) is not None:
            return None
        try:
            return make_keys(self._files, segment, pause)
        except OSError:  # whoever asks for it has it tried again
            return None

    def _keep_made(self, segment: Segment, data: object) -> None:
        self._broken.discard(segment.name)
        if data is not None and self._is_there(segment):
            self._made((keys_name(segment.name), cast("bytes", data)))

    def _is_there(self, segment: Segment) -> bool:
        return any(each is segment for each in self._closed)


def _put(places: list[tuple[int, int]], first: int, behind: int) -> None:
    """One more below those before; joined to the last one if it touches it."""
    if places and places[-1][0] == behind:
        places[-1] = first, places[-1][1]
    elif first < behind:
        places.append((first, behind))
