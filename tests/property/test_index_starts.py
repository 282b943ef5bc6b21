"""Starts that make indexes anew: cut at any call, over indexes that are torn, old or strange.

Whatever lies there under the name of an index, readers find what was appended, by offset, topic,
time and key, and a start ends where the log did. Any range of histories can be played by
`python tests/property/test_index_starts.py FIRST BEHIND`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from keyed_batch import batch_of

from roq.log.disk_groups import remove, settle, sync_indexes, write
from roq.log.files import INDEXES, KEYS_SUFFIX, SEGMENT_SUFFIX
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.protocol.columns import key_hash
from roq.protocol.entry import appended_us
from roq.simulation.virtual.lossy_files import Inode, LossyFiles, failing

SETTINGS = LogSettings(
    queue=b"q" * 16, exchange=3, epoch=1, cluster="c", host="h", ring_bytes=1, topics_max=100,
    topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 60, now_us=1_000, segment_bytes=3_000,
    segment_entries=8,
)  # fmt: skip
TOPICS = [b"a", b"ab", b"b", b"c" * 40]
KEYS = [f"key-{number}" for number in range(8)]


class Killed(BaseException):
    """The process has ended here."""


@dataclass
class Entry:
    """What was appended."""

    topic: bytes
    batch: bytes
    frame: bytes
    keys: set[str]


@dataclass
class Starts:
    """One log, many starts."""

    chance: random.Random
    ahead: bool
    files: LossyFiles = field(default_factory=LossyFiles)
    entries: dict[int, Entry] = field(default_factory=dict)
    promised: int = 0
    """Below it nothing may be lost."""
    now_us: int = 1_000
    former: dict[str, list[bytes]] = field(default_factory=dict)
    """What has ever stood in an index, by name."""
    cut: int = 0
    made: int = 0
    """Starts that were cut, and indexes that starts have made."""

    def __post_init__(self) -> None:
        open_log(self.files, replace(SETTINGS, ahead=self.ahead))

    def live(self) -> None:
        """Some starts that come to nothing, then one that is looked at and goes on."""
        for _ in range(self.chance.randrange(4)):
            self.start_and_cut()
        log = self.open()
        self.made += len(log.recovered.indexes)
        if self.chance.random() < 0.7:
            # As the thread that syncs them does; what was made, and not synced, is lost otherwise.
            sync_indexes(self.files, log.recovered.indexes)
        self.look(log)
        for _ in range(self.chance.randrange(1, 12)):
            self.turn(log)
        if self.chance.random() < 0.6:
            self.index_keys(log)
        if self.chance.random() < 0.3:
            self.look(log)
        if self.chance.random() < 0.7:
            self.die_writing(log)
        self.note()
        if self.chance.random() < 0.4:
            self.lose_power()
        if self.chance.random() < 0.7:
            self.spoil()

    def open(self) -> SegmentLog[bytes]:
        # The clock jumps, and a registry that was restored gives lower epochs.
        self.now_us = max(0, self.now_us + self.chance.choice([-10_000, 0, 10, 1_000, 10**12]))
        given = replace(
            SETTINGS, epoch=self.chance.randrange(1, 9), ahead=self.ahead, now_us=self.now_us
        )
        return open_log(self.files, given)

    def start_and_cut(self) -> None:
        """A start that is killed at some call, or to which the disk refuses one; perhaps the power
        goes, too."""
        left = self.chance.randrange(60)
        refuses = failing(self.chance, 0.05) if self.chance.random() < 0.3 else (lambda _: None)

        def fail(call: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            if call not in {"read", "size"}:
                refuses(call)

        self.files.fail = fail
        try:
            self.open()
        except (Killed, Exception):  # noqa: BLE001 - refused by the disk; the next one tells
            self.cut += 1
        finally:
            self.files.fail = lambda _: None
        self.note()
        if self.chance.random() < 0.5:
            self.lose_power()

    def lose_power(self) -> None:
        self.files = self.files.power_cut(self.chance)

    def turn(self, log: SegmentLog[bytes]) -> None:
        self.append(log)
        self.write(log)

    def append(self, log: SegmentLog[bytes]) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            keys = set(self.chance.sample(KEYS, self.chance.choice([0, 0, 1, 3])))
            topic, batch = self.chance.choice(TOPICS), batch_of(sorted(keys) or [None])
            self.now_us += self.chance.choice([0, 1, 500])
            log.advance_clock(self.now_us)
            frame = log.append(topic, batch, len(batch))
            assert frame is not None
            self.entries[log.end - 1] = Entry(topic, batch, frame, keys)

    def die_writing(self, log: SegmentLog[bytes]) -> None:
        """Groups are written, each claims what was synced before, and the last is not settled. So
        a start may believe more of the segment than the next one, behind a power cut, has."""
        for last in (False, True):
            self.append(log)
            group = log.gather(lambda: b"")
            if group is None:
                return
            write(self.files, group)
            if not last:
                settle(self.files, [group])
                log.commit(group.end)

    def write(self, log: SegmentLog[bytes]) -> None:
        while (group := log.gather(lambda: b"")) is not None or log.sync_wanted:
            if group is None:
                sync = log.gather_sync()
                assert sync is not None
                self.files.sync(sync.segment)
                log.commit_sync(sync.end)
                continue
            write(self.files, group)
            settle(self.files, [group])
            remove(self.files, group.removed)
            log.commit(group.end)
            if self.chance.random() < 0.5:
                sync_indexes(self.files, [name for name, _ in group.indexes])
        self.promised = max(self.promised, log.synced)

    def index_keys(self, log: SegmentLog[bytes]) -> None:
        while (due := log.keys.due(lambda: None)) is not None:
            due.keep(due.load())
        self.write(log)

    def look(self, log: SegmentLog[bytes]) -> None:
        """All that readers ask gives what was appended."""
        log.check()
        assert log.recovered.lost == []
        # What was never settled may be torn, the head of a segment as well.
        torn = ("did not reach the disk", "its head cannot be read")
        assert all(any(why in each for why in torn) for each in log.recovered.problems)
        assert log.floor == 0
        there = [offset for offset in self.entries if offset < log.end]
        there = [offset for offset in there if log.following(offset) == offset]
        gone = list(self.entries.keys() - set(there))
        assert all(offset >= self.promised for offset in gone)
        for offset in gone:
            del self.entries[offset]
        if log.synced == log.end:  # as behind each start
            self.promised = log.end
        if not self.ahead:
            assert log.end == len(there)
        for offset in there:
            record, entry = log.record(offset), self.entries[offset]
            assert record is not None
            assert (record[0].name, record[1], bytes(record[2])) == (
                entry.topic, entry.frame, entry.batch,
            )  # fmt: skip
        for topic in TOPICS:
            found, at = [], log.next_of(topic, 0)
            while at is not None:
                found.append(at)
                at = log.next_of(topic, at + 1)
            assert found == [each for each in there if self.entries[each].topic == topic]
        times = [appended_us(self.entries[offset].frame) for offset in there]
        assert times == sorted(times), "a log's time does not go back, whatever clocks do"
        for time_us in self.chance.sample(times, min(5, len(times))):
            first = next(each for each, at in zip(there, times, strict=True) if at >= time_us)
            assert log.following(log.seek(time_us)) == first
        for key in self.chance.sample(KEYS, 3):
            asked, places = log.committed, set[int]()
            while asked > log.floor:
                ranges, asked = log.find(key_hash(key), asked)
                places |= {each for a, b in ranges for each in there if a <= each < b}
            wanted = {each for each in there if key in self.entries[each].keys}
            assert {each for each in wanted if each < log.committed} <= places
        assert log.unreadable == 0

    # --- what may lie there under the name of an index --------------------------------------------

    def note(self) -> None:
        for name, inode in self.files.names_seen.items():
            if name.endswith(INDEXES):
                self.former.setdefault(name, []).append(bytes(inode.seen()))

    def spoil(self) -> None:
        """Some indexes are gone, torn, old, or those of other segments."""
        segments = [each for each in self.files.names() if each.endswith(SEGMENT_SUFFIX)]
        for segment in segments:
            if self.chance.random() < 0.5:
                continue
            name = segment.removesuffix(SEGMENT_SUFFIX) + self.chance.choice(INDEXES)
            there = self.files.names_seen.get(name)
            data = bytearray() if there is None else there.seen()
            self.put(name, self.chance.choice(WAYS)(self, name, data))

    def put(self, name: str, data: bytes | None) -> None:
        for names in (self.files.names_seen, self.files.names_synced):
            names.pop(name, None)
            if data is not None:
                names[name] = Inode(bytearray(data))


def torn(starts: Starts, _: str, data: bytearray) -> bytes:
    return bytes(data[: starts.chance.randrange(len(data) + 1)])


def with_a_hole(starts: Starts, _: str, data: bytearray) -> bytes:
    at = starts.chance.randrange(len(data) + 1)
    data[at : at + 64] = bytes(len(data[at : at + 64]))
    return bytes(data)


def flipped(starts: Starts, _: str, data: bytearray) -> bytes:
    if data:
        data[starts.chance.randrange(len(data))] ^= 1 << starts.chance.randrange(8)
    return bytes(data)


def of_another(starts: Starts, name: str, data: bytearray) -> bytes:
    suffix = KEYS_SUFFIX if name.endswith(KEYS_SUFFIX) else INDEXES[0]
    others = [each for each in starts.former if each.endswith(suffix) and each != name]
    return starts.chance.choice(starts.former[starts.chance.choice(others)]) if others else data


def former(starts: Starts, name: str, data: bytearray) -> bytes:
    return starts.chance.choice(starts.former.get(name, [bytes(data)]))


def missing(*_: object) -> None:
    return


WAYS: list[Callable[[Starts, str, bytearray], bytes | None]] = [
    torn, with_a_hole, flipped, of_another, former, missing,
]  # fmt: skip


def play(seed: int) -> Starts:
    """One history."""
    chance = random.Random(seed)
    starts = Starts(chance, ahead=seed % 2 == 1)
    for _ in range(chance.randrange(2, 9)):
        starts.live()
    return starts


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_index_makes_a_reader_find_less_or_something_else(first: int) -> None:
    histories = [play(seed) for seed in range(first, first + 50)]
    assert sum(starts.cut for starts in histories) > 50
    assert sum(starts.made for starts in histories) > 50
    assert sum(len(starts.entries) for starts in histories) > 500


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            play(number)
        except Exception as error:
            raise SystemExit(f"seed {number}: {type(error).__name__}: {error}") from error
