"""What holds of every module of events and effects; no test in here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import FrozenInstanceError, fields, is_dataclass
from types import ModuleType
from typing import get_args


def words(module: ModuleType) -> list[type]:
    """The classes that stand in this module."""
    return [
        each for each in vars(module).values()
        if isinstance(each, type) and is_dataclass(each) and each.__module__ == module.__name__
    ]  # fmt: skip


def unsaid(module: ModuleType, *parts: type) -> list[type]:
    """Those that are neither events nor effects, nor parts of these."""
    said = {*get_args(module.Event), *get_args(module.Effect), *parts}
    return [each for each in words(module) if each not in said]


def kinds(said: Iterable[object]) -> set[type]:
    """Of which kinds these are."""
    return {type(each) for each in said}


def is_kept(said: object) -> bool:
    """Whether nobody can change what was said, or keep something else beside it."""
    for name in [each.name for each in fields(said)] or ["anything"]:  # type: ignore[arg-type]
        try:
            setattr(said, name, None)
        except (FrozenInstanceError, TypeError, AttributeError):
            continue
        return False
    return True
