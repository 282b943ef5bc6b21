"""Policies with other thresholds than RoQ's, for as long as a run takes.

The thresholds of RoQ's policies are constants of their modules. For a sweep they are set to other
values in the module that has them and in all that have taken them over from there; a value that
was worked out of another one when a module was loaded stays.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Final

import roq.policy
from roq.errors import ConfigError

PACKAGE: Final = "roq.policy"


def known() -> dict[str, float]:
    """`module.NAME` → value of all that can be changed."""
    found = {}
    for module in _modules():
        short = module.__name__.removeprefix(f"{PACKAGE}.")
        for name in _annotations(module):
            value = getattr(module, name, None)
            if name.isupper() and not name.startswith("_") and isinstance(value, int | float):
                found[f"{short}.{name}"] = float(value)
    return found


@contextmanager
def applied(thresholds: Mapping[str, float]) -> Iterator[None]:
    """Other thresholds within the block.

    Raises:
        ConfigError: there is no such threshold.
    """
    usual = known() if thresholds else {}
    unknown = sorted(thresholds.keys() - usual.keys())
    if unknown:
        raise ConfigError(f"no policy has a threshold {unknown[0]!r}; there are {', '.join(usual)}")
    changed: list[tuple[ModuleType, str, object]] = []
    try:
        for key, value in thresholds.items():
            short, name = key.split(".")
            owner = importlib.import_module(f"{PACKAGE}.{short}")
            before = getattr(owner, name)
            for module in _modules():
                own = name in _annotations(module)
                if vars(module).get(name) is before and (module is owner or not own):
                    changed.append((module, name, before))
                    setattr(module, name, int(value) if isinstance(before, int) else value)
        yield
    finally:
        for module, name, before in changed:
            setattr(module, name, before)


def _modules() -> list[ModuleType]:
    names = [each.name for each in pkgutil.iter_modules(roq.policy.__path__)]
    return [importlib.import_module(f"{PACKAGE}.{name}") for name in names]


def _annotations(module: ModuleType) -> dict[str, object]:
    """What a module gives a type to: its own constants, not those that it imports."""
    found: dict[str, object] = vars(module).get("__annotations__", {})
    return found
