"""When a host counts as short of processor, and what its manager does then."""

from __future__ import annotations

import pytest
from hcm_host import Host, answers, failure
from hypothesis import given
from hypothesis import strategies as st

from roq.hcm.cpu import (
    HOLD_SECONDS,
    JUDGE_SECONDS,
    SILENCE_SECONDS,
    STRETCH_SECONDS,
    TOLD_SECONDS,
    CpuSample,
    HostCpu,
)
from roq.hcm.events import Kill, Note, Pressed
from roq.hcm.starts import SLOT_SECONDS, Starts
from roq.protocol.control import HealthRequest, Started

X1 = "orders.x1"
STEP = 0.5


def fed(
    samples: int, *, late: float = 0.0, waiting: float = 0.0, throttled: int = 0
) -> tuple[HostCpu, float]:
    """After so many samples of this kind; gives the time as well."""
    processor, now = HostCpu(), 100.0
    for number in range(samples):
        now = 100.0 + number * STEP
        processor.take(
            CpuSample(
                late=late,
                waited_us=round(number * STEP * waiting * 1e6),
                periods=5 * number,
                throttled=throttled * number,
            ),
            now,
        )
    return processor, now


def test_a_host_that_gets_what_it_needs_is_not_patient() -> None:
    processor, now = fed(40, late=0.1, waiting=0.3, throttled=1)
    assert not processor.patient(now)
    assert not processor.short(now)
    assert processor.stretched(10.0, now) == 10.0
    assert processor.silence(now) == 0.0


def test_a_quota_that_ends_early_is_noticed_within_a_second_and_told_if_it_lasts() -> None:
    processor, now = fed(3, throttled=5)
    assert processor.patient(now)
    assert not processor.short(now)
    processor, now = fed(3 + int(TOLD_SECONDS / STEP), throttled=5)
    assert processor.short(now)
    assert "quota ends early in 100%" in processor.text()


def test_late_turns_of_the_manager_itself_count_and_one_pause_does_not() -> None:
    processor, now = fed(20, late=0.4)
    assert processor.short(now)
    processor, now = fed(20)
    processor.take(CpuSample(late=60.0), now + 60.0)
    processor.take(CpuSample(), now + 60.5)
    assert not processor.patient(now + 60.5)


def test_a_manager_that_hardly_gets_a_turn_knows_it() -> None:
    """The time between two of its samples is longer than the window, and than a shortage holds."""
    processor, now = HostCpu(), 100.0
    for number in range(4):
        now = 100.0 + number * 8.0
        processor.take(CpuSample(late=7.5), now)
    assert processor.patient(now)
    assert processor.short(now)
    processor = HostCpu()
    for number in range(4):
        now = 100.0 + number * 8.0
        processor.take(CpuSample(periods=20 * number, throttled=18 * number), now)
    assert processor.short(now)
    assert "quota ends early in 90%" in processor.text()


def test_a_shortage_that_was_over_is_told_anew_only_if_it_lasts_again() -> None:
    processor, now = fed(20, throttled=5)
    for _ in range(20):
        now += STEP
        processor.take(CpuSample(), now)
    assert not processor.short(now)
    for _ in range(3):
        now += STEP
        processor.take(CpuSample(late=0.4), now)
    now += STEP
    assert not processor.short(now)


def test_a_machine_on_which_others_wait_makes_patient_and_is_no_trouble() -> None:
    processor, now = fed(20, waiting=0.95)
    assert processor.patient(now)
    assert not processor.short(now)
    assert "waits for a processor 95% of the time" in processor.text()


def test_patience_lasts_a_moment_longer_than_the_shortage() -> None:
    processor, now = fed(20, throttled=5)
    assert processor.patient(now + HOLD_SECONDS - 0.1)
    assert not processor.patient(now + HOLD_SECONDS)
    assert not processor.short(now + HOLD_SECONDS)


def test_where_the_system_says_nothing_nothing_is_wrong() -> None:
    processor = HostCpu()
    for number in range(20):
        processor.take(CpuSample(), 100.0 + number)
    assert not processor.patient(119.0)
    assert processor.text() == "nothing waits for a processor"


_samples = st.lists(
    st.tuples(
        st.floats(0.0, 5.0),
        st.builds(
            CpuSample,
            late=st.floats(0.0, 100.0),
            waited_us=st.none() | st.integers(0, 1 << 40),
            periods=st.none() | st.integers(0, 1 << 40),
            throttled=st.none() | st.integers(0, 1 << 40),
        ),
    ),
    max_size=80,
)


@given(_samples, st.floats(0.1, 1_000.0))
def test_whatever_the_system_says_patience_has_a_bound(
    samples: list[tuple[float, CpuSample]], budget: float
) -> None:
    processor, now = HostCpu(), 0.0
    for pause, sample in samples:
        now += pause
        processor.take(sample, now)
        assert budget <= processor.stretched(budget, now) <= budget + STRETCH_SECONDS
        assert 0.0 <= processor.silence(now) <= SILENCE_SECONDS
        processor.judged("q.x1", now)
        assert processor.may_judge(now + JUDGE_SECONDS)
    assert not processor.patient(now + HOLD_SECONDS)


# --- what comes of it -----------------------------------------------------------------------------


