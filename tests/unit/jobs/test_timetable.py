"""Plans that are refused, and times at the edges; more in `tests/property/test_schedules.py`."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from roq.errors import InvalidRequest
from roq.jobs.timetable import (
    CATCH_UP_MAX,
    LATE,
    SECOND,
    CatchUp,
    Decision,
    Overlap,
    SchedulePlan,
    decide,
    last_times,
    next_time,
    planned,
    times_after,
)

WARSAW = ZoneInfo("Europe/Warsaw")


def at(*numbers: int, zone: str = "Europe/Warsaw", fold: int = 0) -> int:
    return int(datetime(*numbers, tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * SECOND


def times(cron: str, after: int, number: int, zone: str = "Europe/Warsaw") -> list[str]:
    found = islice(times_after(planned(cron=cron, zone=zone), after), number)
    return [
        datetime.fromtimestamp(time // SECOND, ZoneInfo(zone)).isoformat(" ", "minutes")
        for time in found
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "either `cron` or `every`"),
        ({"cron": "* * * * *", "every": 5}, "either `cron` or `every`"),
        ({"cron": ""}, "minute, hour, day, month and weekday"),
        ({"cron": "@daily"}, "minute, hour, day, month and weekday"),
        ({"cron": "0 0 3 * * *"}, "for less than a minute there is `every`"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "0 3 * * FOO"}, "Bad day-of-week"),
        ({"cron": "1," * 100 + "1 * * * *"}, "minute, hour"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "*/30 2 * 3 0L", "zone": "Europe/Warsaw"}, "never fires"),
        ({"cron": "0 3 * * *", "zone": "Mars/Phobos"}, "Mars/Phobos"),
        ({"cron": "0 3 * * *", "zone": "Europe"}, "not known"),
        ({"cron": "0 3 * * *", "zone": "../../etc/passwd"}, "not known"),
        ({"cron": "0 3 * * *", "zone": "a\0b"}, "not known"),
        ({"cron": "0 3 * * *", "zone": ""}, "not known"),
        ({"cron": "0 3 * * *", "zone": None}, "not known"),
        ({"every": -5}, "number of seconds"),
        ({"every": 0}, "number of seconds"),
        ({"every": 0.5}, "number of seconds"),
        ({"every": float("nan")}, "number of seconds"),
        ({"every": float("inf")}, "number of seconds"),
        ({"every": True}, "number of seconds"),
        ({"every": "5"}, "number of seconds"),
        ({"every": 5, "zone": "Europe/Warsaw"}, "leave `zone` out"),
        ({"every": 5, "catch_up": "some"}, "none, last, all"),
        ({"every": 5, "overlap": ["skip"]}, "allow, skip, queue"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        planned(**given)  # type: ignore[arg-type]


def test_a_plan_says_what_was_given() -> None:
    plan = planned(cron=" 0  3 * * mon ", zone="Europe/Warsaw", catch_up="all", overlap="queue")
    assert plan == SchedulePlan(cron="0 3 * * MON", zone="Europe/Warsaw", catch_up=CatchUp.ALL,
                        overlap=Overlap.QUEUE)  # fmt: skip
    assert (plan.times, planned(every=1.5).times) == ("0 3 * * MON", "every 1.5 s")
    assert plan.same_times(planned(cron="0 3 * * MON", zone="Europe/Warsaw"))
    assert not plan.same_times(planned(cron="0 3 * * MON"))


def test_a_time_that_is_left_out_in_spring_comes_right_after() -> None:
    assert times("30 2 * * *", at(2027, 3, 27, 12), 2) == [
        "2027-03-28 03:00+02:00",
        "2027-03-29 02:30+02:00",
    ]


def test_a_time_that_comes_twice_in_autumn_fires_once() -> None:
    assert times("30 2 * * *", at(2027, 10, 30, 12), 2) == [
        "2027-10-31 02:30+02:00",
        "2027-11-01 02:30+01:00",
    ]
    again = at(2027, 10, 31, 2, 10, fold=1)
    assert times("30 2 * * *", again, 1) == ["2027-11-01 02:30+01:00"], "the second 02:10"


def test_what_comes_all_the_time_comes_twice_in_the_hour_that_does() -> None:
    assert times("*/30 * * * *", at(2027, 10, 31, 1, 59), 4) == [
        "2027-10-31 02:00+02:00",
        "2027-10-31 02:30+02:00",
        "2027-10-31 02:00+01:00",
        "2027-10-31 02:30+01:00",
    ]


def test_leap_days() -> None:
    found = times("0 0 29 2 *", at(2027, 1, 1), 2)
    assert [each[:10] for each in found] == ["2028-02-29", "2032-02-29"]
    found = times("0 0 29 2 *", at(2097, 1, 1), 1, "UTC")
    assert found[0].startswith("2104"), "2100 is none"
    assert times("0 0 * 2 MON#5", at(2027, 1, 1), 1, "UTC")[0].startswith("2044-02-29")


def test_the_last_times_there_are() -> None:
    end = at(9999, 12, 31, 23, 59, zone="UTC")
    for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
        plan = planned(cron="* * * * *", zone=zone)
        assert next_time(plan, end + 86_400 * SECOND) is None
        assert len(list(times_after(plan, end - 60 * SECOND))) <= 2
        assert next_time(plan, 2**63) is None
    assert next_time(planned(every=86_400), end) is None
    assert last_times(planned(every=60), end - 600 * SECOND, 2**63, 3)[-1] <= end


def test_before_1970_is_1970() -> None:
    assert next_time(planned(every=60), -(2**63)) == 60 * SECOND
    assert next_time(planned(cron="* * * * *"), -(2**63)) == 60 * SECOND


def test_a_period_follows_from_1970_and_not_from_a_start() -> None:
    begin = at(2027, 1, 1, zone="UTC")
    assert next_time(planned(every=86_400), begin + 5) == begin + 86_400 * SECOND
    assert next_time(planned(every=1.5), begin) == begin + 1_500_000


MINUTE = 60 * SECOND
BEGIN = at(2027, 1, 1, 12, zone="UTC")


@pytest.mark.parametrize(
    ("catch_up", "fire"),
    [
        ("none", []),
        ("last", [BEGIN + 300 * MINUTE]),
        ("all", [BEGIN + n * MINUTE for n in range(300 - 5 * (CATCH_UP_MAX - 1), 301, 5)]),
    ],
)
def test_hundred_missed_times(catch_up: str, fire: list[int]) -> None:
    plan = planned(cron="*/5 * * * *", catch_up=catch_up)
    now = BEGIN + 300 * MINUTE + LATE + SECOND
    first = BEGIN - 1_000_000 * MINUTE
    decision = decide(plan, first, now)
    assert decision == Decision(tuple(fire), BEGIN + 305 * MINUTE)


def test_one_that_does_not_catch_up_is_not_late_by_a_moment() -> None:
    plan = planned(cron="0 3 * * *", catch_up="none")
    due = at(2027, 1, 1, 3, zone="UTC")
    assert decide(plan, due, due + LATE).fire == (due,)
    assert decide(plan, due, due + LATE + 1).fire == ()


def test_a_clock_that_was_set_back_is_waited_for() -> None:
    plan = planned(every=60)
    for back in (1, 86_400 * SECOND):
        assert decide(plan, BEGIN, BEGIN - back) == Decision((), BEGIN)


@pytest.mark.parametrize(
    "plan",
    [
        SchedulePlan(),
        SchedulePlan(every=-5),
        SchedulePlan(every=5),
        SchedulePlan(cron="x"),
        SchedulePlan(cron="* * * * *", zone="x"),
        SchedulePlan(cron="* * * * * *"),
        SchedulePlan(cron="0 0 30 2 *"),
    ],
)
def test_a_plan_that_somebody_has_spoilt_is_told(plan: SchedulePlan) -> None:
    with pytest.raises(InvalidRequest):
        decide(plan, BEGIN, BEGIN)
