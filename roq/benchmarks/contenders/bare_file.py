"""A bare loop of `writev` and `fdatasync`: what the disk gives whoever asks for nothing else.

The batches are those that RoQ would send, packed before; so many are written and synced together
as take some 2.5 MB, or 2,000.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from roq.benchmarks.case import Case, Run
from roq.benchmarks.clients import paced
from roq.model import PublisherId
from roq.protocol.batch import pack

MODULE: Final = "bare_file"
GROUP_BYTES: Final = 2_500_000
GROUP_BATCHES_MAX: Final = 2_000
BUFFERS_MAX: Final = 1_000
FILE_BYTES: Final = 64 * 1024 * 1024


class BareFolder:
    """Nothing that runs: the folder in which files are written."""

    def __init__(self) -> None:
        self._folder = Path()

    def start(self, directory: Path) -> None:
        """Remember the folder."""
        self._folder = directory

    def stop(self) -> None:
        """Nothing runs."""

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Where it writes."""
        return {"folder": str(self._folder)}

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - there are none
        """None."""
        return {}


class BareFile:
    """The sending side.

    Attributes:
        ack_us: how long each write and sync took, when it was measured.
    """

    def __init__(self, folder: str) -> None:
        self.ack_us: list[float] = []
        self._folder = folder

    def open(self, run: Run) -> None:
        """Nothing to do."""

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Write and sync group by group."""
        batch = _batch(payloads)
        most = max(1, min(GROUP_BATCHES_MAX, GROUP_BYTES // len(batch)))
        left = run.count // len(payloads)
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            descriptor, written = file.fileno(), 0
            while left > 0:
                group = min(most, left)
                for first in range(0, group, BUFFERS_MAX):
                    written += os.writev(descriptor, [batch] * min(BUFFERS_MAX, group - first))
                os.fdatasync(descriptor)
                if written >= FILE_BYTES:
                    os.ftruncate(descriptor, 0)
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    written = 0
                left -= group

    def pace(self, run: Run) -> None:
        """Write and sync one message at a time, at a rate."""
        self.ack_us = []
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            for payload in paced(run):
                batch = _batch([payload])
                began = time.monotonic()
                os.writev(file.fileno(), [batch])
                os.fdatasync(file.fileno())
                self.ack_us.append((time.monotonic() - began) * 1e6)

    def close(self) -> None:
        """Nothing to do."""


def _batch(payloads: list[bytes]) -> bytes:
    return pack(
        payloads, publisher=PublisherId(bytes(16)), epoch=1, link_number=1, first_sequence=0,
        created_us=0,
    )  # fmt: skip


def publisher(style: str, options: dict[str, str]) -> BareFile:  # noqa: ARG001
    """The sending side."""
    return BareFile(options["folder"])
