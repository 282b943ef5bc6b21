"""Connections to monitors: all sessions of a client with one monitor share one.

What a monitor says unasked reaches every session, but for what names a publisher. It may say the
same several times, once for each session: the others hear that once. A session that has given its
monitor up gets another connection next time; the others judge for themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from roq.errors import Unavailable
from roq.protocol.control import Answer, Control, Relocate
from roq.runtime.interfaces import Dialer, Loop, Socket
from roq.runtime.rpc import PENDING_MAX, RpcClient
from roq.timing import VERSION_SECONDS

SAME_SECONDS: Final = VERSION_SECONDS / 2
"""What is said once more within this was said to another session."""


class MonitorConnections:
    """All connections to monitors of one client; I/O thread only.

    Args:
        reactor, context: of the client.
    """

    def __init__(self, reactor: Loop, context: Dialer[Socket]) -> None:
        self._reactor = reactor
        self._context = context
        self._shared: dict[str, _Connection] = {}
        """Those that further sessions may use, by address."""

    def open(
        self,
        address: str,
        client: bytes,
        on_push: Callable[[Answer], None],
        on_lost: Callable[[str], None],
    ) -> MonitorConnection:
        """One more session's part of the connection to this monitor.

        Args:
            client: id of the publisher or subscriber.
            on_push: called with what the monitor says unasked to this client, or to all.
            on_lost: called once, with the reason, when the connection has ended.

        Raises:
            zmq.ZMQError: there can be no such address, or no socket.
        """
        connection = self._shared.get(address)
        if connection is None:
            connection = _Connection(self._reactor, self._context, address, self._retire)
            self._shared[address] = connection
        return MonitorConnection(connection, client, on_push, on_lost)

    def _retire(self, connection: _Connection) -> None:
        if self._shared.get(connection.client.endpoint) is connection:
            del self._shared[connection.client.endpoint]


class MonitorConnection:
    """What one session has of a connection."""

    def __init__(
        self,
        connection: _Connection,
        client: bytes,
        on_push: Callable[[Answer], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.client = client
        self.on_push = on_push
        self.on_lost = on_lost
        self._connection = connection
        connection.users[self] = None

    def request(
        self,
        message: Control,
        timeout: float,
        on_answer: Callable[[Answer | Unavailable], None],
    ) -> None:
        """As `RpcClient.request`; after `close` nobody is called any more."""

        def answered(answer: Answer | Unavailable) -> None:
            if self in self._connection.users:
                on_answer(answer)

        self._connection.client.request(message, timeout, answered)

    def send(self, message: Control) -> bool:
        """Send without expecting an answer; False if the way is blocked."""
        return self._connection.client.send(message)

    def read(self) -> None:
        """Take all that has come, for all sessions; before it is decided that nothing has."""
        self._connection.client.read(PENDING_MAX)

    def close(self, linger_ms: int = 0, *, given_up: bool = True) -> None:
        """Use it no more; the last session closes it.

        Args:
            linger_ms: how long what was sent last may still take to leave, in the background.
            given_up: nothing good is expected of it: further sessions do not use it.
        """
        self._connection.leave(self, linger_ms, given_up=given_up)


class _Connection:
    """A connection, and who uses it."""

    def __init__(
        self,
        reactor: Loop,
        context: Dialer[Socket],
        address: str,
        on_retired: Callable[[_Connection], None],
    ) -> None:
        self.users: dict[MonitorConnection, None] = {}
        self._reactor = reactor
        self._said: dict[type[Answer], tuple[Answer, float]] = {}
        """What the monitor has said last of each kind, and when."""
        self._on_retired = on_retired
        self.client = RpcClient(reactor, context, address, on_push=self._pushed, on_lost=self._lost)

    def leave(self, user: MonitorConnection, linger_ms: int, *, given_up: bool) -> None:
        if user not in self.users:
            return
        del self.users[user]
        if given_up or not self.users:
            self._on_retired(self)
        if not self.users:
            self.client.close(linger_ms)

    def _pushed(self, message: Answer) -> None:
        if not isinstance(message, Relocate) and self._was_said(message):
            return
        for user in list(self.users):
            if isinstance(message, Relocate) and message.publisher != user.client:
                continue
            if user in self.users:  # those before it may have closed it
                user.on_push(message)

    def _was_said(self, message: Answer) -> bool:
        now = self._reactor.now()
        before, at = self._said.get(type(message), (None, 0.0))
        if message == before and now - at < SAME_SECONDS:
            return True
        self._said[type(message)] = message, now
        return False

    def _lost(self, reason: str) -> None:
        self._on_retired(self)
        for user in list(self.users):
            if user in self.users:
                user.on_lost(reason)
