"""When a schedule fires: which times are due, and what becomes of those that were missed. Pure.

All times are µs since 1970. The state of a schedule is one time: the first that nothing was decided
about (`due`). `decide` says which times fire now, and what the next such time is. It looks at no
clock: whoever calls it says what time it is, and calls it as late as it may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from roq.errors import ConfigError, InvalidRequest
from roq.jobs.states import DEFAULT

try:
    from cronsim import CronSim, CronSimError
except ImportError:  # pragma: no cover - without the extra
    raise ConfigError("jobs need cronsim: pip install 'roq-cluster[jobs]'") from None

SECOND: Final = 1_000_000
CATCH_UP_MAX: Final = 100
"""So many missed times are caught up with by `all`, the last ones."""
LATE: Final = 60 * SECOND
"""A time that is not caught up with fires if it is no older than that."""
EVERY_MAX: Final = 366 * 86_400
CRON_MAX: Final = 200
FIELDS: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATELY: Final = 1_767_225_600 * SECOND
"""2026: what came before, when zones had other rules, never comes again."""
_MICROSECOND: Final = timedelta(microseconds=1)
_END: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The year 9999: there are no times after it."""


class CatchUp(StrEnum):
    """What becomes of times that nobody fired: all instances were away, or the schedule paused."""

    NONE = "none"
    """They are left out."""
    LAST = "last"
    """The last one fires, late."""
    ALL = "all"
    """All fire, late; of more than `CATCH_UP_MAX` the last ones."""


