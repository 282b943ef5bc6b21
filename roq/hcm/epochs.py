"""The epochs of children: of two processes of one child, the later has the higher one."""

from __future__ import annotations

from typing import Final

from roq.errors import RequestError
from roq.model import child_epoch, child_number, host_epoch

NUMBER_MAX: Final = (1 << 16) - 1
"""Processes that one host epoch can number."""


class Epochs:
    """Gives each process an epoch: the epoch of the host, and a count that rises.

    For a child that was on another host before, the configuration manager draws a base from the
    counter of host epochs. If it is higher than the epoch of the host, everything here counts under
    it from then on: epochs never fall, for any child.
    """

    def __init__(self) -> None:
        self._host = 0
        self._upper = 0
        self._number = 0

    @property
    def host(self) -> int:
        """The epoch of this host; 0 until it is registered."""
        return self._host

    def registered(self, epoch: int) -> None:
        """This host has an epoch. A lower one than before says that the counter was lost."""
        self._host = max(self._host, epoch)
        self.rise(epoch)

    def adopted(self, epoch: int) -> None:
        """An earlier life of this host manager has given this epoch."""
        self.rise(host_epoch(epoch))
        if host_epoch(epoch) == self._upper:
            self._number = max(self._number, child_number(epoch))

    def rise(self, base: int) -> None:
        """Everything from now on counts under this, or what was higher already."""
        if base > self._upper:
            self._upper, self._number = base, 0

    def next(self) -> int:
        """The epoch of the next process.

        Raises:
            RequestError: all are used up.
        """
        if self._number >= NUMBER_MAX:
            raise RequestError(f"this host manager has started {NUMBER_MAX} processes: restart it")
        self._number += 1
        return child_epoch(self._upper, self._number)
