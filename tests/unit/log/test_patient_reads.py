"""What the disk refuses is asked for again, and counts as lost in the end."""

from typing import cast

from roq.log.log import Log
from roq.log.patient_reads import AGAIN_SECONDS, APART_SECONDS, REFUSED_SECONDS, PatientReads


class Disk:
    """A log that gives nothing."""

    lost = False

    def record(self, _: int) -> None:
        return None

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
