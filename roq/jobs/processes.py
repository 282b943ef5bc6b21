"""Processes that run handlers: what hangs is killed, and what crashes harms nobody else."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from time import monotonic
from typing import Final

import msgspec

from roq.jobs.child_messages import (
    BYTES_MAX,
    BeginRun,
    ChildOrder,
    ChildReady,
    ChildReport,
    ChildSetup,
    EndSaid,
    FinishSaid,
    PlaceSaid,
    StopRun,
    command,
    main_program,
)
from roq.jobs.pool import Running
from roq.jobs.rows import Ended, Trouble
from roq.jobs.run import Job, raised, unbegun
from roq.jobs.states import RunEnd
from roq.runtime.process import Child

STOP_SECONDS: Final = 5.0
"""So long may a run go on that is to stop; then its process is killed."""
LOOK_SECONDS: Final = 0.1
END_SECONDS: Final = 5.0
START_SECONDS: Final = 30.0
"""So long may a process take to start; its run has as much more time until others end it."""
SILENT_SECONDS: Final = 15
"""So long may either side stop within a message; then the process is taken for hung."""
_reports: Final[msgspec.msgpack.Decoder[ChildReport]] = msgspec.msgpack.Decoder(ChildReport)


class _Gone(Exception):
    """The process has ended, or says what cannot be; the text says which."""


class JobProcess:
    """One process; runs one handler at a time.

    Args:
        main: of `child.main_program`.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, main: dict[str, str]) -> None:
        with contextlib.ExitStack() as open_:
            mine, its = map(open_.enter_context, socket.socketpair())
            read, self._lifeline = os.pipe()
            open_.callback(os.close, read)
            with contextlib.ExitStack() as failed:
                failed.callback(os.close, self._lifeline)
                setup = ChildSetup(its.fileno(), read, os.getpid(), sys.argv, main)
                process = subprocess.Popen(
                    command(setup), stdin=subprocess.DEVNULL, pass_fds=[its.fileno(), read],
                    start_new_session=True,
                )  # fmt: skip
                self._child = Child(process)
                failed.pop_all()
            for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                mine.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", SILENT_SECONDS, 0))
            self._connection = Connection(mine.detach())
        self._poll = select.poll()
        for each in (self._connection.fileno(), self._child.fileno()):
            self._poll.register(each, select.POLLIN)

    def tell(self, order: ChildOrder) -> None:
        """Say something to it.

        Raises:
            _Gone: it has ended.
        """
        try:
            self._connection.send_bytes(msgspec.msgpack.encode(order))
        except OSError:
            raise _Gone(self._how()) from None

    def hear(self) -> ChildReport | None:
        """What it says; None: nothing for `LOOK_SECONDS`.

        Raises:
            _Gone: it has ended, or what it says cannot be read.
        """
        self._poll.poll(LOOK_SECONDS * 1_000)
        try:
            if self._connection.poll(0):
                return _reports.decode(self._connection.recv_bytes(BYTES_MAX))
        except (OSError, EOFError):
            raise _Gone(self._how()) from None
        except msgspec.MsgspecError as error:
            raise _Gone(f"its process says what cannot be read: {error}") from None
        if self._child.poll() is not None:
            raise _Gone(self._how())
        return None

    def close(self) -> None:
        """Kill it, and what its handlers have started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(END_SECONDS)
        self._child.close()
        self._connection.close()
        os.close(self._lifeline)

    def _how(self) -> str:
        code = self._child.wait(END_SECONDS)
        if code is None:
            return "its process hung up"
        if code >= 0:
            return f"its process ended with exit code {code} while it ran"
        return f"its process was ended by {_signal(-code)} while it ran"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class JobProcesses:
    """The processes of an instance, as many as run something at once; kept for what follows.

    Args:
        instance: its name.
        main: whether handlers are in the main program.
    """

    def __init__(self, instance: str, *, main: bool) -> None:
        self._instance = instance
        self._main = main_program() if main else {}
        self._idle: list[JobProcess] = []
        self._lock = threading.Lock()
        self._closed = False

    def run(self, running: Running) -> Ended:
        """Run the handler in a process; returns when it has ended, or was killed.

        Its time begins when the process has started.
        """
        kind, job = running.kind, running.job
        module, name = kind.address
        begin = BeginRun(module, name, running.owner, self._instance, job.run)
        try:
            process = self._begun(begin, job)
        except (OSError, ValueError) as error:  # also texts that are no UTF-8
            return raised(job, error)
        except _Gone as error:
            return self._crashed(job, str(error))
        if process is None:
            return unbegun(job)
        running.began = monotonic()
        ended, again = self._follow(process, job, 0.2 + kind.limits.time_limit / 2)
        with self._lock:
            if again and not self._closed:
                self._idle.append(process)
                return ended
        process.close()
        return ended

    def close(self) -> None:
        """Kill them all; runs end by that."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _begun(self, begin: BeginRun, job: Job) -> JobProcess | None:
        """A process that has been told; None: the run is to stop before."""
        while job.stop is None and not self._closed:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            fresh = process is None
            if process is None:
                process = JobProcess(self._main)
            try:
                if fresh and not self._came_up(process, job):
                    process.close()
                    return None
                process.tell(begin)
            except _Gone:
                process.close()
                if fresh:
                    raise
            else:
                return process
        return None

    def _came_up(self, process: JobProcess, job: Job) -> bool:
        """Wait until a process is ready; False: the run is to stop before.

        Raises:
            _Gone: it has ended, or takes too long.
        """
        until = monotonic() + START_SECONDS
        while process.hear() is None:
            if job.interrupted or self._closed:
                return False
            if monotonic() > until:
                raise _Gone(
                    f"its process was not ready after {START_SECONDS:g} s: what is imported there"
                    " waits for something"
                )
        return True

    def _follow(self, process: JobProcess, job: Job, patience: float) -> tuple[Ended, bool]:
        """How the run ends, and whether its process can have another one; one that is to stop is
        killed before others end it (`JobInstances.end_late`)."""
        until: float | None = None
        while True:
            try:
                report = process.hear()
                if until is None and job.stop is not None:
                    process.tell(StopRun(job.stop))
                    until = monotonic() + min(STOP_SECONDS, patience)
            except _Gone as error:
                return self._crashed(job, str(error)), False
            if not isinstance(report, ChildReady | None) and report.run == (job.id, job.token):
                match report:
                    case PlaceSaid():
                        job.place = report.items
                    case FinishSaid():
                        job.finished = report.done
                    case EndSaid():
                        ended = Ended(
                            job.run, report.end, report.saved, report.result, report.trouble
                        )
                        return ended, not report.forked
            late = until is not None and monotonic() > until
            late = late and job.stop is not RunEnd.STOPPED  # the instance's grace is for those
            if self._closed or late:
                return _killed(job), False

    def _crashed(self, job: Job, text: str) -> Ended:
        if self._closed:
            return _killed(job)
        return Ended(job.run, RunEnd.RAISED, job.place, trouble=Trouble(text, fingerprint=text))


def _killed(job: Job) -> Ended:
    why = job.stop or RunEnd.STOPPED
    text = f"it did not stop ({why}) and its process was killed, after {job.place} items"
    return Ended(job.run, why, job.place, trouble=Trouble(text, fingerprint=f"killed: {why}"))
