"""What a consumer group writes into its log, and what the next process makes of it."""

import pytest

from roq.errors import RemoteProtocolError
from roq.log.group_changes import GroupDelta, Mask, Tried
from roq.log.group_journal import GroupJournal
from roq.log.open_batches import OpenBatches
from roq.protocol.consuming import GroupSettings


def journal(batches: OpenBatches) -> GroupJournal:
    """Of a group that has written all of itself once."""
    made = GroupJournal("g", batches)
    assert made.take() is None, "at first all of the group is to be told"
    return made


def test_only_what_has_changed_is_written() -> None:
    batches = OpenBatches(0)
    for _ in range(4):
        batches.open(3, 0b111)
    kept = journal(batches)
    assert not kept.changed
    assert not kept.remembers
    for offset, bits in ((1, 0b111), (2, 0b001)):
        batches.finish(offset, bits)
        kept.note_done(offset)
    kept.note_tried(Tried(3, 0, 2, 1, "no"))
    assert kept.changed
    delta = kept.take()
    assert delta is not None
    assert (delta.base, delta.whole, delta.parts) == (0, [(1, 1)], [Mask(2, b"\x01")])
    assert delta.tried == [Tried(3, 0, 2, 1, "no")]
    assert delta.settings is None
    assert not kept.changed


def test_what_is_tried_again_and_again_takes_no_more_room_while_the_disk_takes_nothing() -> None:
    batches = OpenBatches(0)
    batches.open(3, 0b111)
    kept = journal(batches)
    for attempt in range(1, 100):
        for run in ((0, 3), (0, 1), (2, 1)):
            kept.note_tried(Tried(0, *run, attempt, "no"))
    delta = kept.take()
    assert delta is not None
    assert delta.tried == [Tried(0, *run, 99, "no") for run in ((0, 3), (0, 1), (2, 1))]


def test_what_the_base_has_passed_is_not_written_one_by_one() -> None:
    batches = OpenBatches(0)
    for _ in range(2):
        batches.open(1, 1)
    kept = journal(batches)
    kept.note_tried(Tried(0, 0, 1, 1, "no"))
    for offset in (0, 1):
        batches.finish(offset, 1)
        kept.note_done(offset)
    delta = kept.take()
    assert delta is not None
    assert (delta.base, delta.whole, delta.parts, delta.tried) == (2, [], [], [])


def test_another_process_knows_what_was_done_and_tried() -> None:
    batches = OpenBatches(5)
    for _ in range(3):
        batches.open(2, 0b11)
    batches.finish(6, 0b11)
    batches.finish(7, 0b10)
    written = journal(batches).snapshot([Tried(5, 0, 1, 2, "no")], GroupSettings(), 1, paused=False)
    found = OpenBatches(0)
    kept = GroupJournal("g", found)
    kept.apply(written, 100)
    assert found.base == 5
    assert [kept.known(offset) for offset in (5, 6, 7, 8)] == [0, None, 0b10, 0]
    assert kept.remembers
    assert kept.snapshot([], GroupSettings(), 1, paused=False) == written
    assert kept.take_known(5) == (0, [Tried(5, 0, 1, 2, "no")])
    assert kept.take_known(5) == (0, []), "it is looked at once"
    kept.drop_below(8)
    assert kept.known(7) == 0
    kept.restart()
    assert kept.take() is None, "all of a group that begins elsewhere is to be told"


def test_what_names_more_batches_than_a_group_looks_at_is_no_groups() -> None:
    kept = GroupJournal("g", OpenBatches(0))
    kept.apply(GroupDelta("g", 0, [(5, 20), (30, 180)]), 100)
    assert kept.known(209) is None
    for whole in ([(5, 1 << 62)], [(each * 50, 50) for each in range(5)]):
        with pytest.raises(RemoteProtocolError, match="than any group looks at"):
            kept.apply(GroupDelta("g", 0, whole), 100)
