"""Ends a worker of the test run that stands still, so that the run says where, and goes on.

`pytest-timeout` ends a test in which Python runs. A worker that is stuck between two tests, or
in code that no signal interrupts, or that was stopped, is beyond its reach, and the run would
wait for it until CI ends both.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

STUCK_SECONDS: Final = 900.0
"""Longer than any test takes; what may take longer by its own limit never does so in fact."""
STEP_SECONDS: Final = 20.0
"""From one way to end it to the next."""
_LOOK_SECONDS: Final = 0.5


class StuckWorkers:
    """Of the process that hands out the tests.

    Args:
        seconds: a worker from which no report came for so long stands still.
        again: the test of one that stood still is run once more by another, and that is told.
    """

    def __init__(self, seconds: float, *, again: bool) -> None:
        self._seconds = seconds
        self._again = again
        self._heard: dict[WorkerController, float] = {}
        self._steps: Counter[WorkerController] = Counter()
        """Of those that stand still: how many ways to end it were tried."""
        self._rerun: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stuck workers", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: WorkerController) -> None:
        self._heard[node] = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController) -> None:
        self._heard.pop(node, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = getattr(report, "node", None)
        if node in self._heard:
            self._heard[node] = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        node = report.node  # type: ignore[attr-defined]
        if not self._steps[node]:
            return
        report.longrepr = (
            f"worker {node.gateway.id} stood still for {self._seconds:g} s and was ended; on "
            "standard error is where each of its threads was"
        )
        # xdist leaves it with what others are given.
        if self._again and crashitem not in self._rerun:
            self._rerun.add(crashitem)
            report.outcome = "rerun"  # type: ignore[assignment]

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for node, heard in list(self._heard.items()):
                step = self._steps[node]
                if now - heard > self._seconds + step * STEP_SECONDS and step < len(_WAYS):
                    self._steps[node] += 1
                    _WAYS[step](node)


def _abort(node: WorkerController) -> None:
    _signal(node, signal.SIGABRT)  # pytest's `faulthandler` writes all stacks
    _signal(node, signal.SIGCONT)


def _kill(node: WorkerController) -> None:
    _signal(node, signal.SIGKILL)


def _give_up(node: WorkerController) -> None:
    """It is gone, and a child that it has forked holds its pipe: nothing else tells its end."""
    node._down = True
    node.notify_inproc("errordown", node=node, error="it did not end")


def _signal(node: WorkerController, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(node.gateway._io.popen.pid, number)  # type: ignore[attr-defined]


_WAYS: Final = (_abort, _kill, _give_up)


class FilesOnce(LoadFileScheduling):
    """A worker that crashes leaves to others only what it has not done: one that is given a file in
    which nothing is left (xdist 3.8 does so) waits for ever, and the run with it."""

    def remove_node(self, node: WorkerController) -> str | None:
        """It has ended; gives the test during which."""
        work = self.assigned_work[node]
        for name in [name for name, tests in work.items() if all(tests.values())]:
            del work[name]
        return super().remove_node(node)
