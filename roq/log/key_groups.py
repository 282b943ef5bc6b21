"""Which member of a consumer group gets the messages of which keys. Pure.

Keys fall into groups (`roq.protocol.columns`). Of all members the one with the highest hash for a
key group is to have it, so that who comes or goes changes nothing between the others. A key group
moves when nothing of it is out: until then nobody gets anything more of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

import xxhash

from roq.protocol.columns import KEY_GROUP_COUNT

_LANES: Final = range(KEY_GROUP_COUNT + 1)
YES: Final = b"1"
NO: Final = b"0"


class KeyGroups:
    """Who has which key group."""

    def __init__(self) -> None:
        self._ranks: dict[bytes, list[int]] = {}
        """Of each member: its hash for each key group."""
        self._wanted: list[bytes | None] = [None for _ in _LANES]
        """Who is to have it."""
        self._holder: list[bytes | None] = [None for _ in _LANES]
        """Who has it, if anything of it is out."""
        self._out = [0 for _ in _LANES]
        """Leases with messages of it."""
        self._tables: dict[bytes, bytes] = {}
        self._lanes: dict[bytes, set[int]] | None = None
        """Of each member that may get more of any: of which. None: to be found again."""

    def join(self, member: bytes) -> None:
        """One member more, that was not here."""
        ranks = [xxhash.xxh3_64_intdigest(member + bytes((lane,))) for lane in _LANES]
        self._ranks[member] = ranks
        for lane, before in enumerate(self._wanted):
            if before is None or ranks[lane] > self._ranks[before][lane]:
                self._wanted[lane] = member
        self._changed()

    def leave(self, member: bytes) -> None:
        """It has gone, and nothing is out at it."""
        del self._ranks[member]
        for lane, before in enumerate(self._wanted):
            if before == member:
                self._wanted[lane] = max(
                    self._ranks, key=lambda each: self._ranks[each][lane], default=None
                )
        self._changed()

    def clear(self) -> None:
        """Nobody is here, and nothing is out."""
        self.__init__()  # type: ignore[misc]

    def allowed(self, member: bytes) -> bytes:
        """For each key group `YES` or `NO`: whether the member may get more of it.

        The same object until that changes for anybody.
        """
        table = self._tables.get(member)
        if table is None:
            mine = self.lanes(member)
            table = b"".join(YES if lane in mine else NO for lane in _LANES)
            self._tables[member] = table
        return table

    def lanes(self, member: bytes) -> Set[int]:
        """The key groups of which the member may get more. Of thousands of members most have none:
        to know that costs nothing for each."""
        if self._lanes is None:
            self._lanes = {}
            for lane, wanted in enumerate(self._wanted):
                if wanted is not None and self._may_hold(wanted, lane):
                    self._lanes.setdefault(wanted, set()).add(lane)
        return self._lanes.get(member, frozenset())

    def holdable(self, member: bytes, lanes: Iterable[int]) -> bytes:
        """As `allowed`, of these key groups alone: whether it may go on with what it has got of it
        before."""
        table = bytearray(NO * len(_LANES))
        for lane in lanes:
            if self._may_hold(member, lane):
                table[lane] = YES[0]
        return bytes(table)

    def taken(self, member: bytes, lanes: Iterable[int]) -> None:
        """The member has got a lease with messages of these."""
        for lane in lanes:
            if not self._out[lane] and self._wanted[lane] != member:
                self._changed()
            self._out[lane] += 1
            self._holder[lane] = member

    def over(self, lanes: Iterable[int]) -> bool:
        """Such a lease is over; whether any of them has moved by that."""
        moved = False
        for lane in lanes:
            self._out[lane] -= 1
            moved |= not self._out[lane] and self._holder[lane] != self._wanted[lane]
        if moved:
            self._changed()
        return moved

    def check(self, held: Iterable[tuple[bytes, Iterable[int]]]) -> None:
        """Assert the invariants.

        Args:
            held: of each lease its member and its key groups.
        """
        out = [0 for _ in _LANES]
        holders: dict[int, bytes] = {}
        for member, lanes in held:
            for lane in lanes:
                out[lane] += 1
                assert holders.setdefault(lane, member) == member  # noqa: S101
                assert self._holder[lane] == member  # noqa: S101
        assert out == self._out  # noqa: S101

    def _changed(self) -> None:
        self._tables.clear()
        self._lanes = None

    def _may_hold(self, member: bytes, lane: int) -> bool:
        return not self._out[lane] or self._holder[lane] == member
