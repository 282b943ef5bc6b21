"""Filters on the topic that an exchange can apply itself, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

TOPIC = ("topic",)


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
