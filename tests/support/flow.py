"""Messages that flow all the time, and processes that fail meanwhile; no test in here."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil
from processes import processes
from standings import Standings
from waiting import eventually

import roq
from roq.hcm.children import child_name
from roq.testing import RunningCluster
from roq.testing.history import History, Verdict

TURN_SECONDS = 0.005
PATIENCE_SECONDS = 30.0
QUIET_SECONDS = 0.3
"""So long what is doubled may come yet."""
PAYLOAD = b"." * 100


class Flow:
    """Two publishers and a subscriber of one queue."""

    def __init__(self, cluster: roq.Cluster, queue: str) -> None:
        self.errors: list[Exception] = []
        self.written = History()
        self.read = History()
        self.read.subscribed("reader", [""])
        self.told = Standings()
        self.received = 0
        self.publishers = [cluster.publisher(queue, on_state=self.told) for _ in range(2)]
        self.subscriber = cluster.subscriber(queue, on_gap=partial(self.read.gap, "reader"))
        self._ending = threading.Event()
        self._spoken = threading.Event()
        self._patience_ends = 0.0
        self._threads = [
            threading.Thread(target=self._speak),
            threading.Thread(target=self._listen),
        ]
        for thread in self._threads:
            thread.start()

    def goes_on(self, messages: int = 200) -> None:
        """Wait until so many more were received."""
        wanted = self.received + messages
        eventually(lambda: self.received >= wanted, self)

    @property
    def waited(self) -> int:
        """How often `publish()` has waited for the window."""
        return sum(each.stats().window_waits for each in self.publishers)

    def end(self) -> Verdict:
        """Publish no more, let the subscriber come to the end, and judge."""
        self._ending.set()
        for thread in self._threads:
            thread.join(3 * PATIENCE_SECONDS)
        for publisher in self.publishers:
            publisher.close()
        self.subscriber.close()
        self.verdict = self.written.merge(self.read).check()
        return self.verdict

    def _speak(self) -> None:
        number = 0
        while not self._ending.wait(TURN_SECONDS):
            for publisher in self.publishers:
                number += 1
                payload, topic = b"%d" % number + PAYLOAD, f"t{number % 2}"
                try:
                    publisher.publish(payload, topic=topic)
                except roq.RoQError as error:
                    self.errors.append(error)
                else:
                    self.written.sent(publisher.id, topic, payload)
        for publisher in self.publishers:
            publisher.flush(PATIENCE_SECONDS)
        self._patience_ends = time.monotonic() + PATIENCE_SECONDS
        self._spoken.set()

    def _listen(self) -> None:
        while True:
            message = self.subscriber.receive(timeout=QUIET_SECONDS)
            if message is not None:
                self.read.received("reader", message)
                self.received += 1
            elif self._spoken.is_set() and (
                self.received >= self.written.messages() or time.monotonic() > self._patience_ends
            ):
                return

    def __repr__(self) -> str:
        troubles = [each.trouble for each in (*self.publishers, self.subscriber)]
        return f"{self.received} received; {troubles}; {self.errors[:3]}; {self.told}"


@contextmanager
def flow(cluster: roq.Cluster, queue: str) -> Iterator[Flow]:
    """Messages through this queue; everything must arrive, and no `publish()` fail."""
    running = Flow(cluster, queue)
    try:
        running.goes_on()
        running.told.told.clear()  # that they have connected
        yield running
    finally:
        verdict = running.end()
    assert verdict.ok, (verdict, running)
    assert not running.errors, running


def child(cluster: RunningCluster, queue: str, number: int = 0) -> int:
    """The process of an exchange of a queue, as soon as it runs; 0: that of its monitor."""
    name = child_name(queue, number)
    found: list[psutil.Process] = []
    eventually(lambda: found.extend(processes(cluster.folder, name)) or bool(found))
    return found[-1].pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stopped for the length of a block; somebody may have killed it meanwhile."""
    process = psutil.Process(pid)
    process.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def again(pid: Callable[[], int], before: int) -> None:
    """Wait until this part has another process."""
    eventually(lambda: pid() != before and psutil.pid_exists(pid()))
