"""Filters that make less to be read: topics that exchanges pick, parts of logs left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from roq.model import LogId

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

TOPIC = ("topic",)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which parts of logs can hold rows that pass; Spark looks at the rows themselves again.

    Attributes:
        exchanges, generations: of the logs; None: any.
        first, until: offsets, the last one excluded; None: no end.
        since_us, before_us: when batches were appended, µs since 1970, the last moment excluded;
            None: at any time.
    """

    exchanges: frozenset[int] | None = None
    generations: frozenset[int] | None = None
    first: int = 0
    until: int | None = None
    since_us: int | None = None
    before_us: int | None = None

    def has(self, log: LogId) -> bool:
        """Whether a log can hold such rows."""
        wanted = ((self.exchanges, log.number), (self.generations, log.generation))
        return all(numbers is None or number in numbers for numbers, number in wanted)

    def within(
        self,
        start: Mapping[LogId, int],
        end: Mapping[LogId, int],
        since: Mapping[LogId, int],
        before: Mapping[LogId, int],
    ) -> tuple[dict[LogId, int], dict[LogId, int]]:
        """What is left of parts of logs: from where, and until where.

        Args:
            start, end: the parts.
            since, before: offsets of the first batches appended at or after both moments; empty
                where none is set.
        """
        first, until = {}, {}
        for log, high in end.items():
            low = start.get(log, 0)
            most = high if self.until is None else min(high, self.until)
            first[log] = min(high, max(low, self.first, since.get(log, low)))
            until[log] = max(first[log], min(most, before.get(log, high)))
            if not self.has(log):
                until[log] = first[log]
        return first, until


def bounded(filters: Iterable[Filter]) -> Bounds:
    """The bounds that filters on `exchange`, `generation`, `offset` and `appended` mean."""
    found = Bounds()
    for each in filters:
        column, value = getattr(each, "attribute", None), getattr(each, "value", None)
        kind = type(each).__name__
        match column:
            case ("exchange",):
                found = replace(found, exchanges=_among(found.exchanges, kind, value))
            case ("generation",):
                found = replace(found, generations=_among(found.generations, kind, value))
            case ("offset",) if isinstance(value, int):
                low, high = _span(kind, value)
                first, until = _narrower(found.first, found.until, low, high)
                found = replace(found, first=first or 0, until=until)
            case ("appended",) if isinstance(value, datetime) and value.tzinfo is not None:
                low, high = _span(kind, (value - _EPOCH) // _MICROSECOND)
                since, before = _narrower(found.since_us, found.before_us, low, high)
                found = replace(found, since_us=since, before_us=before)
            case _:
                pass
    return found


def _among(before: frozenset[int] | None, kind: str, value: object) -> frozenset[int] | None:
    match kind:
        case "EqualTo" | "EqualNullSafe" if isinstance(value, int):
            wanted = frozenset({value})
        case "In" if isinstance(value, tuple) and all(isinstance(each, int) for each in value):
            wanted = frozenset(value)
        case _:
            return before
    return wanted if before is None else before & wanted


def _span(kind: str, value: int) -> tuple[int | None, int | None]:
    """From where, and until where, whole numbers pass; None: without an end."""
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return value, value + 1
        case "GreaterThan":
            return value + 1, None
        case "GreaterThanOrEqual":
            return value, None
        case "LessThan":
            return None, value
        case "LessThanOrEqual":
            return None, value + 1
        case _:
            return None, None


def _narrower(
    first: int | None, until: int | None, low: int | None, high: int | None
) -> tuple[int | None, int | None]:
    lows = [each for each in (first, low) if each is not None]
    highs = [each for each in (until, high) if each is not None]
    return max(lows, default=None), min(highs, default=None)


def narrowed(
    prefixes: tuple[bytes, ...], filters: Iterable[Filter]
) -> tuple[tuple[bytes, ...], list[Filter]]:
    """The topic prefixes that are left, and the filters that are still to be applied.

    An exchange knows prefixes alone, so only "begins with" is done for good; equality makes what is
    sent less, and is looked at again afterwards.

    Returns:
        no prefixes at all if nothing can pass.
    """
    left: list[Filter] = []
    for each in filters:
        wanted = _prefixes(each)
        if wanted is None:
            left.append(each)
            continue
        prefixes = _both(prefixes, wanted)
        if type(each).__name__ != "StringStartsWith":
            left.append(each)
    return prefixes, left


def _prefixes(given: Filter) -> tuple[bytes, ...] | None:
    """What a topic that passes begins with; None if that does not say it."""
    if getattr(given, "attribute", None) != TOPIC:
        return None
    value = getattr(given, "value", None)
    match type(given).__name__:
        case "EqualTo" | "EqualNullSafe" | "StringStartsWith" if isinstance(value, str):
            return (value.encode(),)
        case "In" if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
            return tuple(each.encode() for each in value)
        case _:
            return None


def _both(some: tuple[bytes, ...], others: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Prefixes of what begins with one of `some` and one of `others`."""
    found = {
        max(one, other, key=len)
        for one in some
        for other in others
        if one.startswith(other) or other.startswith(one)
    }
    # A prefix of another one says it all.
    return tuple(
        sorted(
            prefix
            for prefix in found
            if not any(prefix != other and prefix.startswith(other) for other in found)
        )
    )
