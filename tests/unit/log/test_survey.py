"""A log is gone over without being changed: what is there, and what cannot be read."""

from __future__ import annotations

import pytest
from memory_files import MemoryFiles
from stored_log import BATCH, made

from roq.log.files import SEGMENT_SUFFIX, LogRefused
from roq.log.records import HEAD_BYTES
from roq.log.survey import LogSurvey, holds_nothing


def segments(files: MemoryFiles) -> list[str]:
    return sorted(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))


def test_each_segment_says_what_it_holds_and_nothing_is_changed() -> None:
    files = made(25)
    before = {name: bytes(data) for name, data in files.contents.items()}
    survey = LogSurvey(files)
    found = list(survey.segments())
    assert (survey.meta.exchange, survey.refused, survey.strange) == (3, [], [])
    assert [(each.first, each.entries) for each in found] == [(0, 10), (10, 10), (20, 5)]
    assert [each.appended_us for each in found] == [(1_000, 1_009), (1_010, 1_019), (1_020, 1_024)]
    assert [(each.lost, each.problems) for each in found] == [([], [])] * 3
    assert {name: bytes(data) for name, data in files.contents.items()} == before


def test_entries_are_given_from_an_offset_on() -> None:
    survey = LogSurvey(made(25))
    assert [each.offset for each in survey.entries(17)] == list(range(17, 25))
    assert list(survey.entries(25)) == []


def test_what_is_damaged_in_the_middle_is_told_as_lost_and_the_rest_is_read() -> None:
    files = made(25)
    data = files.contents[segments(files)[0]]
    place = data.index(BATCH, data.index(BATCH) + len(BATCH))  # of the second entry
    data[place] ^= 1
    first, *others = LogSurvey(files).segments()
    assert (first.lost, first.entries) == ([(1, 2)], 9)
    assert [each.lost for each in others] == [[], []]


def test_the_end_of_the_last_segment_may_be_torn() -> None:
    files = made(25)
    last = files.contents[segments(files)[-1]]
    del last[-3:]
    *_, found = LogSurvey(files).segments()
    assert (found.entries, found.lost) == (4, [])
    (problem,) = found.problems
    assert problem.endswith("what was being written; the next start cuts it off")


def test_a_segment_that_leaves_meanwhile_is_passed_over() -> None:
    files = made(25)
    survey = LogSurvey(files)
    files.remove(segments(files)[0])
    assert [each.first for each in survey.segments()] == [10, 20]
    assert [each.offset for each in survey.entries()] == list(range(10, 25))


def test_a_folder_that_is_no_log_is_refused_with_what_to_name() -> None:
    with pytest.raises(LogRefused, match="Name the folder of one exchange"):
        LogSurvey(MemoryFiles())


def test_a_log_without_an_entry_has_held_nothing() -> None:
    assert holds_nothing(MemoryFiles())
    assert holds_nothing(made(0))
    assert not holds_nothing(made(1))


def test_what_cannot_be_read_may_be_an_entry() -> None:
    files = made(1)
    (name,) = segments(files)
    del files.contents[name][HEAD_BYTES + 20 :]
    assert not holds_nothing(files)


def test_a_log_that_begins_later_has_held_something() -> None:
    files = made(15)
    files.remove(segments(files)[0])
    assert not holds_nothing(files)
