"""One worker process as the demo sees it: what it has said, and how to end it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from roq.demo.report import Calm, Progress, Ready, Report, WorkerFinished, decode
from roq.demo.worker import Job
from roq.local.part import guarded
from roq.runtime.reactor import Reactor

_READ_BYTES: Final = 65_536


class Lane:
    """A worker.

    Args:
        name: as people see it, such as `publisher 1`.
        job: what it does.
        total: messages that it will send or get.
        folder: for its job file and its log.
        on_report: called in the loop for each report but `Progress`.
        on_end: called in the loop when its output ends.
    """

    def __init__(
        self,
        reactor: Reactor,
        name: str,
        job: Job,
        *,
        total: int,
        folder: Path,
        on_report: Callable[[Lane, Report], None],
        on_end: Callable[[Lane], None],
    ) -> None:
        self.name = name
        self.total = total
        self.publishes = job.share is not None
        self.ready = False
        self.calm = False
        """A publisher has sent what goes one by one."""
        self.messages = 0
        self.bytes = 0
        self.finished: WorkerFinished | None = None
        self.log_path = folder / f"{name.replace(' ', '-')}.log"
        self._reactor = reactor
        self._on_report = on_report
        self._on_end = on_end
        self._buffer = b""
        job_path = folder / f"{name.replace(' ', '-')}.json"
        job_path.write_bytes(msgspec.json.encode(job))
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                guarded([sys.executable, "-P", "-m", "roq.demo.worker", str(job_path)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        reactor.add(self._stdout, self._readable)

    def go(self) -> None:
        """Let a publisher begin its next stretch; tell a subscriber that full speed comes."""
        self._tell(b"go\n")

    def end(self) -> None:
        """Let a subscriber finish."""
        self._tell(b"")
        if not self._stdin.closed:
            self._stdin.close()

    def close(self) -> None:
        """End the process whatever it does, and give everything back; idempotent."""
        if not self._stdin.closed:
            self._stdin.close()
        if not self._stdout.closed:
            self._reactor.remove(self._stdout)
            self._stdout.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _tell(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # it has ended: its output says so as well

    def _readable(self) -> None:
        try:
            data = os.read(self._stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._reactor.remove(self._stdout)
            self._stdout.close()
            self._on_end(self)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(decode(line))

    def _take(self, report: Report) -> None:
        match report:
            case Progress(messages=messages, bytes=count):
                self.messages, self.bytes = messages, count
                return
            case Ready():
                self.ready = True
            case Calm():
                self.calm = True
            case WorkerFinished():
                self.finished = report
                self.messages = sum(stream.messages for stream in report.streams)
                self.bytes = sum(stream.bytes for stream in report.streams)
        self._on_report(self, report)
