"""By when what went wrong must be well again: worked out from what is promised.

A bound is the sum of the two kinds of trouble that take the longest: one may have to wait for the
other. What is added is what stands in docs/guarantees.md for the failure itself, and the longest
time for which what it left behind is mended late: connections that are made again after a pause,
commands on their way to a process that has died, attempts that are repeated.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from roq.simulation.virtual.kinds import KINDS, Does, that

RETRY_SECONDS: Final = 16.0
"""Pauses between attempts double from one second on; in the time that troubles last they come to
this at most."""
ARRIVAL_SECONDS: Final = 30.0
"""A leader whose process has never seen a host waits so long for it: all may just be starting."""
DISMISS_SECONDS: Final = 24.0
"""An exchange that no queue wants, on a host without a manager, is emptied and ends."""
LOOK_SECONDS: Final = 1.0
"""The leader looks twice a second, reports come every second."""
TAKES_HOSTS: Final = that(Does.TAKES_HOSTS)
CHANGES: Final = that(Does.CHANGES)


def heal_seconds(happened: Collection[str], session: float) -> float:
    """By when all is well again after the last of these kinds of trouble has ended.

    Args:
        happened: the kinds.
        session: seconds of a session with ZooKeeper.
    """
    kinds = set(happened)
    found = [KINDS[kind].owed for kind in kinds]
    owed = sorted(each.seconds + each.sessions * session for each in found)
    seconds = LOOK_SECONDS + sum(owed[-2:])
    if len(kinds) > 1 and kinds & TAKES_HOSTS:
        # An attempt may have been made with a process that was just going.
        seconds += RETRY_SECONDS
    if "kill-gcm" in kinds and kinds & TAKES_HOSTS:
        seconds += ARRIVAL_SECONDS
    if "kill-hcm" in kinds and kinds & CHANGES:
        seconds += DISMISS_SECONDS
    return seconds
