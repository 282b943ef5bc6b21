"""Limits of a type: what its program declares, what an operator has set in place of it, how many
jobs a rate lets begin now, and who may use how much of what holds for all instances together: a
fair share, and what others lend. Each instance comes to its share alone, from what all know, so
nobody has to be asked. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from roq.errors import InvalidRequest
from roq.jobs.states import DEFAULT, PRIORITIES, RETRIES, TIME_LIMIT_SECONDS

SLOTS_MAX: Final = 10_000
RETRIES_MAX: Final = 100
RATE_MAX: Final = 100_000.0
YEAR_SECONDS: Final = 365 * 86_400
AT_ONCE: Final = 1_000_000
"""µs: so much of a rate may begin at once after a rest. Instances look twice a second."""
NONE: Final = "none"
AS_DECLARED: Final = "declared"


class TypeLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for the jobs of a type."""

    threads: int | None = None
    """Jobs that run at once in one instance; None: as many as it has threads."""
    cluster_limit: int | None = None
    """Jobs that run at once in the whole cluster; None: no limit."""
    retries: int = RETRIES
    """So often is a restartable job tried again after an exception, or its time limit."""
    time_limit: float = TIME_LIMIT_SECONDS
    """Seconds that a run may take."""
    rate: float | None = None
    """Jobs that begin in a second, in the whole cluster; None: no limit."""
    priority: int = DEFAULT
    """Of jobs that are submitted without one."""


class LimitChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator has set; what is not is as the program declares it."""

    threads: int | UnsetType | None = UNSET
    cluster_limit: int | UnsetType | None = UNSET
    retries: int | UnsetType = UNSET
    time_limit: float | UnsetType = UNSET
    rate: float | UnsetType | None = UNSET
    priority: int | UnsetType = UNSET


LIMITS: Final = LimitChanges.__struct_fields__
"""Names of all limits."""
MAY_BE_NONE: Final = frozenset({"threads", "cluster_limit", "rate"})


def checked(limits: TypeLimits) -> TypeLimits:
    """The same limits, if they can be.

    Raises:
        InvalidRequest: says which cannot.
    """
    for name in ("threads", "cluster_limit"):
        _whole(name, getattr(limits, name), 1, SLOTS_MAX, none=True)
    _whole("retries", limits.retries, 0, RETRIES_MAX)
    _number("time_limit", limits.time_limit, 0.001, YEAR_SECONDS, "seconds, up to a year")
    if limits.rate is not None:
        least = 1 / YEAR_SECONDS
        _number("rate", limits.rate, least, RATE_MAX, f"jobs a second, up to {RATE_MAX:,.0f}")
    if limits.priority not in PRIORITIES.values() or isinstance(limits.priority, bool):
        raise InvalidRequest(f"priority is one of {', '.join(PRIORITIES)}, not {limits.priority!r}")
    return limits


def _whole(name: str, value: object, least: int, most: int, *, none: bool = False) -> None:
    if none and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequest(f"{name} is a number from {least} to {most:,}, not {value!r}")


def _number(name: str, value: object, least: float, most: float, what: str) -> None:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not least <= value <= most
        or math.isnan(value)
    ):
        raise InvalidRequest(f"{name} is a number of {what}, not {value!r}")


def changed(before: LimitChanges, given: Mapping[str, str]) -> LimitChanges:
    """What holds after an operator has set limits.

    Args:
        before: what was set already.
        given: limit → text: a number (of a rate also NUMBER/SECONDS), the name of a priority,
            `none` for no limit, or `declared` for what the program declares.

    Raises:
        InvalidRequest: there is no such limit, or it cannot be so.
    """
    unknown = sorted(set(given) - set(LIMITS))
    if unknown:
        raise InvalidRequest(f"there is no limit {unknown[0]!r}: there are {', '.join(LIMITS)}")
    after: dict[str, Any] = msgspec.structs.asdict(before)
    for name, text in given.items():
        after[name] = _read(name, text.strip().lower())
    made = LimitChanges(**after)
    checked(in_force(TypeLimits(), made))
    return made


def _read(name: str, text: str) -> object:
    if text == AS_DECLARED:
        return UNSET
    if text == NONE and name in MAY_BE_NONE:
        return None
    if name == "priority":
        if text not in PRIORITIES:
            raise InvalidRequest(f"priority is one of {', '.join(PRIORITIES)}, not {text!r}")
        return PRIORITIES[text]
    number, _, seconds = text.partition("/") if name == "rate" else (text, "", "")
    try:
        if name in {"rate", "time_limit"}:
            return float(number) / float(seconds or "1")
        return int(number)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InvalidRequest(f"{name} cannot be {text!r}") from None


def text_of(name: str, value: object) -> str:
    """A limit as people read and type it."""
    if value is None:
        return NONE
    if name == "priority":
        return next((each for each, number in PRIORITIES.items() if number == value), str(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def texts(changes: LimitChanges) -> dict[str, str]:
    """What an operator has set, as people read and type it; the rest is `declared`."""
    return {
        name: AS_DECLARED if value is UNSET else text_of(name, value)
        for name, value in msgspec.structs.asdict(changes).items()
    }


def in_force(declared: TypeLimits, changes: LimitChanges) -> TypeLimits:
    """What holds: what an operator has set, and else what the program declares."""
    given = {
        name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET
    }
    return msgspec.structs.replace(declared, **given)


def written(limits: TypeLimits | LimitChanges) -> str:
    """As the database has them."""
    return msgspec.json.encode(limits).decode()


@lru_cache(maxsize=1_000)
def read_limits(text: str) -> TypeLimits:
    """What a program has declared; what cannot be read is as if it had declared nothing."""
    try:
        return checked(msgspec.json.decode(text, type=TypeLimits))
    except (msgspec.MsgspecError, InvalidRequest, RecursionError):
        return TypeLimits()


@lru_cache(maxsize=1_000)
def read_changes(text: str) -> LimitChanges:
    """What an operator has set; what cannot be read is not set."""
    try:
        found = msgspec.json.decode(text, type=LimitChanges)
        checked(in_force(TypeLimits(), found))
    except (msgspec.MsgspecError, InvalidRequest, RecursionError):
        return LimitChanges()
    return found


# --- rates ----------------------------------------------------------------------------------------


def may_begin(rate: float, next_: int, now: int) -> int:
    """How many jobs of a type may begin now.

    In any `t` seconds never more than `rate · (t + 1)` and one begin, and over long times as many
    as the rate says, if there are so many: who comes late is not slower for it.

    Args:
        rate: jobs a second.
        next_: µs; of the last call of `begun`, 0 at first.
        now: µs.
    """
    room = now + AT_ONCE - _next(rate, next_, now)
    return 0 if room < 0 else min(SLOTS_MAX, int(room * rate / 1_000_000) + 1)


def begun(rate: float, next_: int, now: int, number: int) -> int:
    """What `may_begin` is to be given next, after so many have begun."""
    return _next(rate, next_, now) + math.ceil(number * 1_000_000 / rate)


def _next(rate: float, next_: int, now: int) -> int:
    """From when it is counted. What is later than this rate ever makes it is of a lower rate, or of
    a clock that has been set back since: nobody waits for that."""
    return next_ if now < next_ <= now + AT_ONCE + math.ceil(1_000_000 / rate) else now


def fair_share(limit: int, instances: Collection[int], me: int, subject: str) -> int:
    """How much of a limit is mine while others want some of it, too.

    Each has the limit divided by their number, and what remains goes to some of them by one each.
    Which ones follows from the subject, so that the instance that is first for one type is not
    first for all. Whoever knows the same instances comes to the same result, without asking.

    Args:
        limit: of all instances together.
        instances: all that want some, by ids that each of them knows; me among them.
        me: my id.
        subject: what is limited.

    The shares of all instances add up to the limit. With more instances than the limit some have
    nothing.
    """
    order = sorted({*instances, me})
    each, rest = divmod(limit, len(order))
    first = int.from_bytes(hashlib.sha256(subject.encode()).digest()[:8], "big") % len(order)
    place = (order.index(me) - first) % len(order)
    return each + (place < rest)


def lent(
    limit: int, instances: Collection[int], hungry: Collection[int], me: int, subject: str
) -> int:
    """How much of a limit I may use now.

    All of it while nobody else is hungry: what others do not use is lent. Otherwise my fair share.

    Args:
        limit: of all instances together.
        instances: all that can use some; me among them.
        hungry: those that have work and lack some of it.
        me: my id.
        subject: what is limited.
    """
    if not set(hungry) - {me}:
        return limit
    return fair_share(limit, instances, me, subject)
