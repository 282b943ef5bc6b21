"""The configuration manager is killed while a provider makes a host for it: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
import zmq
from elastic_traffic import LIMIT, traffic
from waiting import eventually

import roq
import roq.testing
from roq.errors import RoQError
from roq.protocol import documents
from roq.protocol.control import Control, Done, Failure, ScaledOut, ScaleIn, ScaleOut
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


@contextmanager
def later_manager(running: RunningCluster) -> Iterator[Callable[[], None]]:
    """Gives what starts another one in the place of the one that was killed."""
    command = [sys.executable, "-P", "-m", "roq.gcm", "--config", str(running.folder / "gcm.toml")]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with (running.folder / "log" / "another.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))

    try:
        yield start
    finally:
        for process in started:
            process.terminate()
            process.wait(40)


class Asker:
    """Asks the leader as a monitor does: again and again, until one answers."""

    def __init__(self, running: RunningCluster, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://{running.address}")
        self.answers: list[ScaledOut | Done] = []

    def say(self, message: Control) -> None:
        self._socket.send(documents.encode(message))

    def told(self, message: Control, kind: type[ScaledOut | Done]) -> bool:
        self.say(message)
        if self._socket.poll(2_000):
            answer = documents.decode(self._socket.recv(), ScaledOut | Done | Failure)
            if isinstance(answer, kind):
                self.answers.append(answer)
                return True
        return False

    def close(self) -> None:
        self._socket.close(0)


def provided(running: RunningCluster) -> list[str]:
    """The host managers that the provider has started."""
    found = [str(each.info["cmdline"]) for each in psutil.process_iter(["cmdline"])]
    return [each for each in found if f"{running.folder}/hosts" in each and "roq.hcm" in each]


def host_names(cluster: roq.Cluster) -> list[str]:
    try:
        return [host.host for host in cluster.hosts()]
    except RoQError:
        return []


def test_a_later_leader_finds_the_host_and_uses_it_once_and_gives_it_back() -> None:
    settings = {"provider": {"release_seconds": 1}, "zk": {"session_seconds": 3.0}}
    with (
        roq.testing.cluster(
            registry="zookeeper", slots=1, provider="local", gcm=settings
        ) as running,
        running.connect() as cluster,
        zmq.Context() as context,
        later_manager(running) as restart,
        traffic(cluster, "q", 2, policy="static") as flow,
    ):
        flow.rate = LIMIT * 0.3
        asker = Asker(running, context)
        before = host_names(cluster)
        queue_id = bytes.fromhex(cluster.describe("q").queue_id)
        more = ScaleOut(id=7, queue="q", queue_id=queue_id, transaction="one", reason="a test")
        asker.say(more)
        eventually(lambda: bool(provided(running)))
        os.kill(running.pid("gcm"), signal.SIGKILL)
        restart()
        eventually(lambda: asker.told(more, ScaledOut))
        assert [each.name for each in cluster.exchanges("q")] == ["x1", "x2"]
        eventually(lambda: len(provided(running)) == 1)
        less = ScaleIn(id=8, queue="q", queue_id=queue_id, number=2, reason="a test")
        eventually(lambda: asker.told(less, Done))
        eventually(lambda: host_names(cluster) == before and not provided(running))
        asker.close()
        flow.end()
        flow.judge()
