"""A manager that is cut off from ZooKeeper, while another one leads: what its clients notice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from gcm_process import Console, DaemonProcess, PaperHostManager
from gcm_script import PaperHost
from tcp_relay import TcpRelay
from waiting import eventually
from zookeeper_server import EmbeddedZooKeeper

import roq
import roq.aio
from roq.protocol.documents import RawDocument

pytestmark = [pytest.mark.integration, pytest.mark.long]

SESSION_SECONDS = 4.0
"""Who goes on must keep its session on a machine that does other work."""
HOST = "127.0.0.1"


class Manager:
    """One configuration manager as a process."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        folder.mkdir()
        self.process = DaemonProcess(
            "roq.gcm",
            folder,
            f'[ports]\nbase = 0\n[broadcast]\nperiod = 200\n[zk]\nservers = "{zookeeper}"\n'
            f"session_seconds = {SESSION_SECONDS}\n",
        )
        addresses = self.process.ready()
        self.client, self.management = addresses["client"], addresses["management"]

    def ask(self, command: int, **fields: object) -> RawDocument:
        with Console(self.management) as console:
            return console.ask(command, **fields)

    def leads(self) -> bool:
        return self.ask(2101)["RESULT"] == 0


class Scene(NamedTuple):
    """Two managers, and what lies between the first one and ZooKeeper."""

    first: Manager
    second: Manager
    relay: TcpRelay


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        host, port = server.address.rsplit(":", 1)
        relay = TcpRelay((host, int(port)))
        first = Manager(tmp_path / "one", relay.address)
        second = Manager(tmp_path / "two", server.address)
        try:
            eventually(first.leads, "the first one leads")
            yield Scene(first, second, relay)
        finally:
            first.process.close()
            second.process.close()
            relay.close()


def told(manager: Manager, *command: str) -> subprocess.CompletedProcess[str]:
    """What `roq` says."""
    address = manager.client.removeprefix("tcp://")
    return subprocess.run(
        [sys.executable, "-m", "roq", *command, "--cluster", address],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def knows_both(scene: Scene) -> bool:
    with roq.connect(scene.first.client) as cluster:
        return len(cluster.info.managers) == 2


def test_changes_reach_the_one_that_leads_and_what_is_told_from_memory_says_so(
    scene: Scene,
) -> None:
    first, second, relay = scene
    host = PaperHost(HOST)
    eventually(lambda: knows_both(scene), "the first one knows the second one")
    with PaperHostManager(host, first.client), roq.connect(first.client) as cluster:
        cluster.create_queue("before", host=HOST)
        assert cluster.queues().from_memory is None
        relay.cut()
        eventually(second.leads, "the second one leads")
        eventually(lambda: "FromMemory" in first.ask(2101), "the first one knows that it may not")
    refused = first.ask(2002, QName="before")
    assert refused["CODE"] == "registry_away"

    with PaperHostManager(host, second.client), roq.connect(first.client) as cluster:
        cluster.create_queue("after", host=HOST)
        assert [queue.name for queue in cluster.queues()] == ["after", "before"]
        asyncio.run(create_by_aio(first))
        created = told(first, "queue", "create", "by-hand", "--host", HOST)
        assert (created.returncode, created.stderr) == (0, "")
        exchange = cluster.add_exchange("before")
        assert exchange == "x2", "the host for it is chosen by what the second one says"

    second.process.close()
    listed = told(first, "queue", "list")
    assert listed.stdout.splitlines()[1].startswith("before")
    assert "told from memory" in listed.stdout.splitlines()[-1]
    assert "ZooKeeper cannot be reached" in listed.stdout.splitlines()[-1]
    (row,) = json.loads(told(first, "exchange", "list", "before", "--json").stdout)
    assert row["from_memory"]["seconds"] >= 0
    refused = told(first, "queue", "create", "nowhere", "--host", HOST)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "registry away" in refused.stderr

    relay.mend()
    known = ["after", "before", "by-aio", "by-hand"]
    eventually(lambda: names(first.ask(2101)) == known, "the first one leads what there is")


def names(answer: RawDocument) -> list[object]:
    """Of the queues that are listed, by somebody who does not do so from memory."""
    rows = answer.get("Queues", []) if "FromMemory" not in answer else []
    return [row["Name"] for row in rows]  # type: ignore[attr-defined]


async def create_by_aio(manager: Manager) -> None:
    async with roq.aio.connect(manager.client) as cluster:
        await cluster.create_queue("by-aio", host=HOST)
