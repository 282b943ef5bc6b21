"""Connections to the data sockets of exchanges: all readers of a client share one to each.

It is always read, whatever a reader does: what comes for one is no more than that has asked for,
and it asks for no more while it is paused. That matters, as the exchange's heartbeats come over it.

Over a slow network an answer waits for what is on its way already. That is little: of those that
want to fetch only a few do so at once, and the others in turn.

Without a descriptor there is no connection: nothing comes by it then, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from roq.number_ranges import OFFSET_MAX
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    HEADS,
    READER_TAG_BYTES,
    READERS_PER_CONNECTION_MAX,
    REFUSED,
    HeadsRequest,
)
from roq.protocol.framing import Answers
from roq.runtime import descriptors
from roq.runtime.backoff import Backoff, Jitter
from roq.runtime.interfaces import Call, Timer
from roq.runtime.lifeline import not_begun
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_client import EXCHANGES, ZmtpClient
from roq.timing import FETCH_PATIENCE_SECONDS

BURST: Final = 50
STEADY_SECONDS: Final = 5.0
"""A connection that has lasted so long has worked."""
AGAIN_SECONDS: Final = 1.0
"""Between two attempts to make a socket."""
PROBE_SECONDS: Final = 0.5
"""Between two questions whether the exchange answers."""
FETCHES_AT_ONCE: Final = 3
GOODBYE_MS: Final = 200
"""What is said last may take so long."""
GONE_MS: Final = 5_000
"""A system that does not confirm for so long what was sent to it is cut off; one whose exchange is
busy, or stopped, does. The exchange's heartbeats say so only if nothing came after the last one.
Left alone, the connection would come back as long after the cut as that has lasted, and what is
missing cannot be fetched meanwhile."""
_ENDS: Final = frozenset({FETCH, REFUSED})
_NOBODY: Final = bytes(READER_TAG_BYTES)
_TAGS: Final = 256**READER_TAG_BYTES


class ExchangeConnections:
    """All connections to the data sockets of exchanges that one client has for reading.

    I/O thread only.

    Args:
        reactor: of the client.
        jitter: spreads attempts to connect.
    """

    def __init__(self, reactor: Reactor, jitter: Jitter) -> None:
        self._reactor = reactor
        self._jitter = jitter
        self._by_address: dict[str, list[_Connection]] = {}

    def open(
        self,
        address: str,
        *,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_answers: Callable[[list[list[bytes]]], None],
        on_heard: Call | None = None,
    ) -> ExchangeConnection:
        """One more reader's part of the connection to this exchange.

        Args:
            on_up: called when the connection stands, and never before this returns.
            on_down: called when it has ended, and with it whatever was asked.
            on_answers: called with the parts of what has come, in order.
            on_heard: called when anything has come, if only a heartbeat: the exchange is about to
                read what answers that, and what is said now costs it no turn of its own.
        """
        shared = self._by_address.setdefault(address, [])
        connection = next(
            (each for each in shared if len(each.users) < READERS_PER_CONNECTION_MAX), None
        )
        if connection is None:
            connection = _Connection(self._reactor, address, self._jitter, self._retire)
            shared.append(connection)
        return ExchangeConnection(connection, on_up, on_down, on_answers, on_heard)

    def _retire(self, connection: _Connection) -> None:
        shared = self._by_address[connection.address]
        shared.remove(connection)
        if not shared:
            del self._by_address[connection.address]


class ExchangeConnection:
    """What one reader has of a connection.

    Attributes:
        up: the reader was told that it stands.
    """

    def __init__(
        self,
        connection: _Connection,
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_answers: Callable[[list[list[bytes]]], None],
        on_heard: Call | None,
    ) -> None:
        self.up = False
        self.on_up = on_up
        self.on_down = on_down
        self.on_answers = on_answers
        self.on_heard = on_heard
        self._connection = connection
        self._tag = connection.join(self)

    @property
    def trouble(self) -> str:
        """Why no connection can be made; empty: it stands, or nothing keeps it from that."""
        return self._connection.trouble

    @property
    def heard_at(self) -> float:
        """When the exchange has answered last, whomever; by the clock of the reactor."""
        return self._connection.heard_at

    def ask(self, frames: list[bytes]) -> None:
        """Send a request; one that cannot be sent is asked again when its time is over."""
        self._connection.ask(self._tag, frames)

    def probe(self, queue: bytes) -> None:
        """Have the exchange answer something, if it can: see `heard_at`."""
        self._connection.probe(queue)

    def close(self, farewells: list[list[bytes]]) -> None:
        """Use it no more; the last reader closes it.

        Args:
            farewells: requests to send before.
        """
        for frames in farewells:
            self.ask(frames)
        self._connection.leave(self._tag, said_goodbye=bool(farewells))


class _Connection:
    """A connection, and who uses it."""

    def __init__(
        self,
        reactor: Reactor,
        address: str,
        jitter: Jitter,
        on_retired: Callable[[_Connection], None],
    ) -> None:
        self.address = address
        self.users: dict[bytes, ExchangeConnection] = {}
        self.trouble = ""
        self.heard_at = float("-inf")
        self._reactor = reactor
        self._on_retired = on_retired
        self._backoff = Backoff(jitter)
        self._answers = Answers(READER_TAG_BYTES)
        self._client: ZmtpClient | None = None
        self._fd = -1
        self._up_at: float | None = None
        self._timer: Timer | None = None
        self._linger_ms = 0
        self._last_tag = 0
        self._probed_at = float("-inf")
        self._fetching: dict[bytes, float] = {}
        """Whose fetch is under way, and when it has brought something last."""
        self._fetches: dict[bytes, list[bytes]] = {}
        """Fetches that wait for their turn."""
        self._open()

    # --- its users --------------------------------------------------------------------------------

    def join(self, user: ExchangeConnection) -> bytes:
        """One more; gives the tag of its requests."""
        tag = _NOBODY
        while tag == _NOBODY or tag in self.users:
            self._last_tag = (self._last_tag + 1) % _TAGS
            tag = self._last_tag.to_bytes(READER_TAG_BYTES, "little")
        self.users[tag] = user
        if self._up_at is not None:
            self._reactor.call_soon(self._tell_up)
        return tag

    def leave(self, tag: bytes, *, said_goodbye: bool) -> None:
        """One less."""
        if self.users.pop(tag, None) is None:
            return
        self._fetches.pop(tag, None)
        if self._fetching.pop(tag, None) is not None:
            self._fetch_next()
        if said_goodbye:
            self._linger_ms = GOODBYE_MS
        if not self.users:
            self._close(self._linger_ms)
            self._on_retired(self)

    def ask(self, tag: bytes, frames: list[bytes]) -> None:
        """Send a request if a connection is there; a fetch has its turn, replacing an older one."""
        if self._client is None:
            return
        if frames[0] == FETCH:
            self._fetches[tag] = frames
            self._fetch_next()
        else:
            self._send(tag, frames)

    def _fetch_next(self) -> None:
        now, fetching = self._reactor.now(), self._fetching
        for tag in [tag for tag, at in fetching.items() if now - at > FETCH_PATIENCE_SECONDS]:
            del fetching[tag]
        for tag in list(self._fetches):
            if tag in fetching or len(fetching) < FETCHES_AT_ONCE:
                fetching[tag] = now
                self._send(tag, self._fetches.pop(tag))

    def _send(self, tag: bytes, frames: list[bytes]) -> None:
        letter, *rest = frames
        if self._client is not None:
            self._client.send([letter + tag, *rest])

    def probe(self, queue: bytes) -> None:
        """Ask for nothing, unless that was done just now."""
        now = self._reactor.now()
        if self._up_at is not None and now - self._probed_at >= PROBE_SECONDS:
            self._probed_at = now
            nothing = HeadsRequest(id=0, queue=queue, prefixes=[], since=OFFSET_MAX)
            self._send(_NOBODY, [HEADS, documents.encode(nothing)])

    def _tell_up(self) -> None:
        for tag, user in list(self.users.items()):
            if self._up_at is not None and not user.up and tag in self.users:
                user.up = True
                user.on_up()

    # --- the connection ---------------------------------------------------------------------------

    def _open(self) -> None:
        self._timer = None
        self._answers = Answers(READER_TAG_BYTES)
        client = self._client = ZmtpClient(
            self._reactor, b"DEALER", EXCHANGES, lock=nullcontext(), on_stands=self._stands,
            on_ended=self._ended, untaken_ms=GONE_MS,
        )  # fmt: skip
        try:
            client.connect(self.address)
        except OSError as error:
            self._close()
            self.trouble = descriptors.reason(error)
            self._timer = self._reactor.call_later(AGAIN_SECONDS, self._open)
            return
        self.trouble = not_begun(self.trouble)

    def _close(self, linger_ms: int = 0) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._reactor.remove(self._fd)
        if self._client is not None:
            self._client.close(linger_ms)
        self._client = self._timer = self._up_at = None
        self._fd = -1
        self._fetching.clear()
        self._fetches.clear()

    def _stands(self) -> None:
        if self._client is not None:
            self._fd = self._client.fd
            self._reactor.add(self._fd, self._readable)
            self.trouble = ""
            self._up_at = self._reactor.now()
            self._tell_up()

    def _ended(self, reason: str) -> None:
        if self._client is None:
            return
        self.trouble = not_begun(reason)
        if self._up_at is not None and self._reactor.now() - self._up_at > STEADY_SECONDS:
            self._backoff.reset()
        self._close()
        self._timer = self._reactor.call_later(self._backoff.wait(), self._open)
        for tag, user in list(self.users.items()):
            if user.up and tag in self.users:
                user.up = False
                user.on_down()

    def _readable(self) -> None:
        client = self._client
        if client is None:
            return
        come: dict[bytes, list[list[bytes]]] = {}
        for frames in client.receive(BURST):
            for frame in frames:
                parts = self._answers.take(frame)
                if parts is not None:
                    come.setdefault(self._answers.tag, []).append(parts)
        if client.more:
            self._reactor.call_soon(self._readable)
        if come:
            self.heard_at = self._reactor.now()
            if self._fetching:  # else none waits for its turn either
                for tag in self._fetching.keys() & come.keys():
                    self._fetching[tag] = self.heard_at
                    if any(parts[0] in _ENDS for parts in come[tag]):
                        del self._fetching[tag]
                self._fetch_next()
        for tag, answers in come.items():
            user = self.users.get(tag)
            if user is not None and user.up:
                user.on_answers(answers)
        self._tell_heard()

    def _tell_heard(self) -> None:
        for user in list(self.users.values()):
            if user.on_heard is not None and user.up:
                user.on_heard()
