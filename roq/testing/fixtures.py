"""A cluster as a pytest fixture: `pytest_plugins = ["roq.testing.fixtures"]` in your conftest.py.

def test_something(roq_cluster):
    with roq_cluster.connect() as cluster: …
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from roq.testing.running import RunningCluster, cluster


@pytest.fixture(scope="session")
def roq_cluster() -> Iterator[RunningCluster]:
    """One cluster with two hosts for the whole run; use a queue of your own in each test."""
    with cluster(hosts=2) as running:
        yield running
