"""Several configuration managers as processes: one leads, also when it is stopped or paused."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from gcm_process import Console, DaemonProcess, PaperHostManager
from gcm_script import PaperHost
from plain_client import PlainClient
from waiting import eventually

from roq.protocol import broadcast
from roq.protocol.documents import RawDocument

pytestmark = [pytest.mark.integration, pytest.mark.long]

SESSION_SECONDS = 4.0
"""Who goes on must keep its session on a machine that does other work."""


class Manager:
    """One configuration manager, and a console at its management port."""

    def __init__(self, folder: Path, registry: str, root: str) -> None:
        folder.mkdir()
        self._registry = registry
        self.process = DaemonProcess(
            "roq.gcm",
            folder,
            f"[ports]\nbase = 0\n[broadcast]\nperiod = 200\n[registry]\n"
            f'address = "{registry}"\n[zk]\n'
            f'root = "{root}"\nsession_seconds = {SESSION_SECONDS}\n',
        )
        self.addresses = self.process.ready()

    def ask(self, command: int, **fields: object) -> RawDocument:
        """Over a connection of its own: one to a process that stood still may be about to end."""
        with Console(self.addresses["management"]) as console:
            return console.ask(command, **fields)

    def leads(self) -> bool:
        return self.ask(2101)["RESULT"] == 0

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.child.pid, number)

    def stop(self) -> None:
        """Stop it, but not within a transaction: a registry in a file would wait until it goes on
        (docs/decisions/0013).
        """
        self.signal(signal.SIGSTOP)
        while self._writes():
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGSTOP)

    def _writes(self) -> bool:
        if not self._registry.startswith("file:"):
            return False
        path = self._registry.removeprefix("file:")
        with contextlib.closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.process.close()


@pytest.fixture
def pair(
    tmp_path: Path, registry: str, request: pytest.FixtureRequest
) -> Iterator[tuple[Manager, Manager]]:
    """The one that leads, and the one that follows."""
    root = f"/{request.node.name.replace('[', '-').replace(']', '')[:40]}"
    if registry.startswith("file:"):
        registry += root.replace("/", ".")  # a file holds one cluster
    first = Manager(tmp_path / "one", registry, root)
    second = Manager(tmp_path / "two", registry, root)
    eventually(first.leads, "the first one leads")
    assert not second.leads()
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def clients() -> Iterator[contextlib.ExitStack]:
    """Closes them in the end."""
    with contextlib.ExitStack() as stack:
        yield stack


def states(manager: Manager) -> list[str]:
    """Of all queues, by the manager that leads."""
    rows: list[RawDocument] = manager.ask(2101)["Queues"]  # type: ignore[assignment]
    return [str(row["State"]) for row in rows]


def test_a_leader_that_was_paused_says_at_once_that_it_does_not_lead(
    pair: tuple[Manager, Manager], clients: contextlib.ExitStack
) -> None:
    old, new = pair
    host = PaperHost("127.0.0.1")
    with PaperHostManager(host, old.addresses["client"]):
        assert old.ask(2003, QName="before", Host="127.0.0.1")["RESULT"] == 0
    client = clients.enter_context(PlainClient(old.addresses["management"]))
    client.send(2101)
    assert client.receive()["RESULT"] == 0
    old.stop()
    # These wait for it, and are the first that it sees when it goes on.
    for command in (2101, 2003, 2001, 2005):
        client.send(command, QName="before", Host="127.0.0.1")
    eventually(new.leads, "the other one leads")
    with PaperHostManager(host, new.addresses["client"]):
        assert new.ask(2003, QName="after", Host="127.0.0.1")["RESULT"] == 0
        old.signal(signal.SIGCONT)
        answers = [client.receive() for _ in range(4)]
        assert {answer["CODE"] for answer in answers} == {"not_leader"}
        assert sorted(queue for queue, _ in host.children) == ["after"] * 2 + ["before"] * 2
        eventually(
            lambda: old.ask(2101)["COMMENT"] == new.addresses["management"],
            "the old one names the new one",
        )
        queues = new.ask(2101)["Queues"]
        assert [queue["Name"] for queue in queues] == ["after", "before"]


def test_only_the_leader_broadcasts_and_versions_rise_with_leaders(
    pair: tuple[Manager, Manager],
) -> None:
    old, new = pair
    told: dict[str, list[int]] = {"old": [], "new": []}
    with contextlib.ExitStack() as stack:
        readers = {}
        for name, manager in (("old", old), ("new", new)):
            reader = stack.enter_context(Console(manager.addresses["broadcast"], kind=zmq.SUB))
            reader.socket.setsockopt(zmq.SUBSCRIBE, b"")
            readers[name] = reader

        def heard(name: str) -> bool:
            while readers[name].socket.poll(10):
                frames = readers[name].socket.recv_multipart()
                told[name].append(broadcast.decode(frames).version)
            return bool(told[name])

        eventually(lambda: heard("old"), "a broadcast of the leader")
        assert not heard("new")
        old.signal(signal.SIGTERM)
        eventually(lambda: heard("new"), "a broadcast of the next leader")
        heard("old")
    assert min(told["new"]) > max(told["old"])


def test_a_leader_whose_session_has_ended_does_not_write(
    pair: tuple[Manager, Manager], clients: contextlib.ExitStack
) -> None:
    old, new = pair
    host = PaperHost("127.0.0.1")
    client = clients.enter_context(PlainClient(old.addresses["management"]))
    with PaperHostManager(host, old.addresses["client"]):
        # Stopped again and again while it works: wherever that catches it, it writes nothing late.
        for number in range(3):
            name = f"q{number}"
            client.send(2003, QName=name, Host="127.0.0.1")
        old.stop()
        eventually(new.leads, "the other one leads")
    with PaperHostManager(host, new.addresses["client"]):
        for number in range(3):
            answer = new.ask(2003, QName=f"q{number}", Host="127.0.0.1")
            assert answer["RESULT"] == 0 or answer["CODE"] == "queue_exists", answer
        # What the old one had begun is completed by the new one.
        eventually(lambda: states(new) == ["running"] * 3, "all three run")
        before = {key: child.epoch for key, child in host.children.items()}
        old.signal(signal.SIGCONT)
        for _ in range(3):
            client.receive()
        eventually(lambda: not old.leads(), "the old one follows")
        assert {key: child.epoch for key, child in host.children.items()} == before
        assert states(new) == ["running"] * 3
