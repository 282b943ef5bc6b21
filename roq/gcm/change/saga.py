"""What a saga is: a change in several steps, each of which needs something of another party.

It is a generator that yields what it needs (`Save` to the registry, `Draw` from its counter,
`Calls` to host managers, `Admit` to a host on which something is to be started, `Emit` for effects
without an answer), is sent the outcome, and returns the answer to its request; a `RequestError`
that leaves it is the answer as well.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

from roq.gcm.events import Change, Effect
from roq.protocol.control import Control
from roq.protocol.documents import RawDocument


@dataclass(frozen=True, slots=True)
class Save:
    """Change the registry; the saga goes on once it stands there, or gets the error raised."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw a number of the counter of host epochs; the saga goes on with it, or gets the error."""


@dataclass(frozen=True, slots=True)
class Call:
    """Ask the manager of one host, or a monitor."""

    host: str
    endpoint: str
    message: Control
    timeout: float = 10.0
    again: bool = False
    """Whether it is asked again and again until the time is over: a connection may be dead."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Ask several hosts at once; the saga goes on with a `Control` or a reason (str) for each."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Perform these and go on."""

    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Start something on this host, once there; the saga goes on when it is its turn.

    Raises `Busy` in the saga if that takes too long. What it begins counts until it ends.
    """

    host: str


Step: TypeAlias = Save | Draw | Calls | Admit | Emit
Result: TypeAlias = Control | str | int
"""An answer, the reason why there is none, or a number that was drawn."""
Outcome: TypeAlias = list[Result]
Saga: TypeAlias = Generator[Step, Outcome, RawDocument | Control | None]
"""Gives the answer to its request; None if another part gives it."""
