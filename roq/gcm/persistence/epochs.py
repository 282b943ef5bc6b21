"""Above which epoch a manager leads: what it has led under, and what hosts have told of.

What hosts tell is believed within bounds: a host that tells of more than this cluster can have
given makes nobody count on from there, and all of them together cannot use the epochs up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from roq.coordination.registry_contract import EPOCH_MAX, EPOCHS_AHEAD_MAX, LOST_EPOCHS

log = logging.getLogger(__name__)


class Epochs:
    """The epochs that one manager knows of.

    Args:
        highest: the highest host epoch below this number that is known here; 0 if none is.
    """

    def __init__(self, highest: Callable[[int], int]) -> None:
        self._highest = highest
        self._led = 0
        """The latest one under which this manager has led."""
        self._floor = 0
        """A host obeys no leader of a lower one; 0: that is settled."""
        self._raised = 0
        """So many were left out because of what hosts obey."""
        self._told = False

    def lead(self, epoch: int) -> None:
        """This manager leads under this one."""
        if self._floor:
            self._raised += max(0, epoch - self._led)
        self._led, self._floor, self._told = epoch, 0, False

    def follow(self) -> None:
        """Another manager leads: that host obeys it, or it is to count on from there."""
        self._floor = 0

    def heard(self) -> int:
        """The highest host epoch that is known here, and can be of this cluster; 0 if none is."""
        return self._highest(min(self._led + EPOCHS_AHEAD_MAX, EPOCH_MAX))

    def above(self, *, remembers: bool, empty: bool) -> int:
        """The highest that may have been given at all, as far as this manager knows.

        Args:
            remembers: whether it knows what the cluster's last leader knew.
            empty: whether the registry has lost the cluster.
        """
        known = max(self._led, self._floor)
        if not remembers:
            return known
        return min(max(known, self.heard()) + (LOST_EPOCHS if empty else 0), EPOCH_MAX - 1)

    def obeyed(self, epoch: int) -> bool:
        """A host obeys a leader of this epoch, above this one's; gives whether to lead anew."""
        if self._raised + epoch - self._led < EPOCHS_AHEAD_MAX:
            log.error(
                "a host obeys a leader with epoch %d, and this one has %d: looking who leads, and "
                "counting from there (has the registry an older state?)", epoch, self._led,
                extra={"event": "epoch_behind"},
            )  # fmt: skip
            self._floor = min(max(epoch, self.heard()) + LOST_EPOCHS, EPOCH_MAX - 1)
            return True
        if not self._told:
            self._told = True
            log.error(
                "a host obeys a leader with epoch %d, which this cluster cannot have given: it "
                "takes no orders from this one, with epoch %d; stop its host manager, remove "
                "leader.epoch from its data folder and start it again", epoch, self._led,
                extra={"event": "epoch_impossible"},
            )  # fmt: skip
        return False
