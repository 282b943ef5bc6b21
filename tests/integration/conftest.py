"""One cluster for all tests that do not disturb it; each uses queues of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from roq.testing.fixtures import roq_cluster

__all__ = ["roq_cluster"]


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
