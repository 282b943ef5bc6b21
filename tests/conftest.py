"""What holds for all tests: property tests are repeatable, and a busy machine fails none.

`ROQ_EXPLORE=1 pytest tests/property` looks where no run before has looked.

With `ROQ_AGAIN=1` a test that fails is run once more, and both results are told ("R" in the dots,
"rerun" in the summary): a machine on which processes and threads stand still for seconds is no
defect of the change, but a test that needs its second run is a defect to find.
"""

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from stuck_workers import STUCK_SECONDS, FilesOnce, LimitOfEachRun, StuckWorkers
from xdist.remote import Producer

from roq.client.io.engine import Engine
from roq.model import VOLATILE

# Neither how long an example takes nor how long it takes to find one says anything about RoQ.
settings.register_profile(
    "roq",
    derandomize="ROQ_EXPLORE" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roq")

IN_MEMORY = "ROQ_GCM_QUEUES_DURABILITY"


@pytest.fixture(scope="session", autouse=True)
def _flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What daemons that crash write down goes with the other files of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQ_FLIGHT_FOLDER", str(tmp_path_factory.mktemp("flights")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _in_memory() -> Iterator[None]:
    """Queues live in memory where a test says nothing else; most tests are about something else.

    Those about durability name it, or take this out of the environment of the cluster.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(IN_MEMORY, VOLATILE)
        yield


@pytest.fixture
def engine() -> Iterator[Engine]:
    """The I/O thread of a client."""
    engine = Engine()
    engine.start()
    yield engine
    engine.close()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LimitOfEachRun())
    if config.getvalue("dist") != "no":
        config.pluginmanager.register(StuckWorkers(STUCK_SECONDS, again="ROQ_AGAIN" in os.environ))


def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker says of each test in two pieces whether it failed before (`pytest-rerunfailures`),
    and TCP keeps the second one back for 40 ms: nine minutes for 13,000 tests."""
    connection = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "ROQ_AGAIN" in os.environ:
        for item in items:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesOnce | None:
    """The files of `--dist loadfile` survive the end of a worker."""
    return FilesOnce(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why a test had to be run again."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed at first: {report.nodeid}")
        terminalreporter.line(report.longreprtext)
