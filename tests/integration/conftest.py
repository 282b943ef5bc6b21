"""One cluster for all tests that do not disturb it; each uses queues of its own."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator

import pytest

from roq.testing.fixtures import roq_cluster
from roq.testing.running import RunningCluster

__all__ = ["roq_cluster"]

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Children end at signals, also if the tests run in the background or under nohup.

    There SIGINT or SIGHUP is ignored, and children inherit that, but no handler.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = signal.getsignal(signal.SIGHUP)
    if hangup == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, hangup)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(autouse=True)
def _second_run_finds_what_the_first_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """The queues that a failed test leaves behind are removed: a second run makes its own again."""
    if "roq_cluster" not in request.fixturenames:
        yield
        return
    running: RunningCluster = request.getfixturevalue("roq_cluster")
    with running.connect() as cluster:
        before = {queue.name for queue in cluster.queues()}
    yield
    if request.node.stash.get(FAILED, False):
        with running.connect() as cluster:
            for queue in {queue.name for queue in cluster.queues()} - before:
                cluster.remove_queue(queue)
