"""A log that is repaired by hand: what goes is copied first, and nothing is guessed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from memory_files import MemoryFiles
from stored_log import BATCH, made, settings
from xxhash import xxh3_64_intdigest

from roq.log.disk_groups import perform
from roq.log.files import (
    INDEX_SUFFIX,
    KEYS_SUFFIX,
    META,
    NEW_SUFFIX,
    SEGMENT_SUFFIX,
    LogRefused,
    parse_name,
    segment_name,
)
from roq.log.records import HEAD_BYTES, SegmentHead, pack_head, read_head
from roq.log.recovery import ASIDE_SUFFIX, open_log
from roq.log.repair import Way, plan, repair
from roq.log.segments import SegmentLog
from roq.log.survey import LogSurvey, holds_nothing
from roq.log.valid_segments import EPOCHS_END
from roq.simulation.virtual.lossy_files import LossyFiles

HALF = META + NEW_SUFFIX


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
    name = names(files)[-1]
    last = files.contents[name]
    last[4:6] = (9).to_bytes(2, "little")
    last[64:72] = xxh3_64_intdigest(last[:64]).to_bytes(8, "little")
    last[HEAD_BYTES:] = bytes(len(last) - HEAD_BYTES)
    for look in (plan, lambda files: open_log(files, settings(6))):
        with pytest.raises(LogRefused, match="has format 9: install the version"):
            look(files)
    survey = LogSurvey(files)
    (refused,) = survey.refused
    assert refused == f"{name}: it has format 9: install the version of RoQ that wrote it"
    assert len(list(survey.entries())) == 30


@pytest.mark.parametrize("bit", range(16))
def test_a_bit_of_the_format_costs_no_entry(bit: int) -> None:
    files = made()
    files.contents[names(files)[1]][4 + bit // 8] ^= 1 << bit % 8
    survey = LogSurvey(files)
    assert (survey.refused, len(list(survey.entries()))) == ([], 35)
    assert plan(files) == []
    log = open_log(files, settings(6))
    assert [offset for offset in range(35) if log.record(offset) is None] == []


def empty(files: MemoryFiles) -> bytearray:
    assert files
    return bytearray()


def zeros(files: MemoryFiles) -> bytearray:
    assert files
    return bytearray(500)


def rotten_of_another_log(files: MemoryFiles) -> bytearray:
    data = of_another_log(files)[:]
    data[20] ^= 1
    return data


@pytest.mark.parametrize(("base", "epoch"), [(0, 9), (20, 9), (20, 5), (5_000_000_000, 9)])
@pytest.mark.parametrize("holds", [empty, zeros, rotten_of_another_log])
def test_what_only_has_the_name_of_a_segment_is_told_and_left_and_set_aside(
    holds: Callable[[MemoryFiles], bytearray], base: int, epoch: int
) -> None:
    """A start, `verify` and a repair follow one rule."""
    files, bogus = made(), segment_name(base, epoch)
    if bogus in files.contents:
        bogus = segment_name(base + 3, epoch)
    data = holds(files)
    files.contents[bogus] = data[:]
    survey = LogSurvey(files)
    assert survey.refused == []
    (strange,) = survey.strange
    assert strange.startswith(f"{bogus}: its head cannot be read")
    assert [each.offset for each in survey.entries()] == list(range(35))
    steps = plan(files)
    assert [(step.way, step.name) for step in steps] == [(Way.ASIDE, bogus)]
    for later in (6, 20, 30):
        log = open_log(files, settings(later))
        assert log.end == 35
        assert [offset for offset in range(35) if log.record(offset) is None] == []
        (problem,) = log.recovered.problems
        assert problem.startswith(bogus)
        assert files.contents[bogus] == data
    _, aside = done(files)
    assert dict(aside.contents) == {bogus: data}


def test_a_file_of_another_log_with_a_rotten_head_does_not_count_where_one_of_ours_could_be() -> (
    None
):
    files, bogus = made(), segment_name(35, 9)
    files.contents[bogus] = rotten_of_another_log(files)
    (problem,) = open_log(files, settings(6)).recovered.problems
    assert "its records are of another log" in problem
    assert bogus in files.names()


def test_a_torn_segment_that_a_power_cut_has_brought_back_is_removed() -> None:
    files = made()
    torn = segment_name(30, 4)
    files.contents[torn] = bytearray(100)
    assert LogSurvey(files).strange == []
    assert open_log(files, settings(6)).recovered.problems == []
    assert torn not in files.names()


@pytest.mark.parametrize("epoch", [(1 << 64) - 2, EPOCHS_END])
def test_an_epoch_that_no_process_has_had_is_told_by_name(epoch: int) -> None:
    files, bogus = made(), segment_name(20, epoch)
    head = SegmentHead(b"q" * 16, 3, 5, epoch, 20, 0)
    files.contents[bogus] = bytearray(pack_head(head))
    with pytest.raises(LogRefused, match=f"{bogus}: it names an epoch that no process has had"):
        open_log(files, settings(6))
    survey = LogSurvey(files)
    assert len(survey.refused) == 1
    assert len(list(survey.entries())) == 35
    assert [(step.way, step.name) for step in plan(files)] == [(Way.ASIDE, bogus)]
    done(files)
    assert open_log(files, settings(6)).end == 35


def test_a_start_without_an_epoch_that_is_free_names_the_file() -> None:
    files, late = made(), segment_name(35, EPOCHS_END - 1)
    files.contents[late] = bytearray(pack_head(SegmentHead(b"q" * 16, 3, 5, EPOCHS_END - 1, 35, 0)))
    with pytest.raises(LogRefused, match=late):
        open_log(files, settings(6))


def by_an_earlier_version() -> MemoryFiles:
    """Processes with the epochs 5, 10 and 7 have written to one log, up to 50: an earlier version
    had each begin with the epoch that it was given."""
    files = made(20)
    for epoch, end in ((10, 24), (17, 50)):
        log = open_log(files, settings(epoch))
        while log.end < end:
            write_one(files, log)
    for name in names(files):
        base, epoch = parse_name(name) or (0, 0)
        if epoch == 17:
            data = files.contents.pop(name)
            head = read_head(bytes(data))
            assert head is not None
            data[:HEAD_BYTES] = pack_head(replace(head, epoch=7))
            files.contents[segment_name(base, 7)] = data
    return files


def write_one(files: MemoryFiles, log: SegmentLog[bytes]) -> None:
    log.append(b"t", BATCH, len(BATCH))
    group = log.gather(lambda: b"")
    assert group is not None
    perform(files, group)
    log.commit(group.end)


def test_what_was_acknowledged_under_a_lower_epoch_is_not_removed_in_silence() -> None:
    files = by_an_earlier_version()
    theirs = [name for name in names(files) if "-00000000000000000007" in name]
    assert len(theirs) == 3
    before = {name: bytes(data) for name, data in files.contents.items()}
    with pytest.raises(LogRefused, match=f"{theirs[0]}.*{segment_name(19, 10)}.*`roq log repair`"):
        open_log(files, settings(11))
    assert {name: bytes(data) for name, data in files.contents.items()} == before
    assert [line.split(":")[0] for line in LogSurvey(files).refused] == theirs
    assert {step.name for step in plan(files)} >= set(theirs)
    _, aside = done(files)
    assert set(theirs) <= set(aside.contents)
    assert open_log(files, settings(11)).end == 24


@pytest.mark.parametrize("later", [False, True])
def test_one_group_that_a_later_process_with_a_lower_epoch_has_written_is_kept(
    *, later: bool
) -> None:
    """It claims no more than the segment that displaces it, which a power cut has brought back."""
    files, theirs, by = MemoryFiles(), segment_name(0, 7), segment_name(0, 10)
    write_one(files, open_log(files, replace(settings(7), now_us=2_000)))
    data = files.contents[theirs]
    head = SegmentHead(b"q" * 16, 3, 7, 10, 0, 1_000 if later else 3_000)
    files.contents[by] = bytearray(pack_head(head))
    log = open_log(files, settings(11))
    assert theirs not in files.names()
    kept = {name: each for name, each in files.contents.items() if name.endswith(ASIDE_SUFFIX)}
    assert kept == ({theirs + ASIDE_SUFFIX: data} if later else {})
    told = [problem for problem in log.recovered.problems if problem.startswith(theirs)]
    assert len(told) == later


def test_what_a_later_process_has_written_again_is_removed_whatever_clocks_said() -> None:
    """Its removal was not on the disk when the power went."""
    files = made(20)
    open_log(files, replace(settings(9), now_us=5_000))
    there = {name: data[:] for name, data in files.contents.items()}
    open_log(files, replace(settings(10), now_us=1_000))
    back = [name for name in there if name not in files.names()]
    assert segment_name(19, 9) in back
    files.contents |= {name: there[name] for name in back}
    log = open_log(files, settings(11))
    assert log.end == 20
    assert log.recovered.problems == []
    assert not any(name.endswith(ASIDE_SUFFIX) for name in files.names())


def test_segments_that_leave_while_a_log_is_looked_at_are_passed_over() -> None:
    """The exchange runs meanwhile."""

    class Leaving(MemoryFiles):
        listed = False

        def names(self) -> list[str]:
            there = super().names()
            if self.listed:
                for name in (first, first.replace(SEGMENT_SUFFIX, INDEX_SUFFIX)):
                    self.remove(name)
            return there

    whole = made()
    first, second = names(whole)[:2]
    files = Leaving()
    files.contents = whole.contents
    files.listed = True
    survey = LogSurvey(files)
    assert [each.offset for each in survey.entries()] == list(range(10, 35))
    files.remove(second)
    assert [each.offset for each in survey.entries()] == list(range(20, 35))
    assert [each.first for each in survey.segments()] == [20, 30]


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


def test_what_is_set_aside_hits_no_half_of_it_that_was_set_aside_before() -> None:
    name = f"{100:020d}-{5:020d}{SEGMENT_SUFFIX}"
    foreign, aside = bytes(of_another_log(made())), MemoryFiles()
    for lies, data in ((name + NEW_SUFFIX, b"half"), (name, foreign)):
        files = made()
        files.contents[lies] = bytearray(data)
        repair(files, aside, plan(files))
    assert {each: bytes(data) for each, data in aside.contents.items()} == {
        name + NEW_SUFFIX: b"half", name: foreign,
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
