"""One TCP connection of a publisher to its exchange, which never comes back by itself.

One that did would resume in the middle, and what was lost in between would go unnoticed. Sending
and receiving may be done by any thread that holds the publisher's lock; opening and closing belong
to the I/O thread, which also watches the descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from roq.client.io.engine import Engine
from roq.protocol import documents, zmtp
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.framing import split_answer
from roq.protocol.version import FIRST, other_version
from roq.runtime.zmtp_client import EXCHANGES, ZmtpClient
from roq.timing import HEARTBEAT_TIMEOUT_MS

_OTHER_VERSION: Final = [
    REFUSED,
    documents.encode(Refused(code="version", text=other_version("the exchange", FIRST))),
]
"""What an exchange means that sends several frames, as those of version 1 did."""


class Connection:
    """A connection, and whether the I/O thread reads it. Made and closed in the I/O thread.

    Args:
        engine: whose reactor watches.
        link: whose connection it is.
        endpoint: address of the exchange.
        lock: the publisher's.
        on_readable: called in the I/O thread when something may have arrived.
        on_lost: called in the I/O thread with the reason, once, when the connection has ended.

    Raises:
        OSError: there can be no such address, or no descriptor is left.

    Attributes:
        watched: whether the I/O thread looks after the descriptor.
    """

    def __init__(
        self,
        engine: Engine,
        link: int,
        endpoint: str,
        *,
        lock: AbstractContextManager[object],
        on_readable: Callable[[Connection], None],
        on_lost: Callable[[Connection, str], None],
    ) -> None:
        self.link = link
        self.endpoint = endpoint
        self.watched = True
        self._engine = engine
        self._on_readable = on_readable
        self._on_lost = on_lost
        self._fd = -1
        """What the I/O thread watches."""
        self._client = ZmtpClient(
            engine.reactor, b"DEALER", EXCHANGES, lock=lock, on_stands=self._stands,
            on_ended=self._ended,
            silent_ms=HEARTBEAT_TIMEOUT_MS,
        )  # fmt: skip
        self._client.connect(endpoint)

    @property
    def fd(self) -> int:
        """Readable when something has arrived; -1: the connection does not stand."""
        return self._client.fd

    def watch(self, *, wanted: bool) -> None:
        """Let the I/O thread look after the descriptor, or not. I/O thread only."""
        self.watched = wanted
        fd = self._client.fd if wanted else -1
        if fd == self._fd:
            return
        if self._fd >= 0:
            self._engine.reactor.remove(self._fd)
        if fd >= 0:
            self._engine.reactor.add(fd, lambda: self._on_readable(self))
        self._fd = fd

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send one message without waiting; False if the connection has ended."""
        return self._client.send(frames)

    def put_batch(self, topic: bytes, batch: bytes) -> None:
        """Have one batch sent with the next `flush`."""
        start = zmtp.head(len(topic), zmtp.MORE) + topic + zmtp.head(len(batch))
        self._client.put((start, batch))

    @property
    def unsent(self) -> int:
        """Bytes that were put and have not left."""
        return self._client.unsent

    def flush(self) -> bool:
        """Send what was put, as far as the system takes it; False if the connection has ended."""
        return self._client.flush()

    def receive(self, most: int) -> list[list[bytes]]:
        """What has arrived, up to `most` messages: the parts of each."""
        return [
            split_answer(frames[0]) if len(frames) == 1 else _OTHER_VERSION
            for frames in self._client.receive(most)
        ]

    @property
    def more(self) -> bool:
        """Whether `receive` may give more at once."""
        return self._client.more

    def close(self, linger_ms: int = 0) -> None:
        """Close; I/O thread only."""
        self.watch(wanted=False)
        self._client.close(linger_ms)

    def _ended(self, reason: str) -> None:
        self.watch(wanted=False)
        self._on_lost(self, f"{self.endpoint}: {reason}")

    def _stands(self) -> None:
        self.watch(wanted=self.watched)
        self._on_readable(self)  # who waits does not know this descriptor yet
