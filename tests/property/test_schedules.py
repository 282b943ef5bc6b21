"""Which times of a schedule fire, whatever the zone, the clock and the pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from roq.jobs.timetable import (
    CATCH_UP_MAX,
    LATE,
    SECOND,
    CatchUp,
    SchedulePlan,
    decide,
    last_times,
    next_time,
    planned,
    times_after,
)

DAY = 86_400 * SECOND
YEAR = 365 * DAY
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
END = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * SECOND
ZONES = (
    "UTC", "Europe/Warsaw", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo",
    "America/Santiago", "Asia/Kathmandu",
)  # fmt: skip
"""Lord Howe moves its clocks by half an hour; Cairo and Santiago move them at midnight."""
zones = st.sampled_from(ZONES)
minutes, hours = st.integers(0, 59), st.integers(0, 23)
crons = st.one_of(
    st.builds("{} {} * * *".format, minutes, hours),
    st.builds("*/{} * * * *".format, st.integers(1, 59)),
    st.builds("{} */{} * * *".format, minutes, st.integers(1, 23)),
    st.builds("{} {} {} * *".format, minutes, hours, st.integers(1, 31)),
    st.builds("*/{} {} {} {} *".format, st.integers(1, 59), hours, st.integers(1, 28),
              st.integers(1, 12)),
    st.builds("{} {} * * {}".format, minutes, hours, st.sampled_from(["MON-FRI", "5L", "1#2"])),
)  # fmt: skip
plans = st.one_of(
    st.builds(lambda cron, zone: SchedulePlan(cron=cron, zone=zone), crons, zones),
    st.builds(lambda seconds: SchedulePlan(every=seconds * SECOND), st.integers(1, 400_000)),
)
moments = st.integers(BEGIN, BEGIN + 12 * YEAR)


def local(time: int, zone: str) -> datetime:
    return datetime.fromtimestamp(time // SECOND, ZoneInfo(zone))


def some(plan: SchedulePlan, after: int, until: int) -> list[int]:
    """Times one after the other, each asked for by itself, as an instance does that never rests."""
    found = []
    at = next_time(plan, after)
    while at is not None and at <= until:
        found.append(at)
        at = next_time(plan, at)
    return found


@given(minutes, hours, zones, st.integers(2026, 2040))
@example(30, 2, "Europe/Warsaw", 2027)
@example(0, 0, "Africa/Cairo", 2026)
@example(45, 1, "Australia/Lord_Howe", 2026)
@settings(max_examples=60, deadline=None)
def test_a_time_of_day_comes_once_a_day_also_when_clocks_are_moved(
    minute: int, hour: int, zone: str, year: int
) -> None:
    """As in Debian's cron: what is left out comes right after, what is repeated comes once."""
    begin = datetime(year, 1, 1, tzinfo=ZoneInfo(zone))
    after = int(begin.timestamp()) * SECOND - 1
    plan = planned(cron=f"{minute} {hour} * * *", zone=zone)
    found = [local(time, zone) for time in some(plan, after, after + 364 * DAY)]
    days = [begin.date() + timedelta(days=n) for n in range(len(found))]
    assert [time.date() for time in found] == days
    for time in found:
        wanted = time.replace(hour=hour, minute=minute, fold=0)
        left_out = wanted.astimezone(UTC).astimezone(ZoneInfo(zone)) != wanted
        assert left_out or time == wanted
        assert time.fold == 0


@given(st.sampled_from([5, 10, 15, 30]), zones, st.integers(0, 364))
@settings(max_examples=60, deadline=None)
def test_what_comes_all_the_time_comes_as_time_passes(step: int, zone: str, day: int) -> None:
    after = BEGIN + day * DAY
    found = some(planned(cron=f"*/{step} * * * *", zone=zone), after, after + 2 * DAY)
    gaps = {later - time for time, later in pairwise(found)}
    # In Kathmandu hours begin at a quarter, and `*/30` still comes every half an hour.
    assert gaps == {step * 60 * SECOND}


@given(plans, moments)
@settings(max_examples=200, deadline=None)
def test_times_rise_and_do_not_follow_from_where_one_begins(plan: SchedulePlan, after: int) -> None:
    found = []
    for time in times_after(plan, after):
        found.append(time)
        if len(found) == 20:
            break
    assert all(one < two for one, two in zip([after, *found], found, strict=False))
    assert found == some(plan, after, found[-1]) if found else True


@given(plans, moments, st.integers(0, 3 * YEAR), st.integers(1, CATCH_UP_MAX))
@example(SchedulePlan(cron="* * * * *"), BEGIN, 3 * YEAR, CATCH_UP_MAX)
@example(SchedulePlan(cron="* * * 1-6 *", zone="Europe/Warsaw"), BEGIN, YEAR, CATCH_UP_MAX)
@settings(max_examples=150, deadline=None)
def test_the_last_times_are_the_last_ones(
    plan: SchedulePlan, after: int, span: int, most: int
) -> None:
    found = last_times(plan, after, after + span, most)
    assert len(found) <= most
    if not found:
        first = next_time(plan, after)
        assert first is None or first > after + span
        return
    assert found == some(plan, found[0] - 1, after + span)
    if len(found) < most:
        assert found == some(plan, after, after + span)


@given(
    plans,
    st.sampled_from(list(CatchUp)),
    st.lists(
        st.one_of(
            st.integers(0, 2 * SECOND), st.integers(0, 3 * DAY), st.sampled_from([DAY, -DAY])
        ),
        max_size=30,
    ),
)
@settings(max_examples=200, deadline=None)
def test_no_time_fires_twice_or_early_whatever_the_clock_does(
    plan: SchedulePlan, catch_up: CatchUp, steps: list[int]
) -> None:
    plan = SchedulePlan(cron=plan.cron, every=plan.every, zone=plan.zone, catch_up=catch_up)
    now = BEGIN
    due = next_time(plan, now)
    fired: list[int] = []
    for step in steps:
        now += step
        if due is None:
            break
        decision = decide(plan, due, now)
        most = CATCH_UP_MAX if catch_up is CatchUp.ALL else 1
        assert len(decision.fire) <= most
        for time in decision.fire:
            assert not fired or time > fired[-1]
            assert due <= time <= now
            assert catch_up is not CatchUp.NONE or now - time <= LATE
            fired.append(time)
        assert decision.due is None or decision.due > max([*fired, now if now >= due else 0])
        if catch_up is not CatchUp.NONE and now >= due:
            assert decision.fire, "what was due has fired"
        due = decision.due


@given(plans, st.lists(st.integers(1, 40 * 60 * SECOND), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_however_often_one_looks_all_times_fire(plan: SchedulePlan, steps: list[int]) -> None:
    """With `all`, as long as fewer than a hundred were missed at once."""
    plan = SchedulePlan(cron=plan.cron, every=max(plan.every, 60 * SECOND * (not plan.cron)),
                zone=plan.zone, catch_up=CatchUp.ALL)  # fmt: skip
    now, due = BEGIN, next_time(plan, BEGIN)
    fired: list[int] = []
    for step in steps:
        now += step
        assert due is not None
        decision = decide(plan, due, now)
        fired += decision.fire
        due = decision.due
    assert fired == some(plan, BEGIN, now)


@given(plans, st.integers(END - 2 * YEAR, 2**63))
@settings(max_examples=100, deadline=None)
def test_the_calendar_ends_and_nothing_else_does(plan: SchedulePlan, now: int) -> None:
    due = next_time(plan, now)
    assert due is None or now < due < END + DAY
    decision = decide(plan, BEGIN, now)
    assert decision.due == due
