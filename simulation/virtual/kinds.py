"""The kinds of trouble: how long each lasts, what it does, and what it leaves to be mended.

One table says it all. `troubles` makes them happen, `bounds` says by when all is well again,
`promises` what is promised in spite of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from types import MappingProxyType
from typing import Final, NamedTuple

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


class Does(Flag):
    """What a kind of trouble does, or spares."""

    CUTS_OFF = auto()
    """Keeps readers from what there is: without that an exchange that dies loses nothing."""
    TAKES_HOSTS = auto()
    """A process may be missing while something is to be changed or mended."""
    LEADERLESS = auto()
    """No manager may lead for longer than a child waits that no queue wants."""
    CHANGES = auto()
    """Queues are changed by it."""
    SPARES_CHILDREN = auto()
    """Nothing happens to monitors and exchanges."""
    SPARES_READERS = auto()
    """A subscriber is there that was there before, and is heard."""
    PACED = auto()
    """No exchange is silent for longer than subscribers wait for it."""
    SPECIAL = auto()
    """Has chance of its own: the histories of seeds without it stay as they were."""


_CUTS, _HOSTS, _ALONE = Does.CUTS_OFF, Does.TAKES_HOSTS, Does.LEADERLESS
_CHILDREN, _READERS, _SPECIAL = Does.SPARES_CHILDREN, Does.SPARES_READERS, Does.SPECIAL
_BOTH: Final = _CHILDREN | _READERS


class Kind(NamedTuple):
    """A kind of trouble.

    Attributes:
        owed: what it leaves to be mended.
        does: what it does, or spares.
        seconds: how long it lasts, or a process that was killed takes to be started again.
        for_good: how often that does not come back, if the cluster can do without it.
    """

    owed: Owed
    does: Does = Does(0)
    seconds: tuple[float, float] = (0.0, 0.0)
    for_good: float = 0.0


_DISK: Final = Owed(seconds=START_SECONDS)
_DRAIN: Final = Owed(seconds=COMMAND_SECONDS + SETTLE_SECONDS)
_CHANGES: Final = Does.CHANGES

KINDS: Final[Mapping[str, Kind]] = MappingProxyType({
    "cut": Kind(_CLIENTS, _CUTS | _CHILDREN),
    "stall": Kind(_CLIENTS, _CUTS, (0.05, 1.5)),
    "drop": Kind(_CLIENTS, _CUTS | _CHILDREN, (0.2, 2.0)),
    "lag": Kind(_CLIENTS, _CUTS, (0.2, 2.0)),
    "partition": Kind(_LOST, _CUTS | _HOSTS, (0.2, 8.0)),
    "one-way": Kind(_LOST, _CUTS | _HOSTS, (0.2, 8.0)),
    "isolate": Kind(_LOST, _CUTS | _HOSTS, (0.2, 8.0)),
    "pause": Kind(_LOST, _CUTS | _HOSTS, (0.1, 7.0)),
    "kill-exchange": Kind(_CHILD),
    "kill-monitor": Kind(_CHILD),
    "kill-hcm": Kind(_LOST, _HOSTS | _BOTH, (0.1, 5.0), for_good=0.2),
    "kill-gcm": Kind(_LEADER, _ALONE | _BOTH, (0.1, 5.0), for_good=0.2),
    "kill-host": Kind(_LOST, _HOSTS, (0.3, 8.0), for_good=0.4),
    "kill-publisher": Kind(_CLIENTS, _BOTH, (0.1, 1.0)),
    "kill-subscriber": Kind(_CLIENTS, _CHILDREN, (0.1, 1.0)),
    "slow-disk": Kind(_DISK, _BOTH, (0.5, 5.0)),
    "clock": Kind(Owed(), _BOTH),
    "expiry": Kind(_LEADER, _ALONE | _BOTH),
    "away": Kind(_REGISTRY, _ALONE | _BOTH, (0.3, 7.0)),
    "empty": Kind(_REGISTRY, _ALONE | _BOTH, (0.3, 4.0)),
    "grow": Kind(_CHANGE, _CHANGES | _BOTH),
    "shrink": Kind(_CHANGE, _CHANGES),
    "another-queue": Kind(_CHANGE, _CHANGES | _BOTH),
    "insist": Kind(_CHANGE, _SPECIAL | _CHANGES | _BOTH),
    "lose": Kind(_CLIENTS, _SPECIAL | _BOTH),
    "mute": Kind(_CHILD, _SPECIAL, (0.1, 0.8)),
    "drain": Kind(_DRAIN, _SPECIAL, (0.5, 8.0)),
    "sluggish": Kind(_CLIENTS, _SPECIAL | _READERS, (0.3, 14.0)),
    "power": Kind(_LOST, _SPECIAL | _HOSTS, (0.3, 8.0)),
    "disk": Kind(_CHILD, _SPECIAL, (0.5, 5.0)),
    "uneven": Kind(_CLIENTS, _SPECIAL | _CHILDREN | Does.PACED, (0.5, 8.0)),
    "kill-member": Kind(_CLIENTS, _SPECIAL | _BOTH, (0.1, 3.0)),
    "pause-member": Kind(_CLIENTS, _SPECIAL | _BOTH, (0.5, 9.0)),
    "cut-member": Kind(_CLIENTS, _SPECIAL | _BOTH, (0.1, 5.0)),
})  # fmt: skip
"""By the names that `--only` and `--without` take."""


def that(does: Does) -> frozenset[str]:
    """The kinds that do this."""
    return frozenset(name for name, kind in KINDS.items() if does in kind.does)
