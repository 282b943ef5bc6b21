"""Two publishers, a quick and a slow subscriber, who keep a history that no drain may disturb."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

import roq
from roq.testing.history import History, Verdict

TOPICS: Final = ("eu", "us")
BURST: Final = 20
PAUSE_SECONDS: Final = 0.02
"""1,000 messages a second from each publisher, about."""
PAYLOAD_BYTES: Final = 200
PATIENCE_SECONDS: Final = 120.0


@dataclass
class Figures:
    """What became of it."""

    published: int
    slowest_seconds: float
    verdict: Verdict


class Traffic:
    """Publishes and subscribes in threads of its own until the block ends.

    Args:
        address: of the cluster.
        queue: its name.
        slow_seconds: the slow subscriber rests so long after each hundred messages.
    """

    def __init__(self, address: str, queue: str, slow_seconds: float = 0.1) -> None:
        self._clusters = [roq.connect(address) for _ in range(4)]
        self._queue = queue
        self._slow_seconds = slow_seconds
        self._stop = threading.Event()
        self._spoken = threading.Event()
        self._troubles: list[str] = []
        self._histories = [History() for _ in range(4)]
        self._published = [0, 0]
        self._received = [0, 0]
        self._read_by = 0.0
        self._slowest = [0.0, 0.0]
        for number in range(2):
            self._histories[2 + number].subscribed(f"reader-{number}")
        self._readers = [
            self._clusters[2 + number].subscriber(queue, on_gap=self._gap(number))
            for number in range(2)
        ]
        self._speakers = [self._clusters[number].publisher(queue) for number in range(2)]
        self._threads = [
            threading.Thread(target=self._guarded, args=(job, number))
            for number in range(2)
            for job in (self._speak, self._listen)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._spoken.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        for cluster in self._clusters:
            cluster.close()

    @property
    def published(self) -> int:
        """Messages so far."""
        return sum(self._published)

    @property
    def received(self) -> tuple[int, int]:
        """Messages so far, of the quick and of the slow subscriber."""
        return self._received[0], self._received[1]

    @property
    def slowest(self) -> float:
        """The longest `publish()` so far."""
        return max(self._slowest)

    def end(self) -> Figures:
        """Publish no more, wait until everything is read, and judge."""
        self._stop.set()
        for thread in self._threads[::2]:
            thread.join(PATIENCE_SECONDS)
        self._read_by = time.monotonic() + PATIENCE_SECONDS / 2
        self._spoken.set()
        for thread in self._threads[1::2]:
            thread.join(PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in self._threads)
        assert not self._troubles, self._troubles
        whole = History()
        for history in self._histories:
            whole.merge(history)
        return Figures(self.published, self.slowest, whole.check())

    def _guarded(self, job: Callable[[int], None], number: int) -> None:
        try:
            job(number)
        except roq.RoQError as error:
            self._troubles.append(f"{job.__name__} {number}: {error!r}")

    def _gap(self, number: int) -> Callable[[roq.Gap], None]:
        return lambda gap: self._histories[2 + number].gap(f"reader-{number}", gap)

    def _speak(self, number: int) -> None:
        speaker, history = self._speakers[number], self._histories[number]
        for serial in count():
            if self._stop.is_set():
                break
            topic = TOPICS[serial % 2]
            for each in range(BURST):
                payload = f"{number} {serial} {each}".encode().ljust(PAYLOAD_BYTES)
                begun = time.monotonic()
                speaker.publish(payload, topic)
                self._slowest[number] = max(self._slowest[number], time.monotonic() - begun)
                history.sent(speaker.id, topic, payload)
            self._published[number] += BURST
            self._stop.wait(PAUSE_SECONDS)
        speaker.flush(PATIENCE_SECONDS)

    def _listen(self, number: int) -> None:
        reader, history = self._readers[number], self._histories[2 + number]
        pause = threading.Event()
        while True:
            message = reader.receive(timeout=0.1)
            if message is not None:
                history.received(f"reader-{number}", message)
                self._received[number] += 1
                if number == 1 and self._received[1] % 100 == 0 and not self._spoken.is_set():
                    pause.wait(self._slow_seconds)
            elif self._spoken.is_set() and self._everything_is_read(number):
                return

    def _everything_is_read(self, number: int) -> bool:
        return self._received[number] >= self.published or time.monotonic() > self._read_by
