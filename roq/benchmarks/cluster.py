"""A RoQ cluster for the benchmark: `roq up` in a process of its own, as a user starts it."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Final

import psutil

import roq
from roq.benchmarks import plan
from roq.benchmarks.case import Case
from roq.benchmarks.processes import PYTHON, BenchmarkError, Program, cpu_seconds, rss_bytes
from roq.benchmarks.results import Idle, ProcessCost

UP_SECONDS: Final = 60.0
READY: Final = "ready "
RING_BYTES: Final = 256 * 1024 * 1024
"""More than one measurement sends, so that a subscriber slower than the publisher loses nothing."""
FLOOD_QUEUE: Final = "bench-flood"
FILL_MESSAGE_BYTES: Final = 100
PORTS: Final = (0, 3, 5)
"""Distances of the ports that `roq up` listens on from its base."""
ROLES: Final = {
    "roq.exchange": "exchange",
    "roq.monitor": "monitor",
    "roq.gcm": "gcm",
    "roq.hcm": "hcm",
    "org.apache.zookeeper.server.quorum.QuorumPeerMain": "zookeeper",
}


class RoqCluster:
    """Starts the cluster and one queue per batch size; knows its processes."""

    def __init__(self) -> None:
        self.up_seconds = 0.0
        self._program: Program | None = None
        self._client = ""

    def start(self, directory: Path) -> None:
        """Start everything; the time until `roq up` says ready is kept."""
        base = _free_base()
        started = time.monotonic()
        self._program = Program(
            [
                *(*PYTHON, "roq", "up"),
                *("--hosts", "1"),
                *("--port-base", str(base)),
                *("--data-dir", str(directory / "roq")),
            ],
            directory / "roq-up.log",
        )
        line = ""
        while not line.startswith(READY):
            line = self._program.read_line(UP_SECONDS).decode()
        self.up_seconds = time.monotonic() - started
        self._client = json.loads(line[len(READY) :])["client"]
        try:
            with roq.connect(self._client) as cluster:
                for batch in (plan.FULL_BATCH, plan.SMALL_BATCH):
                    # One exchange is measured, however much it has to carry.
                    limits = {"batch_messages": batch, "ring_bytes": RING_BYTES, "exchanges_max": 1}
                    cluster.create_queue(_queue(batch), durability="none", limits=limits)
        except roq.RoQError as error:
            raise BenchmarkError(f"the cluster has no queues: {error}") from None

    @property
    def client(self) -> str:
        """Where clients find it."""
        return self._client

    def fill_rings(self) -> None:
        """Let the exchanges keep as much as they ever will, as they do after their first minutes.

        Until then each batch gets memory that the process has never had, which costs more than all
        that RoQ does with it.

        Raises:
            BenchmarkError: they take nothing.
        """
        try:
            with roq.connect(self._client) as cluster:
                for batch in (plan.FULL_BATCH, plan.SMALL_BATCH):
                    payloads = [bytes(FILL_MESSAGE_BYTES)] * batch
                    with cluster.publisher(_queue(batch)) as publisher:
                        for _ in range(RING_BYTES // (batch * FILL_MESSAGE_BYTES)):
                            publisher.publish_many(payloads, "filling.the.ring")
        except roq.RoQError as error:
            raise BenchmarkError(f"the rings cannot be filled: {error}") from None

    def stop(self) -> None:
        """Stop everything, as Ctrl-C does."""
        if self._program is not None:
            self._program.stop(signal.SIGINT)
            self._program = None

    def make_flood_queue(self) -> None:
        """A queue with default settings, but one exchange: so a flood meets what users meet.

        Raises:
            BenchmarkError: it cannot be made.
        """
        try:
            with roq.connect(self._client) as cluster:
                cluster.create_queue(FLOOD_QUEUE, durability="none", limits={"exchanges_max": 1})
        except roq.RoQError as error:
            raise BenchmarkError(f"there is no queue for a flood: {error}") from None

    def options(self, case: Case) -> dict[str, str]:
        """Address of the cluster, name of the queue."""
        if case.flood:
            return {"cluster": self._client, "queue": FLOOD_QUEUE}
        small = case.batch == plan.SMALL_BATCH
        batch = plan.SMALL_BATCH if small else plan.FULL_BATCH
        return {"cluster": self._client, "queue": _queue(batch)}

    def processes(self, case: Case) -> dict[str, int]:
        """The exchange and the monitor of the queue, and the managers."""
        return self.processes_of(self.options(case)["queue"])

    def processes_of(self, queue: str) -> dict[str, int]:
        """Likewise, of any queue."""
        found: dict[str, int] = {}
        for process in self._children():
            words = process.cmdline()
            role = next((ROLES[word] for word in words if word in ROLES), None)
            if role is None or (
                role in {"exchange", "monitor"} and not any(f"{queue}." in word for word in words)
            ):
                continue
            found.setdefault(role, process.pid)
        return found

    def idle(self, seconds: float) -> Idle:
        """What the processes of a fresh cluster cost while nothing happens."""
        pids = self.processes(plan.main_case())
        threading.Event().wait(1.0)  # what creation has left behind settles
        before = {role: cpu_seconds(pid) for role, pid in pids.items()}
        threading.Event().wait(seconds)
        return Idle(
            up_seconds=self.up_seconds,
            measured_seconds=seconds,
            processes={
                role: ProcessCost(
                    cpu_percent=(cpu_seconds(pid) - before[role]) * 100 / seconds,
                    rss=rss_bytes(pid),
                )
                for role, pid in pids.items()
            },
        )

    def _children(self) -> list[psutil.Process]:
        if self._program is None:
            return []
        try:
            return psutil.Process(self._program.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            raise BenchmarkError("the cluster has ended") from None


def _queue(batch: int) -> str:
    return f"bench-{batch}"


def _free_base() -> int:
    """A port base whose three ports are free at present."""
    for _ in range(50):
        with socket.create_server(("127.0.0.1", 0)) as free:
            base = int(free.getsockname()[1])
        if base + max(PORTS) < 65_536 and all(_is_free(base + distance) for distance in PORTS):
            return base
    raise BenchmarkError("no free ports for a cluster")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
