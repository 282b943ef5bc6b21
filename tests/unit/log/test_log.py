"""Whatever is a log has all that exchanges ask of one, in memory and on disk."""

import pytest
from contracts import broken, members
from memory_files import MemoryFiles
from segmented_log import SegmentedLog

from roq.exchange.commit import LateLog
from roq.log.disk_groups import perform
from roq.log.log import Log, NotAtHand, NotGiven
from roq.log.recovery import LogSettings, open_log
from roq.log.ring import Ring
from roq.log.segments import SegmentLog

QUEUE = b"q" * 16
KINDS = {"ring": Ring, "segments": SegmentLog, "paper": SegmentedLog}


def ring() -> Log[bytes]:
    return Ring(QUEUE, 1, 5, capacity_bytes=1 << 20, topics_max=6)


class OnDisk:
    """A log on disk that commits what was appended when it is told to."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.log = open_log(
            self.files,
            LogSettings(
                queue=QUEUE, exchange=1, epoch=5, cluster="c", host="h", ring_bytes=1,
                topics_max=6, topics_spare=0, capacity_bytes=1 << 20, keep_us=1 << 60, now_us=0,
                segment_bytes=1 << 30, segment_entries=4,
            ),
        )  # fmt: skip

    def commit(self) -> None:
        group = self.log.gather(lambda: b"")
        assert group is not None
        perform(self.files, group)
        self.log.commit(group.end)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_a_log_is_asked_alike(kind: str) -> None:
    made = {
        "ring": ring, "segments": lambda: OnDisk().log,
        "paper": lambda: SegmentedLog(QUEUE, 1, 5, capacity_bytes=1 << 20, topics_max=6),
    }[kind]()  # fmt: skip
    missing = {"paper": ["SegmentedLog has no find"]}
    assert broken(Log, made) == missing.get(kind, [])


def test_a_log_that_commits_late_is_a_log_and_one_more() -> None:
    assert members(Log).keys() < members(LateLog).keys()
    assert broken(LateLog, OnDisk().log) == []


def test_of_the_three_positions_the_end_rises_with_a_batch_and_the_others_follow() -> None:
    late = OnDisk()
    for log, commits in ((ring(), True), (late.log, False)):
        for number in range(3):
            assert log.append(b"t", b"batch", 5) is not None
            assert log.floor == 0
            assert log.committed == (number + 1 if commits else 0)
            assert log.end == number + 1
    late.commit()
    assert (late.log.floor, late.log.committed, late.log.end) == (0, 3, 3)


def test_what_is_not_at_hand_is_read_by_another_one_and_what_is_not_given_says_how_far() -> None:
    away = NotAtHand(lambda: 7, lambda found: found)
    assert away.keep(away.load()) == 7
    assert "disk" in str(away)
    refused = NotGiven(12)
    assert refused.until == 12
    assert "disk does not give" in str(refused)
