"""Child processes of the benchmark, and what a process has cost so far.

Children are started by exec only and end with their parent: servers are terminated, workers end at
the end of their standard input.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

import msgspec

from roq.benchmarks import neighbour
from roq.local.part import guarded

PYTHON: Final = (sys.executable, "-P", "-m")
"""Runs a module, and not a folder of the same name where the user happens to be."""
STOP_SECONDS: Final = 10.0
_CPU_CLOCK_OF_PROCESS: Final = 2
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class BenchmarkError(Exception):
    """A contender could not be started or measured; the text says why."""


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, user and system, all threads; 0 when it is gone.

    The kernel's CPU clock of the process tells nanoseconds, /proc/<pid>/stat only hundredths of a
    second, which is too coarse for an idle process.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK_OF_PROCESS)
    except OSError:
        return 0.0


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def tail(path: Path, lines: int) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(path.read_text(errors="replace").rstrip().splitlines()[-lines:])
    except OSError:
        return ""


def free_port() -> int:
    """A port of the loopback address that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def answers(port: int) -> bool:
    """Whether something listens at this port of the loopback address."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False


class Program:
    """A child process whose standard output is read line by line and whose errors go to a file.

    It is told to end when the thread that has started it is gone, whatever has ended that.
    """

    def __init__(
        self, argv: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        program = shutil.which(argv[0]) or argv[0]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                guarded([program, *argv[1:]]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> None:
        """Give it time; returns early when it ends."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def write_line(self, line: bytes) -> None:
        """Send one line to its standard input.

        Raises:
            BenchmarkError: it has ended.
        """
        try:
            _pipe(self._process.stdin).write(line + b"\n")
            _pipe(self._process.stdin).flush()
        except OSError:
            raise self._ended() from None

    def read_line(self, timeout: float) -> bytes:
        """The next line of its standard output.

        Raises:
            BenchmarkError: it has ended, or wrote nothing for `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        descriptor = _pipe(self._process.stdout).fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise BenchmarkError(f"no answer within {timeout:.0f} s")
            data = os.read(descriptor, 1 << 20)
            if not data:
                raise self._ended()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End it, by force when it does not listen; idempotent."""
        if self.alive():
            self._process.send_signal(signal_number)
        self._reap()

    def finish(self) -> None:
        """Close its standard input and wait for it; idempotent."""
        self._reap()

    def _reap(self) -> None:
        stdin, stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        if not stdin.closed:
            # It may have ended before it had read everything.
            with contextlib.suppress(BrokenPipeError):
                stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()

    def _ended(self) -> BenchmarkError:
        code = self._process.wait()
        text = tail(self.log, 1)
        return BenchmarkError(f"the process ended with code {code}" + (f": {text}" if text else ""))


class Worker:
    """A publisher or subscriber in a process of its own (see `benchmarks.worker`)."""

    def __init__(
        self, contender: str, role: str, style: str, options: Mapping[str, str], directory: Path
    ) -> None:
        self.role = role
        self._program = Program(
            [
                *PYTHON,
                "roq.benchmarks.worker",
                contender,
                role,
                style,
                msgspec.json.encode(options).decode(),
            ],
            directory / f"{contender}-{style}-{role}.log",
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._program.pid

    def ask(self, command: str, argument: object = None) -> None:
        """Send a command; `answer` gives what comes back."""
        self._program.write_line(msgspec.json.encode([command, argument]))

    def answer(self, timeout: float) -> Answer:
        """Wait for the answer to the oldest command that has none yet.

        Raises:
            BenchmarkError: the worker failed, ended or was silent for too long.
        """
        try:
            answer = msgspec.json.decode(self._program.read_line(timeout), type=Answer)
        except BenchmarkError as error:
            raise BenchmarkError(f"{self.role}: {error}") from None
        if answer.error:
            raise BenchmarkError(f"{self.role}: {answer.error}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._program.finish()

    def kill(self) -> None:
        """End a process that does not answer."""
        self._program.stop(signal.SIGKILL)


class Neighbours:
    """Programs beside a measurement, for the length of a block.

    Args:
        busy: so many burn a core each.
        idle: so many are servers that have nothing to do.
        directory: for their log.

    Raises:
        BenchmarkError: one does not start.
    """

    def __init__(self, busy: int, idle: int, directory: Path) -> None:
        self._kinds = [neighbour.BURN] * busy + [neighbour.IDLE] * idle
        self._log = directory / "neighbours.log"
        self._programs: list[Program] = []

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [program.pid for program in self._programs]

    def __enter__(self) -> Self:
        try:
            for kind in self._kinds:
                self._programs.append(Program([*PYTHON, neighbour.__name__, kind], self._log))
            for program in self._programs:
                program.read_line(STOP_SECONDS)
        except BenchmarkError:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        while self._programs:
            self._programs.pop().stop(signal.SIGKILL)


class Answer(msgspec.Struct, frozen=True):
    """What a worker says after a command."""

    started: float = 0.0
    """CLOCK_MONOTONIC (one clock for all processes of the machine) before the first publish."""
    finished: float = 0.0
    """The same clock when everything was sent, or received."""
    cpu: float = 0.0
    """CPU seconds between the command and its end."""
    latencies_us: list[float] = []
    error: str = ""


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for logs and data that goes away with the benchmark."""
    return tempfile.TemporaryDirectory(prefix="roq-bench-")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise BenchmarkError("the process was started without pipes")
    return stream
