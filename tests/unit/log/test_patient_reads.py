"""What the disk refuses is asked for again, and counts as lost in the end."""

from typing import cast

import pytest

from roq.log.log import Log, NotAtHand
from roq.log.patient_reads import (
    AGAIN_SECONDS,
    ANSWER_SECONDS,
    APART_SECONDS,
    REFUSED_SECONDS,
    PatientReads,
)


class Disk:
    """A log that gives nothing."""

    lost = asked = False

    def record(self, _: int) -> None:
        if self.asked:
            raise NotAtHand(lambda: None, lambda _: None)

    def is_lost(self, _: int) -> bool:
        return self.lost


def test_what_is_refused_is_asked_for_again_and_lost_in_the_end() -> None:
    disk = Disk()
    reads: PatientReads[bytes] = PatientReads(cast("Log[bytes]", disk))
    now = 0.0
    while now < REFUSED_SECONDS:
        assert reads.record(7, now) is None
        assert reads.waits(now)
        now += AGAIN_SECONDS
        assert not reads.waits(now)
    reads.record(7, now)
    assert not reads.waits(now)
    reads.record(8, now + 1.0)
    assert not reads.waits(now + 1.0), "nor is what is refused with it"
    now += 1.0 + 2 * APART_SECONDS
    reads.record(9, now)
    assert reads.waits(now), "that is another refusal"


def test_what_is_lost_is_not_waited_for() -> None:
    disk = Disk()
    disk.lost = True
    reads: PatientReads[bytes] = PatientReads(cast("Log[bytes]", disk))
    assert reads.record(7, 0.0) is None
    assert not reads.waits(0.0)


def test_a_disk_that_takes_long_to_refuse_holds_nobody_for_ever() -> None:
    disk = Disk()
    reads: PatientReads[bytes] = PatientReads(cast("Log[bytes]", disk))
    now, before = 0.0, -1.0
    for offset in range(7, 10):
        for _ in range(10):
            disk.asked = True
            with pytest.raises(NotAtHand):
                reads.record(offset, now)
            now += 3 * APART_SECONDS
            disk.asked = False
            reads.record(offset, now)
            if not reads.waits(now):
                break
            now += AGAIN_SECONDS
        assert reads.lost == offset - 6
        assert before < 0 or now - before == 3 * APART_SECONDS, "what lies behind it, no more"
        before = now
    assert REFUSED_SECONDS <= now < 10 * REFUSED_SECONDS
    disk.asked = True
    with pytest.raises(NotAtHand):
        reads.record(10, now)  # by somebody who waits no more
    disk.asked = False
    reads.record(10, now + 2 * ANSWER_SECONDS)
    assert reads.waits(now + 2 * ANSWER_SECONDS), "that is another refusal"
