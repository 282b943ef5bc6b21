"""Processes that this one looks after: watched by pidfd, stopped within a bound.

A `Child` was started by this process, by exec only. An `Adopted` one was started by an earlier life
of it: it is not ours to reap, so nobody tells us how it ended. One that shall outlive this process
is neither: see `detach`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from roq.errors import LocalProtocolError
from roq.runtime import procfs

KILL_SECONDS: Final = 3.0
"""The system takes a killed process away within this."""
STATUS_UNKNOWN: Final = "ended (exit status unknown)"


class Child:
    """A process that this one has started.

    `fileno()` is a pidfd: readable once the process has ended, so a `Reactor` can watch it.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self.pid = process.pid

    @property
    def status(self) -> str | None:
        """How it has ended, in words; None while it runs."""
        code = self.poll()
        if code is None:
            return None
        return f"exit code {code}" if code >= 0 else f"ended by signal {-code}"

    def fileno(self) -> int:
        """The pidfd."""
        return self._pidfd

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now (SIGKILL)."""
        self._signal(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        self._signal(number)

    def wait(self, timeout: float) -> int | None:
        """Wait for the end, at most `timeout` seconds; None if it still runs then."""
        if self._process.poll() is None:
            _readable(self._pidfd, timeout)
        return self._process.poll()

    def stop(self, grace: float = 5.0) -> int:
        """SIGTERM, and SIGKILL when it still runs after `grace` seconds; gives the exit code."""
        self.terminate()
        code = self.wait(grace)
        if code is None:
            self.kill()
            code = self._process.wait()
        return code

    def close(self) -> None:
        """Give the pidfd back; the process must have ended or is left to itself."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._process.returncode is None:
            self._process.poll()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


class Adopted:
    """A process that an earlier life of this one has started.

    `fileno()` is a pidfd: whatever becomes of the pid, a signal reaches this process or none.

    Args:
        pid: of the process.
        start: when it was started, as `procfs.Sample.start` was then.

    Raises:
        ProcessLookupError: it has ended; another process may have its pid now.
        OSError: no descriptor is left.
    """

    def __init__(self, pid: int, start: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        # Looked at when the descriptor is there: if it is the right one now, it was so before.
        found = procfs.sample(pid)
        if found is None or found.start != start or found.state in procfs.ENDED:
            self.close()
            raise ProcessLookupError(f"process {pid} has ended")

    @property
    def status(self) -> str | None:
        """That it has ended; None while it runs."""
        return STATUS_UNKNOWN if self._ended(0) else None

    def fileno(self) -> int:
        """The pidfd."""
        return self._pidfd

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now (SIGKILL)."""
        self._signal(signal.SIGKILL)

    def stop(self, grace: float = 5.0) -> None:
        """SIGTERM, and SIGKILL when it still runs after `grace` seconds."""
        self.terminate()
        if not self._ended(grace):
            self.kill()
            self._ended(KILL_SECONDS)

    def close(self) -> None:
        """Give the pidfd back; the process must have ended or is left to itself."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _ended(self, seconds: float) -> bool:
        if self._pidfd < 0:
            raise LocalProtocolError("this process is not looked after any more")
        return _readable(self._pidfd, seconds)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended(0):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


def spawn(
    argv: Sequence[str],
    *,
    log_path: Path,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    own_session: bool = True,
) -> Child:
    """Start a process whose output goes to a log file, never into a pipe of ours.

    Args:
        argv: program and arguments; no shell.
        log_path: appended to; its folder must exist.
        env: the whole environment; ours if None.
        pass_fds: descriptors to hand over.
        own_session: away from our terminal, so that a Ctrl-C reaches us alone.

    Raises:
        OSError: the program cannot be executed, or no descriptor is left; nothing runs then.
    """
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=None if env is None else dict(env),
            pass_fds=tuple(pass_fds),
            start_new_session=own_session,
            close_fds=True,
        )
    try:
        return Child(process)
    except OSError:
        process.kill()
        process.wait()
        raise


def _readable(descriptor: int, seconds: float) -> bool:
    # Not select(): it cannot handle descriptors above 1023.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1_000))


def detach(argv: Sequence[str], *, log_path: Path, env: Mapping[str, str]) -> int:
    """Start a process that goes on when this one ends; gives its pid.

    It has a session of its own, the usual signal handling and none of our descriptors. While we
    live it is still ours to reap once it has ended.

    Args:
        argv: program, by its path, and arguments; no shell.
        log_path: appended to; its folder must exist.
        env: the whole environment.

    Raises:
        OSError: the program cannot be executed.
    """
    # Ours are closed by exec anyway, but the program that started us may have left others open.
    inherited = [n for each in Path("/proc/self/fd").iterdir() if (n := int(each.name)) > 2]
    return os.posix_spawn(
        argv[0],
        list(argv),
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, each) for each in inherited),
        ],
        setsid=True,
        setsigmask=[],
        # Python ignores SIGPIPE; SIGINT and SIGHUP may be ignored under nohup.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP],
    )
