"""No run of the tests waits for ever: each run of a test has its limit, and each worker another.

`pytest-timeout` ends a test in which Python runs, and forgets its limit when a test has failed: who
runs it once more sets it anew. A worker that is stuck between two tests, or in code that no signal
interrupts, or that was stopped, is beyond its reach: it is ended from outside, says where it stood,
and others do what it has not done.
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

HEAVY: Final = ("tests/chaos/", "tests/spark/")
"""What keeps both cores of a small machine busy for minutes: never two of them at once."""
STUCK_SECONDS: Final = 1_900.0
"""Above the highest limit of a single test."""
STEP_SECONDS: Final = 20.0
"""From one way to end it to the next."""
_LOOK_SECONDS: Final = 0.5
_LIMIT: Final = pytest.StashKey[object]()


class LimitOfEachRun:
    """Of a process that runs tests: what limit a test has, it has in its second run, too."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: object) -> None:
        item.stash[_LIMIT] = settings

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if _LIMIT in item.stash:
            settings = item.stash[_LIMIT]
            item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)


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
            f"worker {node.gateway.id} stood still for {self._seconds:g} s and was ended; standard "
            "error has where its threads were, if it could still say so"
        )
        # xdist leaves it with what others are given.
        if self._again and crashitem not in self._rerun:
            self._rerun.add(crashitem)
            report.outcome = "rerun"  # type: ignore[assignment]

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            for node in list(self._heard):
                step = self._steps[node]
                if step < len(_WAYS) and self.is_overdue(node, step):
                    self._steps[node] += 1
                    _WAYS[step](node)

    def is_overdue(self, node: WorkerController, step: int) -> bool:
        """Whether it stands still, and so many ways to end it had time enough to do so."""
        heard = self._heard.get(node)
        return heard is not None and (
            time.monotonic() - heard > self._seconds + step * STEP_SECONDS
        )


def _abort(node: WorkerController) -> None:
    """pytest's `faulthandler` writes where its threads are, unless the process was stopped."""
    _signal(node, signal.SIGABRT)


def _kill(node: WorkerController) -> None:
    _signal(node, signal.SIGKILL)


def _give_up(node: WorkerController) -> None:
    """It is gone, and a child that it has forked holds its pipe: nothing else tells its end."""
    node._down = True
    node.notify_inproc("errordown", node=node, error="it did not end")


def pid_of(node: WorkerController) -> int:
    """The process of a worker."""
    return int(node.gateway._io.popen.pid)  # type: ignore[attr-defined]


def _signal(node: WorkerController, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid_of(node), number)


_WAYS: Final = (_abort, _kill, _give_up)


class FilesOnce(LoadFileScheduling):
    """A worker that crashes leaves to others only what it has not done: one that is given a file in
    which nothing is left (xdist 3.8 does so) waits for ever, and the run with it. One that takes
    its place is given something when it knows the tests, and no sooner."""

    def _split_scope(self, nodeid: str) -> str:
        """What stays together: a file, and all that is heavy, of which much shares a session of
        Spark."""
        return HEAVY[0] if nodeid.startswith(HEAVY) else super()._split_scope(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """It has ended; gives the test during which."""
        work = self.assigned_work[node]
        for name in [name for name, tests in work.items() if all(tests.values())]:
            del work[name]
        return super().remove_node(node)
