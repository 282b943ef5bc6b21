"""What goes wrong around an exchange, as lines in its log: few, however much it is."""

from __future__ import annotations

import logging
from typing import Final, Generic, TypeVar

from roq.exchange.backlogs import Backlogs
from roq.exchange.counters import Counters
from roq.runtime import descriptors

B = TypeVar("B")

REPEAT_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class TroubleLog(Generic[B]):
    """Looks every few seconds at what peers have done and at what is left to serve them with."""

    def __init__(self, counters: Counters, backlogs: Backlogs[B]) -> None:
        self._counters = counters
        self._backlogs = backlogs
        self._told = counters.abuse()
        self._told_cut_off = 0
        self._told_full = False
        self._told_lost = 0
        self._told_unread = ""
        self._next = 0.0

    def look(
        self, now: float, disk_full: str = "", delayed_lost: int = 0, unread: str = ""
    ) -> None:
        """Write a line if there is something new to tell, and time for it.

        Args:
            delayed_lost: delayed messages that the disk has not kept, since the start.
            disk_full: why nothing is accepted for want of room; told when that begins and ends.
            unread: what is not read of the log.
        """
        if bool(disk_full) != self._told_full:
            self._told_full = bool(disk_full)
            text = disk_full or "the disk has room again: everything is accepted"
            log.warning("%s", text, extra={"event": "disk_full" if disk_full else "disk_room"})
        if delayed_lost > self._told_lost:
            log.error(
                "%d delayed messages are lost: their batches in the log are damaged, or not there",
                delayed_lost - self._told_lost, extra={"event": "delayed_lost"},
            )  # fmt: skip
            self._told_lost = delayed_lost
        if now >= self._next:
            self._next = now + REPEAT_SECONDS
            if unread and unread != self._told_unread:
                log.error("%s", unread, extra={"event": "unread"})
            self._told_unread = unread
            self.tell()

    def tell(self) -> None:
        """The same, whenever it is."""
        abuse = self._counters.abuse()
        risen = {name: n - self._told[name] for name, n in abuse.items() if n > self._told[name]}
        if risen:
            self._told = abuse
            text = ", ".join(f"{count} {name}" for name, count in risen.items())
            log.warning("peers misbehave: %s", text, extra={"event": "abuse"})
        cut_off = self._backlogs.cut_off - self._told_cut_off
        if cut_off:
            self._told_cut_off += cut_off
            log.warning(
                "subscribers that do not read took too much memory together (limit slow_bytes): "
                "%d of their connections ended", cut_off, extra={"event": "cut_off"},
            )  # fmt: skip
        if descriptors.exhausted():
            log.warning("%s", descriptors.EXHAUSTED, extra={"event": "descriptors"})
