"""The epochs of children: of two processes of one child, the later has the higher one."""

from __future__ import annotations

from typing import Final

from roq.errors import RequestError
from roq.model import child_epoch, child_number, host_epoch

NUMBER_MAX: Final = (1 << 16) - 1
"""Processes that one host epoch can number."""


class Epochs:
    """Gives each process an epoch: the host's epoch, or a higher base, and a count that rises.

    A base is drawn from the same counter as the epochs of hosts, for a child that was on another
    host before. It counts for all processes of that child from then on.
    """

    def __init__(self) -> None:
        self._host = 0
        self._number = 0
        self._highest = 0
        """Of all host epochs and bases under which something was numbered."""

    @property
    def host(self) -> int:
        """The epoch of this host; 0 until it is registered."""
        return self._host

    def registered(self, epoch: int) -> None:
        """This host has an epoch. A lower one than before says that the counter was lost."""
        self._host = max(self._host, epoch)
        if epoch > self._highest:
            # Nothing was numbered under it yet.
            self._highest, self._number = epoch, 0

    def adopted(self, epoch: int) -> int:
        """An earlier life has given this epoch; gives the base for those that follow."""
        base = host_epoch(epoch)
        self._highest = max(self._highest, base)
        self._number = max(self._number, child_number(epoch))
        return base

    def next(self, base: int) -> int:
        """The epoch of the next process of a child.

        Raises:
            RequestError: all are used up.
        """
        if self._number >= NUMBER_MAX:
            raise RequestError(f"this host manager has started {NUMBER_MAX} processes: restart it")
        self._number += 1
        upper = max(self._host, base)
        self._highest = max(self._highest, upper)
        return child_epoch(upper, self._number)
