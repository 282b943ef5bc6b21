"""Nothing that was committed is lost, and nothing invented, whatever power and disk do.

The numbers of `SEEDS` are a choice of histories that are played each time; any range can be played
by `python tests/property/test_power_loss.py FIRST BEHIND`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from hashlib import blake2b

import pytest

from roq.log.files import LogRefused
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog, perform
from roq.protocol.entry import NONE, EntryKind, read_entry
from roq.simulation.virtual.lossy_files import LossyFiles, failing

SEEDS = (*range(398), 492, 1356)
"""The last two: a file that was removed comes back with the power; a hole in what nobody was
promised."""
TOPICS = [b"a", b"ab", b"b", b"c" * 40]


def settings(epoch: int, **others: int) -> LogSettings:
    given = {
        "ring_bytes": 4_000, "topics_max": 100, "topics_spare": 0, "capacity_bytes": 1 << 40,
        "keep_us": 1 << 50, "now_us": epoch * 1_000, "segment_bytes": 2_000, "segment_entries": 30,
        **others,
    }  # fmt: skip
    return LogSettings(queue=b"q" * 16, exchange=3, epoch=epoch, cluster="c", host="h", **given)


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
    limits: dict[str, int] = field(default_factory=dict)
    floor: int = 0
    """Below it, what has left may be there again, or not."""

    def live(self) -> None:
        """Open the log, look at all of it, append for a while, and die."""
        log = self.open()
        if log is None:
            return
        self.lives += 1
        self.look(log)
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
        if self.chance.random() < 0.2:
            self.files.fail = failing(self.chance, 0.1)
        try:
            return open_log(self.files, settings(self.epoch, now_us=self.now_us, **self.limits))
        except LogRefused:
            return None
        finally:
            self.files.fail = lambda _: None

    def look(self, log: SegmentLog[bytes]) -> None:
        log.check()
        assert not log.recovered.lost, log.recovered
        assert self.promised <= log.end <= len(self.entries), (log.end, self.promised)
        del self.entries[log.end :]
        assert log.floor <= self.floor
        for offset in range(log.floor, log.end):
            topic, frame, batch = self.entries[offset]
            record = log.record(offset)
            assert record is not None, offset
            assert (record[0].name, record[1], bytes(record[2])) == (topic, frame, batch)
        since = log.recovered.since
        if log.recovered.snapshot is not None:
            assert log.recovered.snapshot == self.digest(since)
        else:
            assert since == 0
        for topic in TOPICS:
            assert log.hot.newest(topic) == self.newest(topic)
        self.promised = log.end

    def turn(self, log: SegmentLog[bytes]) -> bool:
        """Append some batches and have them written; whether the process lives on."""
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
        group = log.gather(lambda: self.digest(log.end))
        assert group is not None
        self.floor = max(self.floor, log.floor)
        perform(self.files, group)
        if self.chance.random() < 0.1:
            return False  # before it has heard of it
        log.commit(group.end)
        self.promised = group.end
        self.floor = max(self.floor, log.floor)
        log.check()
        return True

    def idle(self, log: SegmentLog[bytes]) -> bool:
        """Time passes, and what is too old leaves; whether the process lives on."""
        self.now_us += self.chance.choice([10, 400, 2_000])
        log.advance_clock(self.now_us)
        group = log.gather(lambda: self.digest(log.end))
        self.floor = max(self.floor, log.floor)
        if group is not None:
            perform(self.files, group)
            if self.chance.random() < 0.2:
                return False
            log.commit(group.end)
        log.check()
        return True

    def newest(self, topic: bytes) -> int:
        found = (at for at in range(len(self.entries) - 1, -1, -1) if self.entries[at][0] == topic)
        return next(found, -1)

    def digest(self, end: int) -> bytes:
        """Stands for what an exchange knows when its log ends there."""
        return blake2b(
            b"".join(batch for _, _, batch in self.entries[:end]), digest_size=8
        ).digest()


def play(seed: int) -> History:
    """One history: lives that end by themselves, by a failure, or with the power."""
    chance = random.Random(seed)
    history = History(chance)
    if seed % 2:
        history.limits = {
            "capacity_bytes": chance.choice([3_000, 20_000, 1 << 40]),
            "keep_us": chance.choice([100, 3_000, 1 << 50]),
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


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            play(number)
        except Exception as error:
            raise SystemExit(f"seed {number}: {type(error).__name__}: {error}") from error
