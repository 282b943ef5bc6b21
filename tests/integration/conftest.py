"""One cluster for all tests that do not disturb it; each uses queues of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from roq.testing.fixtures import roq_cluster

__all__ = ["roq_cluster"]


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """Children can be interrupted, also if the tests run in the background.

    A shell lets its background jobs ignore SIGINT, and children inherit that, but no handler.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
