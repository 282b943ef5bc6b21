"""What systemd is told about a daemon that it has started: sd_notify(3), by hand.

    READY=1      the daemon serves; `Type=notify` waits for it
    WATCHDOG=1   its loop turns, said twice in each `WatchdogSec`
    STOPPING=1   it was asked to stop

Without `$NOTIFY_SOCKET` nobody asks, and nothing is said. Telling never waits and never fails: a
supervisor that is away is no reason for a daemon to end.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from roq.runtime.reactor import Reactor

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_MICROSECONDS: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
_WATCHDOG_SECONDS_MIN: Final = 0.1

log = logging.getLogger(__name__)


class SystemdService:
    """This process as a service of systemd, if it is one.

    Args:
        environ: the variables that systemd has set.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get(SOCKET, ""))
        self._period = _watchdog_seconds(environ)

    @property
    def watched(self) -> bool:
        """Whether systemd wants to hear that the loop turns."""
        return bool(self._address) and self._period > 0

    def ready(self) -> None:
        """The daemon serves."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """It was asked to stop."""
        self._tell("STOPPING=1")

    def watch(self, reactor: Reactor) -> None:
        """Say from now on that the loop turns. Loop thread only."""
        if self.watched:
            self._tell("WATCHDOG=1")
            reactor.call_later(self._period / 2, lambda: self.watch(reactor))

    def before(self, stop: Callable[[], None]) -> Callable[[], None]:
        """`stop`, with a word to systemd first."""

        def stop_and_tell() -> None:
            self.stopping()
            stop()

        return stop_and_tell

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("systemd was not told %s: %s", text, error, extra={"event": "not_told"})


def _address(name: str) -> str:
    """A path, or an abstract name (`@…`); anything else is a kind of socket that is not meant."""
    if name.startswith("@"):
        return f"\0{name[1:]}"
    return name if name.startswith("/") else ""


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """How often systemd wants to hear of us; 0: not at all."""
    if environ.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return 0.0  # it was meant for the process that has started us
    text = environ.get(WATCHDOG_MICROSECONDS, "")
    if not (text.isascii() and text.isdigit() and int(text)):
        return 0.0
    return max(_WATCHDOG_SECONDS_MIN, int(text) / 1_000_000)
