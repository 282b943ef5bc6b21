"""All ZooKeeper servers are killed, or hang, while something is changed: every change is answered.

A real ZooKeeper, and a configuration manager as a process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import bson
import pytest
from gcm_process import Console, DaemonProcess, PaperHostManager
from gcm_script import PaperHost
from waiting import eventually
from zookeeper_server import EmbeddedZooKeeper

from roq.local.ports import choose_ports
from roq.protocol.documents import RawDocument

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]

ANSWER_SECONDS = 30.0
"""More than a commit may take, on a machine that does other work as well."""
MOMENTS = (0.0, 0.004, 0.015, 0.1)
"""Seconds from a command until the server is killed: before, in, between and after its commits."""


class Setup:
    """A server, a manager with one host, and a console."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "zk"
        (self.port,) = choose_ports("127.0.0.1", 1)  # nobody gets it while it is not there
        self.server = EmbeddedZooKeeper(self._folder, port=self.port)
        self.server.start()
        zk = f'[zk]\nservers = "{self.server.address}"\nsession_seconds = 3.0\n'
        self.process = DaemonProcess("roq.gcm", folder, f"[ports]\nbase = 0\n{zk}")
        addresses = self.process.ready()
        self.host = PaperHostManager(PaperHost("127.0.0.1"), addresses["client"])
        self.host.__enter__()
        self.console = Console(addresses["management"])
        self._names = iter(f"q{number}" for number in range(1_000))

    def close(self) -> None:
        self.console.__exit__(None, None, None)
        self.host.__exit__(None, None, None)
        self.process.close()
        self.server.stop()

    def begin(self) -> None:
        """Send a command, and wait for nothing."""
        fields = {"CMD": 2003, "QName": next(self._names), "Host": "127.0.0.1"}
        self.console.socket.send(bson.encode(fields))

    def answer(self) -> RawDocument:
        """The answer; a failure if there is none in time."""
        began = time.monotonic()
        readable = self.console.socket.poll(int(ANSWER_SECONDS * 1000))
        assert readable, f"no answer within {time.monotonic() - began:.1f} s"
        return bson.decode(self.console.socket.recv())

    def change(self) -> RawDocument:
        self.begin()
        return self.answer()

    def refuses(self, answer: RawDocument) -> bool:
        """Whether this is the refusal of a leader that has no registry, or lost it on the way.

        One that got no processor for half a session cannot ask whether it still leads, and says so.
        """
        wanted = {"registry_away", "interrupted"}
        if "stood still" in self.process.log.read_text():
            wanted.add("not_leader")
        return answer["RESULT"] == 1101 and answer.get("CODE") in wanted

    def restart(self) -> None:
        self.server.stop()
        self.server = EmbeddedZooKeeper(self._folder, port=self.port)
        self.server.start()

    def accepts(self) -> bool:
        return self.change()["RESULT"] == 0


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path)
    yield setup
    setup.close()


def test_whenever_zookeeper_is_killed_each_change_is_answered_and_then_refused(
    setup: Setup,
) -> None:
    pause = threading.Event()
    for moment in MOMENTS:
        eventually(setup.accepts, "a change after ZooKeeper has come back", 60.0)
        setup.begin()
        pause.wait(moment)
        os.kill(setup.server.pid, signal.SIGKILL)
        first = setup.answer()
        assert first["RESULT"] == 0 or setup.refuses(first), first
        for _ in range(3):
            refused = setup.change()
            assert setup.refuses(refused), refused
        setup.restart()
    eventually(setup.accepts, "a change in the end", 60.0)


def stands_still(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    states = [
        path.read_text().rpartition(")")[2].split()[0]
        for path in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def test_a_zookeeper_that_hangs_leaves_no_change_without_an_answer(setup: Setup) -> None:
    eventually(setup.accepts, "a change")
    os.kill(setup.server.pid, signal.SIGSTOP)
    try:
        # A signal takes its time to reach all threads.
        eventually(lambda: stands_still(setup.server.pid), "ZooKeeper stands still")
        for _ in range(3):
            refused = setup.change()
            assert setup.refuses(refused), refused
    finally:
        os.kill(setup.server.pid, signal.SIGCONT)
    eventually(setup.accepts, "a change once it goes on", 60.0)
