"""Who has hung: by silence, and by what the system says."""

from __future__ import annotations

import pytest

from roq.hcm.children import EXCHANGE, Child, Children, State
from roq.hcm.crash_history import CrashHistory, CrashLimits
from roq.hcm.events import Probe, Probed
from roq.hcm.liveness import BUSY_SECONDS, Liveness
from roq.model import Limits
from roq.protocol.reports import ChildInfo
from roq.timing import IDLE_CHILD_FACTOR

EPOCH = 7
MS = 1_000_000


class Watch:
    """One running child, looked at as often as is wanted."""

    def __init__(self, hung_seconds: float = 1.0) -> None:
        self.now = 100.0
        self.child = Child(
            role=EXCHANGE, queue="q", queue_id=b"q", number=1, limits=Limits(),
            history=CrashHistory(CrashLimits()), state=State.RUNNING, epoch=EPOCH, alive=True,
            ran=True, info=ChildInfo(
                child="q.x1", role="exchange", queue="q", queue_id=b"q", epoch=EPOCH,
                state="running",
            ),
        )  # fmt: skip
        self.children = Children()
        self.children.add(self.child)
        self.liveness = Liveness(hung_seconds)
        self.state = "S"
        self.ran_ns = 0
        self.runs_ns = 0
        """What it runs between two looks."""
        self.looks = 0
        self.liveness.heard(self.child, self.now)

    def silent(self, seconds: float) -> str:
        """Let it say nothing for so long; gives why it has hung, if it has."""
        until = self.now + seconds
        while True:
            due = self.liveness.next_deadline()
            if due is None or due > until:
                self.now = until
                return ""
            self.now = due
            why = self.look()
            if why:
                return why

    def look(self) -> str:
        for probe in self.liveness.look(self.children, self.now):
            assert probe == Probe("q.x1", EPOCH)
            self.looks += 1
            self.ran_ns += self.runs_ns
            probed = Probed("q.x1", EPOCH, self.state, self.ran_ns)
            why = self.liveness.verdict(self.child, probed, self.now)
            if why:
                return why
        return ""


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_child_has_hung_after_a_second(state: str) -> None:
    watch = Watch()
    watch.state = state
    assert "is stopped" in watch.silent(1.3)
    assert 1.0 <= watch.now - 100.0 <= 1.13


def test_an_idle_child_may_be_silent_for_longer_until_it_says_that_it_is_not_idle() -> None:
    watch = Watch()
    watch.state = "T"
    watch.liveness.heard(watch.child, watch.now, idle=True)
    assert watch.silent(1.0 * IDLE_CHILD_FACTOR - 0.1) == ""
    assert "is stopped" in watch.silent(0.5)
    watch.liveness.heard(watch.child, watch.now, idle=True)
    watch.liveness.heard(watch.child, watch.now)
    assert "is stopped" in watch.silent(1.3)


def test_a_child_that_sleeps_and_never_runs_has_hung() -> None:
    watch = Watch()
    assert "has not run" in watch.silent(1.3)
    assert watch.now - 100.0 >= 1.0


def test_a_child_that_reports_is_not_even_looked_at() -> None:
    watch = Watch()
    for _ in range(40):
        assert watch.silent(0.25) == ""
        watch.liveness.heard(watch.child, watch.now)
    assert watch.looks == 0


@pytest.mark.parametrize(("state", "runs_ns"), [("R", 200 * MS), ("R", 0), ("S", MS), ("", 0)])
def test_who_works_or_would_if_it_could_is_given_ten_seconds(state: str, runs_ns: int) -> None:
    watch = Watch()
    watch.state, watch.runs_ns = state, runs_ns
    assert watch.silent(BUSY_SECONDS - 0.2) == ""
    assert "goes on working" in watch.silent(0.5)


def test_who_waits_for_a_disk_is_given_ten_seconds_and_may_be_asleep_before() -> None:
    watch = Watch()
    assert watch.silent(0.8) == ""
    watch.state = "D"
    assert watch.silent(BUSY_SECONDS - 1.0) == ""
    assert "waits for the system" in watch.silent(0.6)


def test_a_busy_child_that_falls_asleep_for_good_has_hung_then() -> None:
    watch = Watch()
    watch.state, watch.runs_ns = "R", 100 * MS
    assert watch.silent(4.0) == ""
    watch.state, watch.runs_ns = "S", 0
    assert "has not run" in watch.silent(1.0)


def test_a_report_after_a_long_silence_makes_everything_good() -> None:
    watch = Watch()
    watch.state = "R"
    assert watch.silent(5.0) == ""
    watch.liveness.heard(watch.child, watch.now)
    watch.state = "T"
    assert watch.silent(0.9) == ""


def test_a_host_manager_that_was_paused_has_heard_nobody_for_its_own_reasons() -> None:
    watch = Watch()
    watch.state = "T"
    assert watch.silent(0.2) == ""
    watch.now += 600.0
    assert watch.look() == ""
    # It has the time to say something before it is looked at again.
    watch.liveness.heard(watch.child, watch.now + 0.1)
    watch.now += 0.1
    assert watch.silent(0.5) == ""


def test_zero_means_never() -> None:
    watch = Watch(0.0)
    watch.state = "T"
    assert watch.liveness.next_deadline() is None
    assert watch.silent(1_000.0) == ""


def test_a_child_that_is_gone_is_not_looked_at() -> None:
    watch = Watch()
    watch.liveness.forget(watch.child.pid)
    assert watch.liveness.next_deadline() is None
    probed = Probed("q.x1", EPOCH, "T", 0)
    assert watch.liveness.verdict(watch.child, probed, watch.now + 5) == ""
