"""One process of a local cluster: its log, the line that says it is ready, its end."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from roq.runtime.process import spawn
from roq.runtime.reactor import Reactor

READY_BYTES_MAX: Final = 65_536
_GUARD: Final = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[2]), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Sets PR_SET_PDEATHSIG and becomes the program; a `preexec_fn` is not safe beside threads."""


class Part:
    """A process of the cluster.

    Started by a thread that lives as long as the cluster: when that thread ends, even by SIGKILL of
    its process, the system sends SIGTERM to the part.

    Args:
        name: as people know it, such as `gcm` or `host 127.0.0.2`.
        argv: program and arguments; `{ready_fd}` in one of them becomes the number of the
            descriptor to which the process writes one line of JSON when it serves.
        log_path: where its output goes.
        on_ready: called in the loop when that line has come.
        on_end: called in the loop when the process has ended.
        ending: the signal at which it ends without further ado.
    """

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        on_ready: Callable[[Part], None],
        on_end: Callable[[Part], None],
        env: Mapping[str, str] | None = None,
        ending: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.ready: Mapping[str, object] | None = None
        """What the process said when it was ready; None before."""
        self.code: int | None = None
        """The exit code; None while it runs."""
        self._reactor = reactor
        self._on_ready = on_ready
        self._on_end = on_end
        self._ending = ending
        self._buffer = b""
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(write, True)
        try:
            self._child = spawn(
                guarded([word.replace("{ready_fd}", str(write)) for word in argv], ending),
                log_path=log_path,
                env=env,
                pass_fds=(write,),
            )
        except BaseException:
            os.close(self._read)
            raise
        finally:
            os.close(write)
        reactor.add(self._read, self._readable)
        reactor.add(self._child, self._ended)

    @property
    def pid(self) -> int:
        """The process."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended as far as the loop knows."""
        return self.code is None

    def terminate(self) -> None:
        """Ask it to stop, as an operator would."""
        self._child.terminate()

    def end(self) -> None:
        """Ask it to stop together with everything else."""
        self._child.send(self._ending)

    def kill(self) -> None:
        """End it and everything that it has started."""
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self._child.kill()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def last_words(self, lines: int = 12) -> str:
        """The last lines that this run of the process has written to its log."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self._log_start)
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def end_text(self) -> str:
        """How it ended, in words."""
        if self.code is None:
            return "is still running"
        if self.code < 0:
            return f"was ended by {signal.Signals(-self.code).name}"
        return f"ended with exit code {self.code}"

    def _readable(self) -> None:
        try:
            data = os.read(self._read, READY_BYTES_MAX)
        except BlockingIOError:
            return
        self._buffer += data
        line, newline, _ = self._buffer.partition(b"\n")
        if data and not newline and len(self._buffer) < READY_BYTES_MAX:
            return
        self._close_pipe()
        if newline:
            self.ready = _fields(line)
            self._on_ready(self)

    def _ended(self) -> None:
        self._reactor.remove(self._child)
        self.code = self._child.wait(1.0)
        self._child.close()
        self._close_pipe()
        self._on_end(self)

    def _close_pipe(self) -> None:
        if self._read >= 0:
            self._reactor.remove(self._read)
            os.close(self._read)
            self._read = -1


def _fields(line: bytes) -> dict[str, object]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def guarded(argv: Sequence[str], ending: signal.Signals = signal.SIGTERM) -> list[str]:
    """The same program, sent `ending` by the system when the thread that starts it is gone."""
    guard = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), str(int(ending))]
    return [*guard, *argv]
