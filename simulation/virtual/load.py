"""Users who publish: batches of some sizes at some rate, until they are told to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from roq.model import PublisherId
from roq.simulation.virtual.world import Time
from roq.testing.history import History

BLOCKED_SECONDS: Final = 0.002
"""Between two looks for room in the window."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one user publishes.

    Attributes:
        rate: batches per second, on average.
        messages: in a batch, between these two.
        size: bytes of a payload, between these two.
        topics: one of these each time.
    """

    rate: float
    messages: tuple[int, int] = (1, 5)
    size: tuple[int, int] = (8, 100)
    topics: tuple[str, ...] = ("a", "b")


class Publishes(Protocol):
    """What takes a user's batches."""

    @property
    def id(self) -> PublisherId:
        """Of the publisher."""
        ...

    def publish(self, topic: str, payloads: list[bytes]) -> bool:
        """Publish one batch; False if there is no room for it now."""
        ...


class User:
    """One user with one publisher.

    Attributes:
        batches: how many were published.
        blocked: how often there was no room.
    """

    def __init__(
        self, world: Time, publisher: Publishes, profile: Profile, history: History
    ) -> None:
        self.batches = 0
        self.blocked = 0
        self._world = world
        self._publisher = publisher
        self._profile = profile
        self._history = history
        self._stopped = False
        self._pause()

    def stop(self) -> None:
        """Publish no more."""
        self._stopped = True

    def _pause(self) -> None:
        wait = self._world.random.expovariate(self._profile.rate)
        self._world.call_later(wait, self._publish)

    def _publish(self) -> None:
        random, profile = self._world.random, self._profile
        topic = random.choice(profile.topics)
        payloads = [
            self.batches.to_bytes(4, "big") + random.randbytes(random.randint(*profile.size))
            for _ in range(random.randint(*profile.messages))
        ]
        self._try(topic, payloads)

    def _try(self, topic: str, payloads: list[bytes]) -> None:
        if self._stopped:
            return
        if self._publisher.publish(topic, payloads):
            self._history.sent(self._publisher.id, topic, *payloads)
            self.batches += 1
            self._pause()
        else:
            self.blocked += 1
            self._world.call_later(BLOCKED_SECONDS, lambda: self._try(topic, payloads))
