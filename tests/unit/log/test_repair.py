"""A log that is repaired by hand: what goes is copied first, and nothing is guessed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from memory_files import MemoryFiles

from roq.log.disk_groups import perform
from roq.log.files import (
    INDEX_SUFFIX,
    KEYS_SUFFIX,
    META,
    NEW_SUFFIX,
    SEGMENT_SUFFIX,
    LogRefused,
    segment_name,
)
from roq.log.records import HEAD_BYTES
from roq.log.recovery import LogSettings, open_log
from roq.log.repair import Way, plan, repair
from roq.log.survey import LogSurvey, holds_nothing
from roq.simulation.virtual.lossy_files import LossyFiles

BATCH = b"x" * 100
HALF = META + NEW_SUFFIX


def settings(epoch: int, queue: bytes = b"q" * 16, *, ahead: bool = False) -> LogSettings:
    return LogSettings(
        queue=queue, exchange=3, epoch=epoch, cluster="c", host="h", ring_bytes=1, topics_max=100,
        topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
        segment_bytes=1 << 30, segment_entries=10, ahead=ahead,
    )  # fmt: skip


def made(count: int = 35, queue: bytes = b"q" * 16) -> MemoryFiles:
    files = MemoryFiles()
    log = open_log(files, settings(5, queue))
    for number in range(count):
        log.advance_clock(1_000 + number)
        log.append(b"t", BATCH, len(BATCH))
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    return files


def names(files: MemoryFiles, suffix: str = SEGMENT_SUFFIX) -> list[str]:
    return sorted(name for name in files.names() if name.endswith(suffix))


def done(files: MemoryFiles) -> tuple[list[Way], MemoryFiles]:
    """Repair it; what was done, and what was set aside."""
    steps, aside = plan(files), MemoryFiles()
    repair(files, aside, steps)
    assert plan(files) == []
    return [step.way for step in steps], aside


def test_a_log_that_is_whole_is_left_alone() -> None:
    files = made()
    before = {name: bytes(data) for name, data in files.contents.items()}
    assert plan(files) == []
    assert {name: bytes(data) for name, data in files.contents.items()} == before


def test_offsets_that_were_left_out_are_no_loss() -> None:
    files = MemoryFiles()
    for epoch in range(5, 9):
        log = open_log(files, settings(epoch, ahead=True))
        for _ in range(3):
            log.append(b"t", BATCH, len(BATCH))
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    assert len(names(files)) == 4
    assert plan(files) == []
    damaged = names(files, INDEX_SUFFIX)[1]
    before = bytes(files.contents[damaged])
    files.remove(damaged)
    assert done(files)[0] == [Way.INDEX]
    assert bytes(files.contents[damaged]) == before


def test_an_end_that_is_no_whole_record_is_cut_off_and_copied() -> None:
    files = made()
    last = names(files)[-1]
    whole = bytes(files.contents[last])
    files.contents[last] = bytearray(whole[:-40])
    ways, aside = done(files)
    assert ways == [Way.CUT]
    (kept,) = aside.contents.values()
    assert bytes(files.contents[last]) + bytes(kept) == whole[:-40]
    log = open_log(files, settings(6))
    assert (log.end, log.recovered.problems) == (34, [])


def test_an_entry_that_is_damaged_is_told_to_the_next_start() -> None:
    files = made()
    files.contents[names(files)[1]][500] ^= 4
    ways, aside = done(files)
    assert ways == [Way.SKIP]
    assert aside.contents == {}
    log = open_log(files, settings(6))
    ((first, behind),) = log.recovered.lost
    assert behind == first + 1
    assert [offset for offset in range(35) if log.record(offset) is None] == [first]


@pytest.mark.parametrize("broken", ["missing", "torn"])
def test_an_index_that_is_not_of_its_segment_is_made_again(broken: str) -> None:
    files = made()
    name = names(files, INDEX_SUFFIX)[1]
    before = bytes(files.contents[name])
    if broken == "missing":
        files.remove(name)
    else:
        files.contents[name] = files.contents[name][:-3]
    assert done(files)[0] == [Way.INDEX]
    assert bytes(files.contents[name]) == before


def test_files_that_do_not_belong_there_are_set_aside_and_a_start_takes_the_log_again() -> None:
    files, other = made(), made(queue=b"r" * 16)
    foreign = f"{100:020d}-{5:020d}{SEGMENT_SUFFIX}"
    files.contents[foreign] = other.contents[names(other)[0]]
    with pytest.raises(LogRefused):
        open_log(files, settings(6))
    files.contents[HALF] = bytearray(b"half")
    ways, aside = done(files)
    assert ways == [Way.ASIDE, Way.ASIDE]
    assert set(aside.contents) == {foreign, HALF}
    assert open_log(files, settings(6)).end == 35


@pytest.mark.parametrize(("base", "epoch"), [(0, 6), (100, 1)])
def test_a_foreign_segment_costs_nothing_whether_ours_or_it_would_not_count(
    base: int, epoch: int
) -> None:
    files, other = made(), made(queue=b"r" * 16)
    log = open_log(files, settings(7))
    log.append(b"t", BATCH, len(BATCH))
    group = log.gather(lambda: b"")
    assert group is not None
    perform(files, group)
    foreign = f"{base:020d}-{epoch:020d}{SEGMENT_SUFFIX}"
    files.contents[foreign] = other.contents[names(other)[0]]
    files.contents[HALF] = bytearray(b"half")
    before = {name: bytes(data) for name, data in files.contents.items()}
    with pytest.raises(LogRefused, match="segment of another log"):
        open_log(files, settings(8))
    assert {name: bytes(data) for name, data in files.contents.items()} == before
    assert done(files)[0] == [Way.ASIDE, Way.ASIDE]
    again = open_log(files, settings(8))
    assert [offset for offset in range(36) if again.record(offset) is None] == []


def test_a_folder_that_does_not_say_whose_it_is_is_not_guessed() -> None:
    files = made()
    files.contents[META] = bytearray(b"{")
    with pytest.raises(LogRefused, match="Restore it"):
        plan(files)


def test_an_index_of_keys_that_is_torn_is_told_and_set_aside() -> None:
    files = made()
    log = open_log(files, settings(6))
    while (due := log.keys.due(lambda: None)) is not None:
        due.keep(due.load())
    group = log.gather(lambda: b"")
    assert group is not None
    perform(files, group)
    assert plan(files) == []
    assert [each for part in LogSurvey(files).segments() for each in part.problems] == []
    first, second = names(files, KEYS_SUFFIX)[:2]
    files.contents[first] = files.contents[first][:-3]
    stray = second.replace("0", "1", 1)
    files.contents[stray] = files.contents[second][:]
    problems = [each for part in LogSurvey(files).segments() for each in part.problems]
    assert problems == ["its index of keys is not whole; the exchange makes it again"]
    ways, aside = done(files)
    assert ways == [Way.ASIDE, Way.ASIDE]
    assert sorted(aside.names()) == sorted([first, stray])
    assert first not in files.names()


def test_a_log_of_a_newer_format_is_told_and_not_cut_off() -> None:
    files = made()
    last = files.contents[names(files)[-1]]
    last[4:6] = (9).to_bytes(2, "little")
    last[HEAD_BYTES:] = bytes(len(last) - HEAD_BYTES)
    for look in (plan, LogSurvey, lambda files: open_log(files, settings(6))):
        with pytest.raises(LogRefused, match="has format 9: install the version"):
            look(files)


def of_another_log(files: MemoryFiles) -> bytearray:
    assert files
    other = made(queue=b"r" * 16)
    return other.contents[names(other)[0]]


def one_of_ours(files: MemoryFiles) -> bytearray:
    return files.contents[names(files)[1]][:]


@pytest.mark.parametrize(
    ("found", "why"),
    [(of_another_log, "a segment of another log"), (one_of_ours, "a copy of 0.* another name")],
)
def test_a_segment_that_a_start_refuses_is_told_hides_nothing_and_is_set_aside(
    found: Callable[[MemoryFiles], bytearray], why: str
) -> None:
    """By its name it would have all others not count, and what does not count is removed."""
    files = made()
    foreign = segment_name(0, 9)
    files.contents[foreign] = found(files)
    before = {name: bytes(data) for name, data in files.contents.items()}
    with pytest.raises(LogRefused, match=why):
        open_log(files, settings(6))
    assert {name: bytes(data) for name, data in files.contents.items()} == before
    survey = LogSurvey(files)
    assert [line.split(":")[0] for line in survey.refused] == [foreign]
    assert sum(part.entries for part in survey.segments()) == 35
    ways, aside = done(files)
    assert ways == [Way.ASIDE]
    assert set(aside.contents) == {foreign}
    log = open_log(files, settings(6))
    assert [offset for offset in range(35) if log.record(offset) is None] == []


def test_what_an_earlier_repair_has_set_aside_stays() -> None:
    """Logs of two queues have files of the same names, and the folder beside them has, too."""
    aside, halves = MemoryFiles(), [b"one", b"two", b"two"]
    for half in halves:
        files = made()
        files.contents[HALF] = bytearray(half)
        repair(files, aside, plan(files))
    assert {name: bytes(data) for name, data in aside.contents.items()} == {
        HALF: b"one", f"{HALF}.2": b"two",
    }  # fmt: skip


class Killed(BaseException):
    """The process has ended here."""


def lossy(files: MemoryFiles) -> LossyFiles:
    """A folder with these, all on the disk."""
    disk = LossyFiles()
    for name, data in files.contents.items():
        disk.create(name)
        disk.write(name, 0, [data])
        disk.sync(name)
    disk.sync_folder()
    return disk


@pytest.mark.parametrize("power", [False, True])
def test_a_repair_that_is_killed_anywhere_is_done_by_the_next_one(*, power: bool) -> None:
    """And no more is taken out than by one that was not."""
    damaged = made()
    stray = damaged.contents[names(damaged, INDEX_SUFFIX)[0]]
    first, second, _, last = names(damaged)
    damaged.contents[segment_name(100, 1)] = of_another_log(damaged)
    damaged.contents["9".zfill(20) + "-" + "1".zfill(20) + INDEX_SUFFIX] = stray[:]
    damaged.contents[last] = damaged.contents[last][:-40]
    damaged.contents[second][500] ^= 4
    damaged.remove(names(damaged, INDEX_SUFFIX)[2])
    whole, kept = lossy(damaged), LossyFiles()
    repair(whole, kept, plan(whole))
    at, chance = 0, random.Random(1)
    while True:
        files, aside = lossy(damaged), LossyFiles()
        left = at

        def fail(call: str) -> None:
            nonlocal left
            if call not in {"read", "size"}:
                left -= 1
                if left < 0:
                    raise Killed

        files.fail = aside.fail = fail
        try:
            repair(files, aside, plan(files))
        except Killed:
            pass
        else:
            break
        files.fail = aside.fail = lambda _: None
        if power:
            files, aside = files.power_cut(chance), aside.power_cut(chance)
        repair(files, aside, plan(files))
        assert plan(files) == []
        for disk, wanted in ((files, whole), (aside, kept)):
            there = {
                name: disk.read(name, 0, disk.size(name))
                for name in disk.names()
                if not name.endswith(NEW_SUFFIX) or disk is files
            }
            for name in wanted.names():
                data = wanted.read(name, 0, wanted.size(name))
                assert data in (each for to, each in there.items() if to.startswith(name)), (
                    at,
                    name,
                )
            if disk is files:
                assert set(there) == set(wanted.names())
        at += 1
    assert at > 20
    assert first in whole.names()


def test_a_log_beside_which_something_else_lies_is_not_taken_for_empty() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(5))
    group = log.gather(lambda: b"", lambda: b"a group")
    assert group is not None
    perform(files, group)
    assert holds_nothing(files)
    files.contents["notes.txt"] = bytearray(b"mine")
    assert not holds_nothing(files)
