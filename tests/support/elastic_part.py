"""A publisher or a subscriber of a queue in a process of its own; no test in here.

    python elastic_part.py publish CLUSTER QUEUE FILE
    python elastic_part.py listen CLUSTER QUEUE FILE

Either says `ready`. A publisher ends at SIGTERM, when everything is acknowledged; a
subscriber after it, when it has received as many messages as it was told on its standard input.
What was sent and received stands in the file then.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import roq
from roq.runtime.signals import SignalEvent
from roq.testing.history import History

TURN_SECONDS = 0.01
PAYLOAD = b"." * 200
PATIENCE_SECONDS = 30.0
QUIET_SECONDS = 0.3
"""So long what is doubled may come yet."""


class Part:
    """Such a process, seen from a test."""

    def __init__(self, what: str, cluster: str, queue: str, file: Path) -> None:
        self.file = file
        self._process = subprocess.Popen(
            [sys.executable, __file__, what, cluster, queue, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith(b"ready")

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self, messages: int = 0) -> History:
        """Let it come to its end, a subscriber to that of so many messages; what it wrote down."""
        self.thaw()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % messages)
        self._process.stdin.close()
        self._process.terminate()
        try:
            assert self._process.wait(2 * PATIENCE_SECONDS) == 0
        finally:
            self._process.kill()
            self._process.stdout.close()
        return History().load(self.file)


def publish(cluster: roq.Cluster, queue: str, ending: SignalEvent) -> History:
    history = History()
    with cluster.publisher(queue) as publisher:
        _say("ready")
        number = 0
        while not ending.wait(TURN_SECONDS):
            for _ in range(3):
                number += 1
                payload, topic = b"%d" % number + PAYLOAD, f"t{number % 2}"
                publisher.publish(payload, topic=topic)
                history.sent(publisher.id, topic, payload)
    return history


def listen(cluster: roq.Cluster, queue: str, ending: SignalEvent) -> History:
    history = History()
    received = 0
    with cluster.subscriber(queue, on_gap=partial(history.gap, "frozen")) as subscriber:

        def take() -> bool:
            nonlocal received
            message = subscriber.receive(timeout=QUIET_SECONDS)
            if message is not None:
                received += 1
                history.received("frozen", message)
            return message is not None

        _say("ready")
        while not ending.is_set():
            take()
        wanted = int(sys.stdin.readline())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while take() or (received < wanted and time.monotonic() < deadline):
            continue
    return history


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    what, address, queue, file = sys.argv[1:]
    ending = SignalEvent()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with roq.connect(address) as cluster:
        work = publish if what == "publish" else listen
        work(cluster, queue, ending).save(Path(file))


if __name__ == "__main__":
    main()
