"""Modules that an extra brings, imported when they are used: scenarios and benchmarks."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from roq.cli.failures import Failed
from roq.runtime import exits

EXTRA: Final = "pip install 'roq-cluster[sim]'"


BENCH: Final = "pip install 'roq-cluster[bench]'"


def wanted(module: str, what: str = "scenarios", extra: str = EXTRA) -> ModuleType:
    """Import what an extra brings; say which one if it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Failed(
            f"{what} need what is not installed here: {error.name}",
            exits.UNAVAILABLE,
            f"Install it with {extra}.",
        ) from None
