"""By when what went wrong must be well again: worked out from what is promised.

A bound is the sum of the two kinds of trouble that take the longest: one may have to wait for the
other. What is added is what stands in docs/guarantees.md for the failure itself, and the longest
time for which what it left behind is mended late: connections that are made again after a pause,
commands on their way to a process that has died, attempts that are repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

PAUSE_SECONDS: Final = 5.0
"""Clients make their connections again after pauses of up to so long."""
PROOF_SECONDS: Final = 3.0
"""A host without a manager is lost when nothing on it gave a sign of life for so long."""
START_SECONDS: Final = 5.0
"""What a process takes to start when the disk is slow, and to be known."""
SETTLE_SECONDS: Final = 6.0
"""A new monitor waits so long for exchanges before it tells who there are."""
COMMAND_SECONDS: Final = 16.0
"""A command whose answer does not come is given up after so long."""
RETRY_SECONDS: Final = 16.0
"""Pauses between attempts double from one second on; in the time that troubles last they come to
this at most."""
ARRIVAL_SECONDS: Final = 30.0
"""A leader whose process has never seen a host waits so long for it: all may just be starting."""
DISMISS_SECONDS: Final = 24.0
"""An exchange that no queue wants, on a host without a manager, is emptied and ends."""


@dataclass(frozen=True, slots=True)
class Owed:
    """What a kind of trouble leaves to be mended.

    Attributes:
        sessions: so many sessions with ZooKeeper have to end first.
        seconds: and then it takes so long.
    """

    sessions: float = 0.0
    seconds: float = 0.0


_CLIENTS: Final = Owed(seconds=PAUSE_SECONDS)
_LOST: Final = Owed(sessions=1.0, seconds=PROOF_SECONDS + START_SECONDS + SETTLE_SECONDS)
"""A process may have been taken for lost, and what ran there be set up elsewhere."""
_CHILD: Final = Owed(seconds=START_SECONDS + SETTLE_SECONDS)
_LEADER: Final = Owed(sessions=1.0, seconds=2.0)
_REGISTRY: Final = Owed(sessions=2.0, seconds=2.0)
"""A client of ZooKeeper that never hears again is built anew after twice a session."""
_CHANGE: Final = Owed(seconds=COMMAND_SECONDS)

OWED: Final[Mapping[str, Owed]] = MappingProxyType({
    "cut": _CLIENTS, "stall": _CLIENTS, "drop": _CLIENTS, "lag": _CLIENTS, "clock": Owed(),
    "partition": _LOST, "one-way": _LOST, "isolate": _LOST, "pause": _LOST,
    "kill-host": _LOST, "kill-hcm": _LOST, "kill-exchange": _CHILD, "kill-monitor": _CHILD,
    "kill-gcm": _LEADER, "expiry": _LEADER, "away": _REGISTRY, "empty": _REGISTRY,
    "kill-publisher": _CLIENTS, "kill-subscriber": _CLIENTS,
    "slow-disk": Owed(seconds=START_SECONDS),
    "grow": _CHANGE, "shrink": _CHANGE, "another-queue": _CHANGE,
    "lose": _CLIENTS, "mute": _CHILD, "insist": _CHANGE, "sluggish": _CLIENTS,
    "uneven": _CLIENTS,
    "drain": Owed(seconds=COMMAND_SECONDS + SETTLE_SECONDS),
})  # fmt: skip
LOOK_SECONDS: Final = 1.0
"""The leader looks twice a second, reports come every second."""
TAKES_HOSTS: Final = frozenset(
    {"partition", "one-way", "isolate", "pause", "kill-host", "kill-hcm"}
)
"""Kinds by which a process may be missing while something is to be changed or mended."""


def heal_seconds(happened: Collection[str], session: float) -> float:
    """By when all is well again after the last of these kinds of trouble has ended.

    Args:
        happened: the kinds.
        session: seconds of a session with ZooKeeper.
    """
    kinds = set(happened)
    owed = sorted(OWED[kind].seconds + OWED[kind].sessions * session for kind in kinds)
    seconds = LOOK_SECONDS + sum(owed[-2:])
    if len(kinds) > 1 and kinds & TAKES_HOSTS:
        # An attempt may have been made with a process that was just going.
        seconds += RETRY_SECONDS
    if "kill-gcm" in kinds and kinds & TAKES_HOSTS:
        seconds += ARRIVAL_SECONDS
    if "kill-hcm" in kinds and any(OWED[kind] is _CHANGE for kind in kinds):
        seconds += DISMISS_SECONDS
    return seconds