def starve(host: Host, seconds: float) -> None:
    """Let time pass in which every period of the quota ends early."""
    begun = host.now
    for number in range(int(seconds / STEP) + 1):
        host.advance(begun + number * STEP - host.now)
        ticks = round(host.now * 10)
        host.handle(Pressed(CpuSample(periods=ticks, throttled=ticks)))


def killed(host: Host) -> list[str]:
    return [each.child for each in host.effects if isinstance(each, Kill)]


def test_a_start_on_a_starved_host_is_given_more_time() -> None:
    host = Host(start_seconds=10.0)
    starve(host, 10)
    host.start_exchange()
    starve(host, 50)
    assert killed(host) == []
    host.report(X1)
    assert isinstance(answers(host.effects, "gcm")[0], Started)


def test_a_start_that_is_never_done_fails_within_the_bound_and_says_why() -> None:
    host = Host(start_seconds=10.0)
    starve(host, 10)
    host.start_exchange()
    starve(host, 65)
    assert killed(host) == [X1]
    text = failure(answers(host.effects, "gcm")).COMMENT
    assert "gets too little processor" in text
    assert "file system" not in text


@pytest.mark.parametrize("state", ["S", "D", "R"])
def test_a_silent_child_of_a_starved_host_is_not_taken_for_hung_soon(state: str) -> None:
    host = Host(hung_seconds=1.0)
    host.running(X1)
    starve(host, 10)
    host.processes[X1].state = state
    starve(host, SILENCE_SECONDS)
    assert killed(host) == []
    starve(host, BUSY_AND_ALL)
    assert killed(host) == [X1]


BUSY_AND_ALL = 12.0


def test_a_stopped_child_of_a_starved_host_has_hung_as_ever() -> None:
    host = Host(hung_seconds=1.0)
    host.running(X1)
    starve(host, 10)
    host.processes[X1].state = "T"
    starve(host, 2)
    assert killed(host) == [X1]


def test_one_child_at_a_time_is_judged_and_none_of_them_has_crashed() -> None:
    host = Host(hung_seconds=1.0)
    names = [f"orders.x{number}" for number in range(1, 7)]
    host.running(*names)
    starve(host, 10)
    for name in names:
        host.processes[name].state = "S"
    starve(host, SILENCE_SECONDS + 3)
    assert len(killed(host)) == 1
    starve(host, 2 * JUDGE_SECONDS)
    assert len(killed(host)) == 3
    for name in killed(host)[:2]:
        told = host.last_report[name]
        assert told.state == "restarting"
        assert told.restarts == 1
    notes = [each.text for each in host.effects if isinstance(each, Note)]
    assert not any("starting again in 0.5" in text for text in notes)
    for name in killed(host):  # they are started one after the other as well
        host.report(name)
    starve(host, 1)
    assert len(killed(host)) == 4


def test_a_killed_process_that_ends_late_for_want_of_processor_is_started_again() -> None:
    host = Host(hung_seconds=1.0)
    host.running(X1)
    starve(host, 10)
    host.obedient = False
    host.processes[X1].state = "D"
    starve(host, 110)
    told = host.last_report[X1]
    assert told.state == "failed"
    assert "disk" not in told.reason
    assert "gets too little processor" in told.reason
    before = len(host.spawned)
    host.crash(X1, "ended by signal 9")
    assert len(host.spawned) == before + 1


def test_health_and_the_log_tell_of_it_with_figures_and_of_its_end() -> None:
    host = Host()
    host.running(X1)
    starve(host, 8)
    [health] = host.ask("cli", HealthRequest(id=1))
    [check] = [each for each in health.checks if each.name == "processor"]
    assert (check.ok, check.essential) == (False, False)
    assert "this host gets too little processor: its quota ends early in 100%" in check.detail
    assert host.machine._report().starved
    for _ in range(20):
        host.advance(STEP)
        host.handle(Pressed(CpuSample(periods=100_000, throttled=0)))
    notes = [each.event for each in host.effects if isinstance(each, Note)]
    assert [each for each in notes if each in {"starved", "fed"}] == ["starved", "fed"]
    assert not host.machine._report().starved


def test_no_more_processes_start_at_once_than_the_machine_bears() -> None:
    host = Host(starts_max=3)
    for number in range(1, 8):
        host.start_exchange(number, peer=f"p{number}")
    assert len(host.spawned) == 3
    host.report("orders.x1")
    assert len(host.spawned) == 4
    host.stop_queue(number=7)  # it waits: nobody needs to end it
    for number in range(2, 7):
        host.report(f"orders.x{number}")
    assert [each.number for each in host.spawned] == [1, 2, 3, 4, 5, 6]
    assert "x7" not in str(host.last_report)


def test_a_starved_host_starts_one_at_a_time() -> None:
    host = Host(starts_max=8)
    starve(host, 10)
    for number in range(1, 4):
        host.start_exchange(number, peer=f"p{number}")
    assert len(host.spawned) == 1
    host.report("orders.x1")
    assert len(host.spawned) == 2


def test_starts_that_never_come_up_hold_nobody_back_for_long() -> None:
    starts = Starts(2)
    assert [starts.enter(name, 0.0, patient=False) for name in "abcd"] == [True, True, False, False]
    assert starts.turns(1.0, patient=False) == []
    assert starts.next_deadline(patient=False) == SLOT_SECONDS
    assert starts.turns(SLOT_SECONDS, patient=False) == ["c", "d"]
    assert starts.next_deadline(patient=False) is None
