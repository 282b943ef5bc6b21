"""A process that another one may have started: which one it is, for sure, and its end.

A pid alone is not enough, it is given out again. The pid with the time of its start, and the boot
that this time is counted from, name one process for ever.
"""

from __future__ import annotations

import os
import select
import signal
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import psutil

_PROC: Final = Path("/proc")
_ZOMBIE: Final = b"Z"
_DEAD: Final = b"X"
_STATE_FIELD: Final = 0
_START_FIELD: Final = 19
"""Places in /proc/<pid>/stat behind the name of the program; the manual counts from 1 before it."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One process, never another one that has got its pid."""

    pid: int
    start: int
    """Clock ticks since the system was booted."""
    boot: str
    """Which boot that was."""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        descriptor = self._open()
        if descriptor is not None:
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                return  # ended just now
            finally:
                os.close(descriptor)

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long; gives whether it has ended."""
        descriptor = self._open()
        if descriptor is None:
            return True
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, seconds) * 1_000)
        finally:
            os.close(descriptor)
        return not self.alive

    def _open(self) -> int | None:
        """A pidfd of it; None if it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive:  # looked at after the descriptor was opened, so it is the same process
            return descriptor
        os.close(descriptor)
        return None


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None if there is none, or it has ended."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name stands in brackets and may hold anything, brackets too.
    fields = stat.rpartition(b")")[2].split()
    if fields[_STATE_FIELD] in {_ZOMBIE, _DEAD}:
        _reap(pid)
        return None
    return Identity(pid=pid, start=int(fields[_START_FIELD]), boot=_boot())


def working_in(folder: Path) -> list[Identity]:
    """The host manager, monitors and exchanges that have a file of this folder as an argument."""
    prefix = f"{folder}{os.sep}"
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue  # ended just now
        if is_daemon(words) and any(word.startswith(prefix) for word in words):
            identity = identify(process.pid)
            if identity is not None:
                found.append(identity)
    return found


def is_daemon(words: list[str]) -> bool:
    """Whether this command line is that of a process of RoQ (and not, say, of a pager)."""
    following = dict(pairwise(words))
    return following.get("-m", "").startswith("roq.")


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _reap(pid: int) -> None:
    """Let go of a child of ours that has ended."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # another process is its parent
