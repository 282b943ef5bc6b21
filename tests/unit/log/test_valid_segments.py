"""Which files of a folder are segments of its log, and which of these count."""

from __future__ import annotations

import pytest
from memory_files import MemoryFiles

from roq.log.files import segment_name
from roq.log.records import SegmentHead, pack_head
from roq.log.valid_segments import EPOCHS_END, SegmentPlace, Whose, counting, sort_out

OURS = Whose(b"q" * 16, 3, 5)


def head(base: int, epoch: int, whose: Whose = OURS) -> bytes:
    return pack_head(SegmentHead(*whose, epoch, base, 1_000))


def folder(*heads: tuple[int, int, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    for base, epoch, data in heads:
        files.create(segment_name(base, epoch))
        files.write(segment_name(base, epoch), 0, [data])
    return files


def numbers(places: list[SegmentPlace]) -> list[tuple[int, int]]:
    return [(each.base, each.epoch) for each in places]


def test_a_later_process_decides_from_where_it_began() -> None:
    named = ((0, 5), (10, 5), (20, 5), (10, 6), (30, 6))
    places = [SegmentPlace("", base, epoch) for base, epoch in named]
    count, displaced = counting(places)
    assert numbers(count) == [(0, 5), (10, 6), (30, 6)]
    assert sorted(numbers([each for each, _ in displaced])) == [(10, 5), (20, 5)]
    assert {(by.base, by.epoch) for _, by in displaced} == {(10, 6)}


@pytest.mark.parametrize(
    ("data", "epoch", "why"),
    [
        (head(10, 6, OURS._replace(queue=b"p" * 16)), 6, "a segment of another log (exchange 3"),
        (head(0, 5), 6, "a copy of"),
        (head(10, EPOCHS_END), EPOCHS_END, "an epoch that no process has had"),
    ],
    ids=["another log", "a copy", "an epoch"],
)
def test_a_file_of_another_log_and_a_copy_are_refused_before_it_is_decided_which_count(
    data: bytes, epoch: int, why: str
) -> None:
    files = folder((0, 5, head(0, 5)), (10, epoch, data))
    found = sort_out(files, files.names(), OURS)
    assert numbers(found.count) == [(0, 5)]
    (told,) = found.refused()
    assert told.startswith(f"{segment_name(10, epoch)}: ")
    assert why in told


def test_a_file_that_says_nothing_counts_only_where_one_of_ours_could_begin() -> None:
    files = folder((0, 5, head(0, 5)), (0, 9, b""), (10_000, 9, b""), (1, 6, b""))
    found = sort_out(files, files.names(), OURS)
    assert numbers(found.count) == [(0, 5)]
    assert sorted(each.name for each in found.strange) == [
        segment_name(0, 9), segment_name(1, 6), segment_name(10_000, 9),
    ]  # fmt: skip
    assert found.refused() == []


def test_a_file_that_has_gone_meanwhile_is_passed_over() -> None:
    files = folder((0, 5, head(0, 5)))
    found = sort_out(files, [*files.names(), segment_name(10, 5), "log.json"], OURS)
    assert numbers(found.count) == [(0, 5)]


@pytest.mark.parametrize("base", [29, 30], ids=["there", "behind"])
def test_what_a_later_process_has_passed_over_is_displaced_and_not_strange(base: int) -> None:
    """Empty, as its process died before it wrote: a start removes it, and a power cut may bring it
    back."""
    files = folder((0, 5, head(0, 5)), (base, 6, b""), (29, 7, head(29, 7) + bytes(200)))
    found = sort_out(files, files.names(), OURS)
    assert found.strange == []
    assert [(each.place.name, each.by.base) for each in found.displaced] == [
        (segment_name(base, 6), 29)
    ]
    assert numbers(found.count) == [(0, 5), (29, 7)]
