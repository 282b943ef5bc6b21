"""Who listens on the live socket: how many subscribers, and how many copies of a topic go out.

The fan-out tells of each subscription and its end, for each connection that has it. A reader shows
itself by a presence subscription (`channel.PRESENCE_TOPIC` and a nonce of its own).
"""

from __future__ import annotations

from typing import Final

from roq.model import TOPIC_BYTES_MAX
from roq.protocol.channel import CONTROL, NONCE_BYTES, PRESENCE_TOPIC

PRESENCE_BYTES: Final = len(PRESENCE_TOPIC) + NONCE_BYTES
PREFIXES_MAX: Final = 100_000
COPIES_CACHED: Final = 65_536


def is_presence(prefix: bytes) -> bool:
    """Whether this is one reader's own control topic."""
    return len(prefix) == PRESENCE_BYTES and prefix.startswith(PRESENCE_TOPIC)


class Subscriptions:
    """Counts; the filtering itself is the fan-out's."""

    def __init__(self) -> None:
        self._present: set[bytes] = set()
        self._prefixes: dict[bytes, int] = {}
        self._copies: dict[bytes, int] = {}
        self._uncounted = False
        """Whether there was ever a subscription of which `copies` does not know."""

    @property
    def subscribers(self) -> int:
        """Readers that are present."""
        return len(self._present)

    def add(self, prefix: bytes) -> bool:
        """Count a subscription; False if it is beyond what is counted (it works nevertheless)."""
        if is_presence(prefix):
            if len(self._present) >= PREFIXES_MAX:
                return False
            self._present.add(prefix)
            return True
        if prefix[:1] == bytes((CONTROL,)):
            return True
        if len(prefix) > TOPIC_BYTES_MAX or (
            len(self._prefixes) >= PREFIXES_MAX and prefix not in self._prefixes
        ):
            self._uncounted = True
            return False
        if CONTROL in prefix:  # it goes on behind the topic, which `copies` does not look at
            self._uncounted = True
        self._prefixes[prefix] = self._prefixes.get(prefix, 0) + 1
        self._copies.clear()
        return True

    def remove(self, prefix: bytes) -> None:
        """A subscription is gone."""
        self._present.discard(prefix)
        count = self._prefixes.get(prefix, 0)
        if count > 1:
            self._prefixes[prefix] = count - 1
        elif count == 1:
            del self._prefixes[prefix]
        self._copies.clear()

    @property
    def anybody(self) -> bool:
        """Whether `wants` may be true of any topic."""
        return self._uncounted or bool(self._present or self._prefixes)

    def wants(self, topic: bytes) -> bool:
        """Whether anybody may have subscribed to the topic: else nothing need be published.

        Anybody may end what others have subscribed to, as far as this is counted here, but nobody
        else's presence: its nonce is secret.
        """
        return self._uncounted or bool(self._present) or self.copies(topic) > 0

    def copies(self, topic: bytes) -> int:
        """How many subscriptions match the topic."""
        copies = self._copies.get(topic)
        if copies is None:
            prefixes = self._prefixes
            copies = sum(prefixes.get(topic[:end], 0) for end in range(len(topic) + 1))
            if len(self._copies) >= COPIES_CACHED:
                self._copies.clear()
            self._copies[topic] = copies
        return copies
