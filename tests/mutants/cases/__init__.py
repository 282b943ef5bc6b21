"""The mistakes: one line of a module each, and the quick tests that are to notice it.

A file has those of a room.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.cases import client, exchange, log, others, requests
from tests.mutants.cases.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: Final[tuple[Mutant, ...]] = (
    *log.MUTANTS,
    *exchange.MUTANTS,
    *client.MUTANTS,
    *requests.MUTANTS,
    *others.MUTANTS,
)
