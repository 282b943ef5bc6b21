"""What of a consumer group stands in its log: what has changed since the last look, what an earlier
process has left, and all of it at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from roq.errors import RemoteProtocolError
from roq.log.group_changes import GroupDelta, Mask, Tried, mask_of, stretches_of
from roq.log.open_batches import OpenBatches
from roq.protocol.consuming import GroupSettings


class GroupJournal:
    """What one group writes into its log, and reads from it.

    Args:
        name: of the group.
        open_batches: what the group has begun with.
    """

    def __init__(self, name: str, open_batches: OpenBatches) -> None:
        self._name = name
        self._open = open_batches
        self._changed: set[int] = set()
        self._changed_tried: dict[tuple[int, int, int], Tried] = {}
        """By offset, first and length: while the disk takes nothing, the last try of each stays."""
        self._dirty = self._all = True
        """Whether anything has changed, and whether all of it is to be told."""
        self._known: dict[int, int | None] = {}
        """Of batches that were not looked at since the start: bits that are done; None: all."""
        self._tried: dict[int, list[Tried]] = {}
        """Likewise: what was tried."""

    # --- what changes -----------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self._dirty or self._open.moved

    def note_done(self, offset: int) -> None:
        """Messages of this batch are done."""
        self._dirty = True
        self._changed.add(offset)

    def note_tried(self, tried: Tried) -> None:
        """These messages were tried, and are not done."""
        self._dirty = True
        self._changed_tried.pop(tried[:3], None)  # what was tried last is applied last
        self._changed_tried[tried[:3]] = tried

    def note_all(self) -> None:
        """What counts for all of the group has changed."""
        self._dirty = self._all = True

    def restart(self) -> None:
        """The group begins anew elsewhere: nothing of what was counts."""
        for held in (self._known, self._tried, self._changed, self._changed_tried):
            held.clear()
        self.note_all()

    def take(self) -> GroupDelta | None:
        """What has changed since the last call; None: all of the group is to be told."""
        delta = None
        if not self._all:
            changed = sorted(offset for offset in self._changed if offset >= self._open.base)
            delta = GroupDelta(
                self._name,
                self._open.base,
                stretches_of([offset for offset in changed if offset not in self._open.bits]),
                [self._open.done(offset) for offset in changed if offset in self._open.bits],
                [each for each in self._changed_tried.values() if each.offset >= self._open.base],
            )
        self.drop()
        self._all = False
        return delta

    def drop(self) -> None:
        """Nobody wants to know what has changed."""
        self._dirty = self._open.moved = False
        self._changed.clear()
        self._changed_tried.clear()

    def snapshot(
        self,
        tried: Iterable[Tried],
        settings: GroupSettings,
        created_us: int,
        *,
        paused: bool,
        sought_us: int = 0,
    ) -> GroupDelta:
        """All of the group, as it stands.

        Args:
            tried: what of the open messages was tried.
        """
        known = self._known
        done = [offset for offset in self._open.offsets() if offset not in self._open.bits]
        done += sorted(offset for offset, bits in known.items() if bits is None)
        parts: list[Mask] = [mask for mask in map(self._open.done, self._open.bits) if mask.done]
        parts += [mask_of(offset, bits) for offset, bits in known.items() if bits]
        before = [each for runs in self._tried.values() for each in runs]
        return GroupDelta(
            self._name, self._open.base, stretches_of(done), parts, [*before, *tried], settings,
            created_us, paused, sought_us=sought_us,
        )  # fmt: skip

    # --- what an earlier process has left ---------------------------------------------------------

    def apply(self, delta: GroupDelta, most: int) -> None:
        """Take in what an earlier process has written, in order.

        Args:
            most: so many batches a group looks at.

        Raises:
            RemoteProtocolError: no group has written that: it names more batches than one looks at.
        """
        # A snapshot has those that were looked at, and what an earlier one has left of others.
        if sum(count for _, count in delta.whole) > 2 * most:
            raise RemoteProtocolError(
                f"a log says that group {self._name} has done more batches above offset "
                f"{delta.base} than any group looks at"
            )
        if delta.settings is not None:
            self._known.clear()
            self._tried.clear()
        self._open.restart(delta.base)
        for first, count in delta.whole:
            self._known.update(dict.fromkeys(range(first, first + count)))
        for offset, done in delta.parts:
            before = self._known.get(offset, 0)
            if before is not None:
                self._known[offset] = before | int.from_bytes(done, "little")
        for each in delta.tried:
            self._tried.setdefault(each.offset, []).append(each)
        self.drop_below(self._open.base)
        self.note_all()

    @property
    def remembers(self) -> bool:
        """Whether anything is known of batches that were not looked at."""
        return bool(self._known or self._tried)

    def known(self, offset: int) -> int | None:
        """Which messages of a batch that was not looked at are done, as bits; None: all."""
        return self._known.get(offset, 0)

    def take_known(self, offset: int) -> tuple[int, list[Tried]]:
        """The batch is looked at now: which of its messages are done, and what was tried."""
        return self._known.pop(offset, 0) or 0, self._tried.pop(offset, [])

    def drop_below(self, floor: int) -> None:
        """What is below has left the log."""
        for held in (self._known, self._tried):
            for offset in [each for each in held if each < floor]:
                del held[offset]
