"""One cluster for all tests that do not disturb it; each uses queues of its own."""

from __future__ import annotations

from roq.testing.fixtures import roq_cluster

__all__ = ["roq_cluster"]