class Overlap(StrEnum):
    """What becomes of a time while a job of an earlier one waits or runs."""

    ALLOW = "allow"
    """Its job waits or runs beside it."""
    SKIP = "skip"
    """It has no job."""
    QUEUE = "queue"
    """Its job runs after it."""


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule fires, and how; made by `planned`.

    Attributes:
        cron: an expression of five fields; or empty.
        every: µs; of one without `cron`.
        zone: of `cron`, as in the IANA's database.
        catch_up: what becomes of times that were missed.
        overlap: what becomes of a time while a job of an earlier one is open.
        priority: of its jobs.
        items: of its jobs.
    """

    cron: str = ""
    every: int = 0
    zone: str = "UTC"
    catch_up: CatchUp = CatchUp.LAST
    overlap: Overlap = Overlap.SKIP
    priority: int = DEFAULT
    items: int = 0

    @property
    def times(self) -> str:
        """When it fires, for people."""
        return self.cron or f"every {self.every / SECOND:g} s"

    def same_times(self, other: SchedulePlan) -> bool:
        """Whether both fire at the same times."""
        return (self.cron, self.every, self.zone) == (other.cron, other.every, other.zone)


def planned(
    *,
    cron: str | None = None,
    every: float | None = None,
    zone: str = "UTC",
    catch_up: str = CatchUp.LAST,
    overlap: str = Overlap.SKIP,
    priority: int = DEFAULT,
    items: int = 0,
) -> SchedulePlan:
    """A plan that is checked; arguments as `Jobs.schedule`.

    Raises:
        InvalidRequest: a value that cannot be, or times that never come.
    """
    if (cron is None) == (every is None):
        raise InvalidRequest("a schedule has either `cron` or `every`")
    for value, kind, name in ((catch_up, CatchUp, "catch_up"), (overlap, Overlap, "overlap")):
        if value not in list(kind):
            raise InvalidRequest(f"{name} is one of {', '.join(kind)}, not {value!r}")
    plan = SchedulePlan(
        cron="" if cron is None else " ".join(str(cron).upper().split()),
        every=0 if every is None else _period(every),
        zone=zone, catch_up=CatchUp(catch_up), overlap=Overlap(overlap), priority=priority,
        items=items,
    )  # fmt: skip
    if cron is None and zone != "UTC":
        raise InvalidRequest("`every` counts seconds since 1970, in no zone: leave `zone` out")
    if cron is not None and next(_cron_times(plan, _LATELY), None) is None:
        raise InvalidRequest(f"cron {plan.cron!r} in {zone} never fires: there is no such time")
    return plan


def _period(seconds: float) -> int:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 1 <= seconds <= EVERY_MAX:
        raise InvalidRequest(f"every is a number of seconds, from 1 to 366 days, not {seconds!r}")
    return round(seconds * SECOND)


def zone_of(name: str) -> tzinfo:
    """A time zone.

    Raises:
        InvalidRequest: this host knows none of this name.
    """
    if name == "UTC":
        return UTC  # every host knows it
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):
        raise InvalidRequest(
            f"time zone {str(name)[:100]!r} is not known on this host: name one as Europe/Warsaw "
            "(if it has none at all: pip install tzdata)"
        ) from None


# --- times ----------------------------------------------------------------------------------------


def times_after(plan: SchedulePlan, after: int) -> Iterator[int]:
    """The times after that one, in order.

    Raises:
        InvalidRequest: it is no plan that `planned` makes; or the zone is not known here.
    """
    if plan.cron:
        return _cron_times(plan, after)
    if plan.every < SECOND:
        raise InvalidRequest("it has neither a cron expression nor a period of a second or more")
    first = (max(0, after) // plan.every + 1) * plan.every
    return iter(range(first, _END, plan.every))


def _cron_times(plan: SchedulePlan, after: int) -> Iterator[int]:
    if len(plan.cron) > CRON_MAX or len(plan.cron.split()) != FIELDS:
        raise InvalidRequest(
            f"cron is minute, hour, day, month and weekday, not {plan.cron[:CRON_MAX]!r}; "
            "for less than a minute there is `every`"
        )
    try:
        begin = (_EPOCH + max(0, after) * _MICROSECOND).astimezone(zone_of(plan.zone))
    except OverflowError:
        return iter(())
    try:
        found = CronSim(plan.cron, begin)
    except CronSimError as error:
        raise InvalidRequest(f"cron {plan.cron!r}: {error}") from None
    return _rising(found, after)


def _rising(found: Iterator[datetime], after: int) -> Iterator[int]:
    """Times as µs; in the hour that a clock repeats, the library begins with the first one."""
    while True:
        try:
            time = (next(found) - _EPOCH) // _MICROSECOND
        except (StopIteration, OverflowError, ValueError):
            return  # there is none in 50 years, or before the year 10000
        if time > after:
            after = time
            yield time


def next_time(plan: SchedulePlan, after: int) -> int | None:
    """The first time after that one; None: there is none.

    Raises:
        InvalidRequest: as `times_after`.
    """
    return next(times_after(plan, after), None)


def last_times(plan: SchedulePlan, after: int, until: int, most: int) -> list[int]:
    """The last times after the one and not after the other, in order.

    Of a long while it looks for the end first: how long it takes does not follow from how many
    times there were.

    Raises:
        InvalidRequest: as `times_after`.
    """
    enough = 4 * most

    def some(begin: int) -> list[int]:
        return list(
            islice(takewhile(lambda time: time <= until, times_after(plan, begin)), enough + 1)
        )

    found = some(after)
    if len(found) <= enough:
        return found[-most:]
    found = []
    low, high = after, until  # too many are after the one, and too few after the other
    while len(found) < most and high - low > 1:
        middle = (low + high) // 2
        tried = some(middle)
        if len(tried) > enough:
            low = middle
        else:
            high, found = middle, tried
    return found[-most:]


# --- decisions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """What a schedule does now.

    Attributes:
        fire: times that have a job each, in order.
        due: the first time that nothing is decided about; None: there is none any more.
    """

    fire: tuple[int, ...]
    due: int | None


def decide(plan: SchedulePlan, due: int, now: int) -> Decision:
    """Which times fire.

    Args:
        plan: of the schedule.
        due: the first time that nothing was decided about.
        now: what time it is. If it is before `due`, because a clock was set back, nothing fires
            until it is not: no time fires twice.

    Raises:
        InvalidRequest: as `times_after`.
    """
    if now < due:
        return Decision((), due)
    most = CATCH_UP_MAX if plan.catch_up is CatchUp.ALL else 1
    found = last_times(plan, due - 1, now, most)
    if plan.catch_up is CatchUp.NONE:
        found = [time for time in found if now - time <= LATE]
    return Decision(tuple(found), next_time(plan, now))
