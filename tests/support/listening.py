"""A subscriber in a process of its own: `python listening.py ADDRESS QUEUE NAME HISTORY`.

Says `ready` on standard output, receives until the message `end`, writes its history and its
counters as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from roq.client.io.engine import Engine
from roq.client.subscribe.subscriber import Subscriber
from roq.testing.history import History


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(address: str, queue: str, name: str, path: str) -> None:
    history = History()
    history.subscribed(name)
    engine = Engine()
    engine.start()
    subscriber = Subscriber(
        engine, [address], queue, on_gap=lambda gap: history.gap(name, gap), buffer_bytes=1 << 20
    )
    say("ready")
    for message in subscriber:
        history.received(name, message)
        if message.payload == b"end":
            break
    stats = subscriber.stats()
    subscriber.close()
    engine.close()
    history.save(Path(path))
    say(json.dumps({"lost": stats.counts.lost, "gaps": stats.gaps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
