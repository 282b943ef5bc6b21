"""A publisher or a subscriber of a queue in a process of its own; no test in here.

    python elastic_part.py publish CLUSTER QUEUE FILE
    python elastic_part.py listen CLUSTER QUEUE FILE

Either says `ready`. A publisher ends at SIGTERM, when everything is acknowledged; a
subscriber when nothing more has come for a second after it. What was sent and received stands in
the file then.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import roq
from roq.testing.history import History

TURN_SECONDS = 0.01
PAYLOAD = b"." * 200


class Part:
    """Such a process, seen from a test."""

    def __init__(self, what: str, cluster: str, queue: str, file: Path) -> None:
        self.file = file
        self._process = subprocess.Popen(
            [sys.executable, __file__, what, cluster, queue, str(file)], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith(b"ready")

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> History:
        """Let it come to its end; gives what it has written down."""
        self.thaw()
        self._process.terminate()
        try:
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()
        return History().load(self.file)


def publish(cluster: roq.Cluster, queue: str, ending: threading.Event) -> History:
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


def listen(cluster: roq.Cluster, queue: str, ending: threading.Event) -> History:
    history = History()
    with cluster.subscriber(queue, on_gap=partial(history.gap, "frozen")) as subscriber:
        _say("ready")
        while (message := subscriber.receive(timeout=1.0)) is not None or not ending.is_set():
            if message is not None:
                history.received("frozen", message)
    return history


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    what, address, queue, file = sys.argv[1:]
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with roq.connect(address) as cluster:
        work = publish if what == "publish" else listen
        work(cluster, queue, ending).save(Path(file))


if __name__ == "__main__":
    main()
