"""Nothing that was committed is lost, and nothing invented, whatever power and disk do.

The numbers of `SEEDS` are a choice of histories that are played each time; any range can be played
by `python tests/property/test_power_loss.py FIRST BEHIND`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import pytest

from roq.log.cursors import cursor
from roq.log.disk_groups import Group, Sync, perform, perform_sync, remove, settle, write
from roq.log.files import LogRefused
from roq.log.patient_reads import PatientReads
from roq.log.records import record_bytes
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.log.steady_clock import STANDS_SECONDS
from roq.protocol.channel import FetchRequest
from roq.protocol.entry import NONE, EntryKind, read_entry
from roq.simulation.virtual.lossy_files import LossyFiles, failing

SEEDS = (*range(397), 492, 1356, 200299)
"""The last two: a file that was removed comes back with the power; a hole in what nobody was
promised."""
STANDS_US = int(STANDS_SECONDS * 1_000_000)
"""After so long what was found may be old."""
TOPICS = [b"a", b"ab", b"b", b"c" * 40]


def settings(epoch: int, **others: int) -> LogSettings:
    given = {
        "ring_bytes": 4_000, "topics_max": 100, "topics_spare": 0, "capacity_bytes": 1 << 40,
        "keep_us": 1 << 50, "now_us": epoch * 1_000, "segment_bytes": 2_000, "segment_entries": 30,
        **others,
    }  # fmt: skip
    return LogSettings(queue=b"q" * 16, exchange=3, epoch=epoch, cluster="c", host="h", **given)


@dataclass
class Leaving:
    """Files that have left with groups which are committed, and are removed beside others."""

    names: list[str] = field(default_factory=list)
    most: int = 0
    """So many were there at once while something else was written."""

    def remove(self, files: LossyFiles, chance: random.Random) -> None:
        """None, some or all of them."""
        self.most = max(self.most, len(self.names))
        now = chance.randrange(len(self.names) + 1)
        names, self.names = self.names[:now], self.names[now:]
        remove(files, names)


@dataclass
class History:
    """One log through many lives."""

    chance: random.Random
    files: LossyFiles = field(default_factory=LossyFiles)
    entries: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    """All that was appended: topic, frame, batch."""
    promised: int = 0
    """What was committed in any life."""
    epoch: int = 0
    lives: int = 0
    now_us: int = 0
    left: int = 0
    """Times that something has left for its age."""
    limits: dict[str, int] = field(default_factory=dict)
    floor: int = 0
    """Below it, what has left may be there again, or not."""
    most: int = 1
    """Groups that are under way at once."""
    followed: int = 0
    leaving: Leaving = field(default_factory=Leaving)
    claims: float = 0.0
    """The part of the turns in which there is nothing but something else to know."""
    claimed: int = 0
    """What there was to know besides the entries: so many claims."""
    kept: int = 0
    """So many of them were committed in any life."""

    def live(self) -> None:
        """Open the log, look at all of it, append for a while, and die."""
        log = self.open()
        if log is None:
            return
        self.lives += 1
        self.leaving.names = []
        self.look(log)
        self.pass_time(log, 0)
        if self.chance.random() < 0.3:
            self.files.fail = failing(self.chance, 0.03)
        try:
            for _ in range(self.chance.randrange(12)):
                if not (self.idle(log) if self.chance.random() < 0.15 else self.turn(log)):
                    return
        except OSError:
            return  # it must not go on with this log
        finally:
            self.files.fail = lambda _: None

    def open(self) -> SegmentLog[bytes] | None:
        self.epoch += 1
        fails = self.chance.random() < 0.2
        if fails:
            self.files.fail = failing(self.chance, 0.1)
        try:
            return open_log(self.files, settings(self.epoch, now_us=self.now_us, **self.limits))
        except LogRefused:
            assert fails, "a log that is ours is never refused for good"
            return None
        finally:
            self.files.fail = lambda _: None

    def look(self, log: SegmentLog[bytes]) -> None:
        log.check()
        assert not log.recovered.lost, log.recovered
        assert not any("not count" in each for each in log.recovered.problems), log.recovered
        assert self.promised <= log.end <= len(self.entries), (log.end, self.promised)
        del self.entries[log.end :]
        assert log.floor <= self.floor
        for offset in range(log.floor, log.end):
            topic, frame, batch = self.entries[offset]
            record = log.record(offset)
            assert record is not None, offset
            assert (record[0].name, record[1], bytes(record[2])) == (topic, frame, batch)
        there = self.entries[log.floor :]
        assert log.kept == sum(record_bytes(topic, len(batch)) for topic, _, batch in there)
        since = log.recovered.since
        if log.recovered.snapshot is not None:
            known = {self.digest(since, many): many for many in range(self.kept, self.claimed + 1)}
            assert log.recovered.snapshot in known
            self.claimed = self.kept = known[log.recovered.snapshot]
        else:
            assert (since, self.kept) == (0, 0)
            self.claimed = 0
        for topic in TOPICS:
            assert log.hot.newest(topic) == self.newest(topic)
        self.promised = log.end

    def turn(self, log: SegmentLog[bytes]) -> bool:
        """Append some batches and have them written; whether the process lives on."""
        if self.most > 1:
            return self.crowd(log)
        if self.claims and self.chance.random() < self.claims:
            self.claimed += 1
            log.want_snapshot()
        else:
            self.append(log)
        group = log.gather(lambda: self.digest(log.end, self.claimed))
        assert group is not None
        self.floor = max(self.floor, log.floor)
        if self.claims and self.chance.random() < 0.2:
            write(self.files, group)
            return False
        perform(self.files, group)
        if self.chance.random() < 0.1:
            return False  # before it has heard of it
        self.commit(log, [group])
        self.kept = self.kept if group.snapshot is None else self.claimed
        return True

    def crowd(self, log: SegmentLog[bytes]) -> bool:
        """As `turn`; groups are written while others are synced."""
        log.follows_bytes = 1
        written: list[Group[bytes]] = []
        told: list[Group[bytes]] = []
        for _ in range(self.most):
            self.append(log)
            group = log.gather(lambda: self.digest(log.end))
            self.floor = max(self.floor, log.floor)
            if group is not None:
                self.followed += bool(written or told)
                write(self.files, group)
                written.append(group)
            self.leaving.remove(self.files, self.chance)
            if written and (group is None or self.chance.random() < 0.4):
                settle(self.files, written)  # what comes next may be written before it is heard of
                told, written = told + written, []
            if group is None or self.chance.random() < 0.4:
                self.commit(log, told)
                told = []
            if self.chance.random() < 0.1:
                return False
        if written:
            settle(self.files, written)
        self.commit(log, told + written)
        while log.committed < log.end and (group := log.gather(lambda: self.digest(log.end))):
            write(self.files, group)
            settle(self.files, [group])
            self.commit(log, [group])
        return True

    def append(self, log: SegmentLog[bytes]) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            topic = self.chance.choice(TOPICS)
            batch = self.chance.randbytes(self.chance.choice([0, 5, 90, 700]))
            before = self.newest(topic)
            frame = log.append(topic, batch, len(batch))
            assert frame is not None
            entry = read_entry(frame)
            assert entry.kind == EntryKind.ENTRY
            assert entry.previous == (NONE if before < 0 else before)
            self.entries.append((topic, frame, batch))

    def commit(self, log: SegmentLog[bytes], groups: list[Group[bytes]]) -> None:
        for group in groups:
            log.commit(group.end)
            self.leaving.names += group.removed if self.most > 1 else []
            self.promised = group.end
            self.floor = max(self.floor, log.floor)
            log.check()

    def idle(self, log: SegmentLog[bytes]) -> bool:
        """Time passes, and what is too old leaves; whether the process lives on."""
        self.pass_time(log, self.chance.choice([10, 400, 2_000]))
        floor = log.floor
        group = log.gather(lambda: self.digest(log.end, self.claimed))
        self.left += log.floor > floor
        self.floor = max(self.floor, log.floor)
        if group is not None:
            if self.most > 1:
                write(self.files, group)
                settle(self.files, [group])
                self.leaving.names += group.removed
            else:
                perform(self.files, group)
            if self.chance.random() < 0.2:
                return False
            log.commit(group.end)
        log.check()
        return True

    def pass_time(self, log: SegmentLog[bytes], more_us: int) -> None:
        """So much, and as much as a clock has to go evenly."""
        log.tell_time(self.now_us / 1_000_000, self.now_us)
        self.now_us += STANDS_US + more_us
        log.advance_clock(self.now_us)
        log.tell_time(self.now_us / 1_000_000, self.now_us)

    def newest(self, topic: bytes) -> int:
        found = (at for at in range(len(self.entries) - 1, -1, -1) if self.entries[at][0] == topic)
        return next(found, -1)

    def digest(self, end: int, claimed: int = 0) -> bytes:
        """Stands for what an exchange knows when its log ends there, with so many claims."""
        batches = b"".join(batch for _, _, batch in self.entries[:end])
        return blake2b(batches + b"claim" * claimed, digest_size=8).digest()


@dataclass
class AheadHistory:
    """One log that runs ahead of its disk, through many lives.

    What was shown to others (committed) may be lost with the power, but only behind what was
    synced, and only from some place on; and no offset ever stands for two entries.
    """

    chance: random.Random
    files: LossyFiles = field(default_factory=LossyFiles)
    entries: dict[int, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    """By offset: topic, frame, batch; what was lost is not among them any more."""
    shown: set[int] = field(default_factory=set)
    """Every offset that was ever committed."""
    synced: int = 0
    """Below it nothing may be lost: synced in any life."""
    kept: int = 0
    """Likewise, as the power was never cut since."""
    epoch: int = 0
    lives: int = 0
    lost: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    floor: int = 0
    leaving: Leaving = field(default_factory=Leaving)

    def live(self) -> None:
        """Open the log, look at all of it, append for a while, and die."""
        log = self.open()
        if log is None:
            return
        self.lives += 1
        self.leaving.names = []
        self.look(log)
        if self.chance.random() < 0.3:
            self.files.fail = failing(self.chance, 0.03)
        try:
            for _ in range(self.chance.randrange(12)):
                if not self.turn(log):
                    return
        except OSError:
            # What the system holds in memory after a failure nobody knows.
            self.kept = self.synced
        finally:
            self.files.fail = lambda _: None

    def open(self) -> SegmentLog[bytes] | None:
        self.epoch += 1
        fails = self.chance.random() < 0.2
        if fails:
            self.files.fail = failing(self.chance, 0.1)
        try:
            given = settings(self.epoch, **self.limits)
            return open_log(self.files, replace(given, ahead=True))
        except LogRefused:
            assert fails, "a log that is ours is never refused for good"
            return None
        finally:
            self.files.fail = lambda _: None

    def look(self, log: SegmentLog[bytes]) -> None:
        log.check()
        assert not log.recovered.lost, log.recovered
        assert not any("not count" in each for each in log.recovered.problems), log.recovered
        assert log.end > max(self.shown, default=-1), "no offset is shown twice"
        assert log.floor <= max(self.floor, log.end)
        there = {at for at in self.entries if log.floor <= at < log.end and log.record(at)}
        gone = {at for at in self.entries if at >= log.floor} - there
        assert not gone or not there or min(gone) > max(there), "from some place on"
        assert all(at >= max(self.synced, self.kept) for at in gone), (gone, self.synced)
        self.lost += len(gone)
        gone |= {at for at in self.entries if at < log.floor and at not in self.shown}
        for at in gone:
            del self.entries[at]
        for at in there:
            record = log.record(at)
            assert record is not None
            assert (record[0].name, record[1], bytes(record[2])) == self.entries[at]
        request = FetchRequest(id=1, queue=b"", generation=1, prefixes=[b""], until=log.end)
        span = cursor(log, PatientReads(log), request)
        found = []
        while not span.done:
            offset = span.offset(0.0)
            if offset is not None:
                found.append(offset)
                span.advance()
        assert found == sorted(there), "who reads all of it finds each, and no hole"
        assert span.evicted == log.floor, (span.evicted, log.floor, log.end, found)
        if log.recovered.snapshot is not None:
            assert log.recovered.snapshot == self.digest(log.recovered.since)
        for topic in TOPICS:
            assert log.hot.newest(topic) == self.newest(topic)
        self.shown |= there
        self.synced = self.kept = max(self.kept, *(at + 1 for at in self.entries), 0)

    def turn(self, log: SegmentLog[bytes]) -> bool:
        """Append some batches, have them written, and perhaps synced; whether it lives on."""
        for _ in range(self.chance.randrange(0, 8)):
            topic = self.chance.choice(TOPICS)
            batch = self.chance.randbytes(self.chance.choice([0, 5, 90, 700]))
            before, at = self.newest(topic), log.end
            frame = log.append(topic, batch, len(batch))
            assert frame is not None
            entry = read_entry(frame)
            if (
                entry.kind == EntryKind.FORGOTTEN
            ):  # all that there was may be lost, and is not known
                assert before < 0 < entry.previous <= at
            else:
                assert (entry.kind, entry.previous) == (
                    EntryKind.ENTRY,
                    NONE if before < 0 else before,
                )
            self.entries[at] = (topic, frame, batch)
        group = log.gather(lambda: self.digest(log.end))
        self.floor = max(self.floor, log.floor)
        early = log.gather_sync() if self.chance.random() < 0.2 else None
        if group is not None:
            write(self.files, group)
            settle(self.files, [group])
            if self.chance.random() < 0.1:
                return False  # before it has heard of it
            log.commit(group.end)
            self.leaving.names += group.removed
            self.shown |= {at for at in self.entries if at < group.end}
            self.kept = max(self.kept, group.end)
            self.synced = max(self.synced, log.synced)
        first = self.chance.random() < 0.5
        if early is not None and first:
            self.sync(log, early)
        self.leaving.remove(self.files, self.chance)
        if early is not None and not first:
            self.sync(log, early)
        log.check()
        if log.sync_wanted or self.chance.random() < 0.3:
            late = log.gather_sync()
            if late is not None:
                self.sync(log, late)
        self.floor = max(self.floor, log.floor)
        log.check()
        return True

    def sync(self, log: SegmentLog[bytes], sync: Sync) -> None:
        perform_sync(self.files, sync)
        log.commit_sync(sync.end)
        self.synced = max(self.synced, sync.end)

    def newest(self, topic: bytes) -> int:
        return max((at for at, each in self.entries.items() if each[0] == topic), default=-1)

    def digest(self, end: int) -> bytes:
        """Stands for what an exchange knows when its log ends there."""
        batches = [each[2] for at, each in sorted(self.entries.items()) if at < end]
        return blake2b(b"".join(batches), digest_size=8).digest()


def play_ahead(seed: int) -> AheadHistory:
    """As `play`, of a log that runs ahead of its disk."""
    chance = random.Random(seed)
    history = AheadHistory(chance)
    if seed % 2:
        history.limits = {"capacity_bytes": chance.choice([3_000, 20_000, 1 << 40])}
    for _ in range(chance.randrange(2, 12)):
        history.live()
        if chance.random() < 0.5:
            history.files = history.files.power_cut(chance)
            history.kept = history.synced
    return history


def play(seed: int, most: int = 1, claims: float = 0.0) -> History:
    """One history: lives that end by themselves, by a failure, or with the power."""
    chance = random.Random(seed)
    history = History(chance, most=most, claims=claims)
    if most > 1:
        history.limits = {"segment_bytes": 9_000, "segment_entries": 100}
    if seed % 2:
        history.limits |= {
            "capacity_bytes": chance.choice([3_000, 20_000, 1 << 40]),
            "keep_us": STANDS_US + chance.choice([100, 3_000, 1 << 50]),
        }
    for _ in range(chance.randrange(2, 12)):
        history.live()
        if chance.random() < 0.7:
            history.files = history.files.power_cut(chance)
    return history


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_what_was_committed_is_there_and_nothing_else(first: int) -> None:
    histories = [play(seed) for seed in SEEDS[first : first + 50]]
    assert sum(history.lives for history in histories) > 50
    assert sum(history.promised for history in histories) > 500
    assert sum(history.left for history in histories) > 5


def test_a_sync_that_failed_may_have_kept_any_part() -> None:
    files = LossyFiles()
    files.create("one")
    files.sync_folder()
    files.write("one", 0, [b"first"])
    files.sync("one")
    files.write("one", 5, [b"x" * 1_000])
    files.fail = failing(random.Random(1), 1.0)
    with pytest.raises(OSError, match="E"):
        files.sync("one")
    files.fail = lambda _: None
    files.sync("one")
    after = {files.power_cut(random.Random(seed)).size("one") for seed in range(50)}
    assert {5, 1_005} < after, "none of it, all of it, and parts"
    assert files.size("one") == 1_005


@pytest.mark.parametrize("first", [0, 50])
def test_what_is_written_behind_what_is_synced_is_there_or_is_not_promised(first: int) -> None:
    histories = [play(seed, most=3) for seed in range(first, first + 50)]
    assert sum(history.promised for history in histories) > 500
    assert sum(history.followed for history in histories) > 50
    assert sum(history.leaving.most > 0 for history in histories) > 5


@pytest.mark.parametrize("first", [0, 50])
def test_what_an_exchange_knows_besides_its_entries_is_kept_once_it_was_told(first: int) -> None:
    histories = [play(seed, claims=0.5) for seed in range(first, first + 50)]
    assert sum(history.promised for history in histories) > 200
    assert sum(history.kept for history in histories) > 50


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_what_runs_ahead_loses_only_what_was_not_synced(first: int) -> None:
    histories = [play_ahead(seed) for seed in SEEDS[first : first + 50]]
    assert sum(history.lives for history in histories) > 50
    assert sum(len(history.entries) for history in histories) > 500
    assert sum(history.lost for history in histories) > 0, "the power takes something"
    assert sum(history.leaving.most > 0 for history in histories) > 5


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            play(number)
            play(number, most=3)
            play(number, claims=0.5)
            play_ahead(number)
        except Exception as error:
            raise SystemExit(f"seed {number}: {type(error).__name__}: {error}") from error
