"""A consumer in a process of its own: takes messages, notes each with its time, acknowledges them.

    python tests/support/consuming.py ADDRESS QUEUE GROUP FILE [SECONDS_PER_MESSAGE] [LEASE]

Each message is a line of FILE when its handler begins, and a second one when it is acknowledged.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import roq


def main() -> None:
    """Consume until SIGTERM."""
    address, queue, group, path, *rest = sys.argv[1:]
    seconds = float(rest[0]) if rest else 0.0
    lease = float(rest[1]) if len(rest) > 1 else 30.0
    stopping = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with (
        Path(path).open("a", buffering=1) as file,
        roq.connect(address) as cluster,
        cluster.consumer(queue, group, prefetch=20, lease=lease, retry=0.1) as consumer,
    ):
        file.write("ready\n")
        while not stopping:
            message = consumer.receive(0.2)
            if message is None:
                continue
            text = message.payload.decode()
            file.write(f"begin {text} {message.attempt}\n")
            if seconds:
                threading.Event().wait(seconds)  # the handler's work
            try:
                message.ack()
                file.write(f"ack {text}\n")
            except roq.LeaseLost:
                file.write(f"lost {text}\n")


if __name__ == "__main__":
    main()
