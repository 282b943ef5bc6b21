"""One cluster for all tests that do not disturb it; each uses queues of its own."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from typing import Protocol, runtime_checkable

import pytest
from exchange_process import Peers
from watched import Scene
from zookeeper_server import EmbeddedZooKeeper

import roq
import roq.testing
from roq.testing import RunningCluster

FAILED = pytest.StashKey[bool]()
SHARED = ("roq_cluster", "cluster")
"""Fixtures that are the cluster of several tests."""


@runtime_checkable
class Connectable(Protocol):
    """A cluster that can be asked for its queues."""

    def connect(self) -> roq.Cluster:
        """A client of it."""


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


@pytest.fixture(scope="session")
def roq_cluster() -> Iterator[RunningCluster]:
    """As `roq.testing.fixtures` has it, with the registry of clusters of several machines."""
    with roq.testing.cluster(hosts=2, registry="zookeeper") as running:
        yield running


@pytest.fixture(scope="session")
def running(roq_cluster: RunningCluster) -> RunningCluster:
    """The cluster of a module; one that disturbs it has its own of this name."""
    return roq_cluster


@pytest.fixture
def cluster(running: RunningCluster) -> Iterator[roq.Cluster]:
    """A client of that."""
    with running.connect() as client:
        yield client


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[RunningCluster]:
    """For modules that kill exchanges and monitors of their queues, as their `running`."""
    with roq.testing.cluster() as found:
        yield found


@pytest.fixture
def emptied(own_cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The same, for tests whose queues have names of their choice."""
    yield own_cluster
    with own_cluster.connect() as client:
        for queue in client.queues():
            client.remove_queue(queue.name)


@pytest.fixture(scope="session")
def restarting() -> Iterator[RunningCluster]:
    """For modules that kill what leads and what keeps the registry: it is started again."""
    with roq.testing.cluster(registry="zookeeper", hosts=2, managers=2, restart=True) as found:
        yield found


@pytest.fixture
def client(running: RunningCluster) -> Iterator[roq.Cluster]:
    """A client of the cluster of a module."""
    with running.connect() as found:
        yield found


@pytest.fixture
def queue(client: roq.Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue of this test alone; in memory, or as durable as the test is parametrised for."""
    name = f"q{abs(hash(request.node.name)) % 10**9}"
    client.create_queue(name, durability=getattr(request, "param", "none"))
    yield name
    client.remove_queue(name)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A queue in this process, and clients of it."""
    scene = Scene()
    yield scene
    scene.close()


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Sockets of those who talk to an exchange."""
    peers = Peers()
    yield peers
    peers.close()


@pytest.fixture(scope="module", params=["zookeeper", "file"])
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Addresses of registries of both kinds, one after the other."""
    folder = tmp_path_factory.mktemp("registry")
    if request.param == "file":
        yield f"file:{folder}/cluster.db"
        return
    with EmbeddedZooKeeper(folder) as server:
        yield server.address


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
    shared = next((name for name in SHARED if name in request.fixturenames), None)
    running = request.getfixturevalue(shared) if shared is not None else None
    if not isinstance(running, Connectable):
        yield
        return
    with running.connect() as cluster:
        before = {queue.name for queue in cluster.queues()}
    yield
    if request.node.stash.get(FAILED, False):
        with running.connect() as cluster:
            for queue in {queue.name for queue in cluster.queues()} - before:
                cluster.remove_queue(queue)
