"""Modules of scenarios, which an extra brings: imported when they are used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from roq.cli.failures import Failed
from roq.runtime import exits

EXTRA: Final = "pip install 'roq[sim]'"


def wanted(module: str) -> ModuleType:
    """Import what an extra brings; say which one if it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Failed(
            f"scenarios need what is not installed here: {error.name}",
            exits.UNAVAILABLE,
            f"Install it with {EXTRA}.",
        ) from None
