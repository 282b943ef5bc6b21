"""How far a group is in its log; what members do with it stands in `test_groups`."""

from __future__ import annotations

from roq.log.group_progress import GroupProgress
from roq.log.ring import Ring
from roq.model import PublisherId
from roq.protocol.batch import pack
from roq.protocol.consuming import GroupSettings


def test_what_is_looked_at_is_open_until_it_is_done() -> None:
    log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=1 << 20, topics_max=8)
    for topic in (b"a", b"b", b"a"):
        data = pack(
            [b"x"] * 2, publisher=PublisherId(b"p" * 16), epoch=0, link_number=1, first_sequence=0,
            created_us=0,
        )  # fmt: skip
        assert log.append(topic, data, len(data)) is not None
    progress = GroupProgress("g", log, GroupSettings(prefixes=(b"a",)), 0, 0.0)
    for _ in range(3):
        progress._open_next()
    assert (progress.base, progress.next) == (0, 3)
    assert {piece.offset: piece.amount for piece in progress._free} == {0: 2, 2: 2}
    progress._finish(0, 0b11)
    assert progress.base == 2, "behind what is done, and what is of another topic"
    assert not progress._is_done(2, 0, 2)
