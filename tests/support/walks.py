"""Which files run for one message, and for one relocation: `python tests/support/walks.py`.

It traces real ones: a publisher, two exchanges and a subscriber over real connections, each in a
thread of this process, and a monitor's machine with RoQ's own policy. A file counts if a function
of it is entered between `publish()` and the return of `receive()` and the acknowledgement, or from
the report that makes the monitor decide until the exchange that was left knows of it.
docs/architecture.md says which of them carry the message, and which are only asked.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from fake_control import FakeControl, ThreadExchange
from monitor_queue import Queue
from waiting import eventually

import roq
from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber

MESSAGES = 12
USUALLY = 9
"""A file that runs for fewer of the messages is there for a timer."""
SETTLE_SECONDS = 0.05
PERIOD_SECONDS = 0.23
OTHERS = (
    "client/subscribe/", "client/session/status.py", "client/session/status_reporter.py",
    "client/io/ticker.py", "client/io/exchange_connections.py", "exchange/readers.py",
    "exchange/reader_turns.py", "read/",
)  # fmt: skip
"""What runs for subscribers and timers meanwhile, and is no part of a relocation."""
_PREFIX = f"{Path(roq.__file__).parent}/"

MONITOR_SHELL = (
    "runtime/rpc.py", "monitor/daemon.py", "runtime/flight.py"
)  # fmt: skip
"""By reading: what stands between a monitor's connections and its machine."""

Walk = dict[str, list[str]]
"""Thread → its files, in order."""


class Tracer:
    """Notes which files are entered while it is on."""

    def __init__(self) -> None:
        self._found: Walk | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if self._found is not None and event == "call" and name.startswith(_PREFIX):
            files = self._found.setdefault(threading.current_thread().name, [])
            if (file := name.removeprefix(_PREFIX)) not in files:
                files.append(file)

    def during(self, work: Callable[[], object]) -> Walk:
        """The walk of this work, and of what follows from it."""
        found: Walk = {}
        self._found = found
        work()
        threading.Event().wait(SETTLE_SECONDS)
        self._found = None
        return {name: files for name, files in found.items() if not name.startswith("fake")}


def of_a_monitor(tracer: Tracer) -> Walk:
    """From the report of a loaded exchange to a Relocate, and from its answer to what it tells."""
    queue = Queue(1, limit=1_000)
    for name in "abc":
        queue.add_publisher(name, 300)
    queue.run(5)
    queue.add_exchange()
    walks = [tracer.during(lambda: queue.run(1)) for _ in range(40)]
    moved = next(each for each in walks if "monitor/sessions.py" in each["MainThread"])
    return {"monitor": [*MONITOR_SHELL, *moved["MainThread"]]}


def main() -> None:
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    control = FakeControl()
    exchanges = [ThreadExchange(control, number) for number in (1, 2)]
    for exchange in exchanges:
        exchange._thread.name = f"exchange {exchange.info.number}"
        control.exchanges.append(exchange.info)
    engine = Engine("I/O thread")
    engine.start()
    there = exchanges[1].info
    subscriber = Subscriber(engine, [control.address], control.queue, "")
    publisher = Publisher(
        engine, [control.address], control.queue, publisher_id=os.urandom(16), connect_timeout=30.0
    )
    came = threading.Event()

    def listen() -> None:
        while (message := subscriber.receive(timeout=60)) is not None and message.payload:
            came.set()

    def send() -> None:
        came.clear()
        publisher.publish(b"x", topic="t")
        came.wait(20)

    def move() -> None:
        control.relocate(publisher.id, there)
        eventually(lambda: control.relocated)

    reader = threading.Thread(target=listen, name="subscriber")
    reader.start()
    for _ in range(MESSAGES):
        send()
    walks = []
    for _ in range(MESSAGES):
        threading.Event().wait(PERIOD_SECONDS)
        walks.append(tracer.during(send))
    told("one message", _usual(walks))
    moved = tracer.during(move) | of_a_monitor(tracer)
    del moved["MainThread"], moved["subscriber"]
    told("one relocation", {name: _but(files, OTHERS) for name, files in moved.items()})
    publisher.publish(b"", topic="t")
    reader.join()
    publisher.abort()
    subscriber.close()
    engine.close()
    for exchange in exchanges:
        exchange.kill()
    control.close()
    sys.setprofile(None)


def _usual(walks: list[Walk]) -> Walk:
    return {
        name: [
            file for file in files if sum(file in each.get(name, ()) for each in walks) >= USUALLY
        ]
        for name, files in walks[0].items()
    }


def _but(files: Iterable[str], left_out: tuple[str, ...]) -> list[str]:
    return [file for file in files if not file.startswith(left_out)]


def told(what: str, walk: Walk) -> None:
    """Print a walk, and how many files it has."""
    lines = [f"{what}: {len({file for files in walk.values() for file in files})} files"]
    lines += [f"  {name} ({len(files)}): {' '.join(files)}" for name, files in sorted(walk.items())]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
