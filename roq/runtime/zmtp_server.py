"""ROUTER and XPUB sockets in the thread that uses them, where ZeroMQ would wake another one.

libzmq moves bytes in a thread of its own. Each message wakes it twice at an exchange, which is most
of what a message takes on its way, and costs more of the processor than the bytes
(docs/decisions/0046). Here the loop itself reads and writes TCP, and speaks what ZeroMQ speaks
(`roq.protocol.zmtp`): clients are ordinary ZeroMQ sockets.

What is sent waits for the end of the turn, so that small messages to one peer leave together; call
`flush` where that is known. What the system does not take waits here, up to a mark.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import count, islice
from typing import Final, NamedTuple

from roq.errors import RemoteProtocolError
from roq.protocol import zmtp
from roq.runtime import sockets
from roq.runtime.interfaces import Call, Timer
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_peer import ZmtpPeer, receive_buffer
from roq.timing import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS

FLUSH_BYTES: Final = 64 * 1024
"""So much does not wait for the end of the turn."""
HANDSHAKE_SECONDS: Final = 10.0
"""Somebody who has connected and not said by then what he is, is sent away."""
ACCEPT_AT_ONCE: Final = 64
ACCEPT_AGAIN_SECONDS: Final = 0.5
"""Without a descriptor nobody is let in for so long: they wait in the kernel."""
PREFIXES_MAX: Final = 100_000
"""Subscriptions of one peer."""
TOPICS_FOUND_MAX: Final = 1_024
"""Of so many it is known who gets them,"""
PEERS_FOUND_MAX: Final = 1 << 18
"""and of fewer if that is more altogether."""
CALM_BEATS: Final = 2
"""A calm peer is asked for a sign of life each so many times."""
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""One that has vanished while nothing is sent to it is noticed within half a minute."""
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT

log = logging.getLogger(__name__)


class Outcome(Enum):
    """What became of a message to one peer.

    SENT: it leaves, unless the connection ends first.
    BLOCKED: it was not taken, for one of two reasons, and which of them is not told. Either too
        much waits for the peer already: there may be room later. Or the system takes nothing more
        for the connection: its end is told soon, when what came by it was read.
    GONE: the connection has ended, and all that came by it was received.
    """

    SENT = "sent"
    BLOCKED = "blocked"
    GONE = "gone"


class Heartbeats(NamedTuple):
    """Who has vanished is found by asking for a sign of life, every `HEARTBEAT_MS`; a calm peer
    every other time, if the patience has room for as many signs of life as others have in theirs.

    Attributes:
        patience_ms: silence after which a peer is taken for dead, and which it is told.
        calm: whether a peer has that patience with this end, too: by its route. The others give it
            up after `HEARTBEAT_TIMEOUT_MS`.
    """

    patience_ms: int
    calm: Callable[[bytes], bool] = lambda _: False


class _Peer(ZmtpPeer):
    """One connection to a server.

    Attributes:
        route: who it is, for as long as it stands; never used again.
        events: what the system is to tell of it.
        prefixes: what it has subscribed to.
        deaf: nothing can be sent to it any more; what it had sent is still read.
    """

    __slots__ = ("deaf", "events", "prefixes", "route")

    def __init__(self, connection: socket.socket, route: bytes, inbound: zmtp.Inbound) -> None:
        super().__init__(connection, inbound)
        self.route = route
        self.events = _IN
        self.prefixes: set[bytes] = set()
        self.deaf = False


class _Server:
    """Peers of one listening socket. Loop thread only.

    Args:
        reactor: in whose loop it is used.
        kind, accepts: types of this socket, and of those that may connect.
        largest: bytes of a frame that a peer may send.
        mark: pieces that may wait for one peer.
        on_readable: called when `receive` has something to give.
        heartbeats: None: it sends none, and TCP's keep-alive finds who has vanished.
        untaken_ms: a peer that takes nothing of what is sent for so long is cut off; 0: never.
    """

    def __init__(
        self,
        reactor: Reactor,
        kind: bytes,
        accepts: frozenset[bytes],
        *,
        largest: int,
        mark: int,
        on_readable: Call,
        heartbeats: Heartbeats | None = None,
        untaken_ms: int = 0,
    ) -> None:
        self._reactor = reactor
        self._accepts = accepts
        self._largest = largest
        self._mark = mark
        self._on_readable = on_readable
        self._patience = heartbeats.patience_ms / 1_000 if heartbeats is not None else None
        self._ping = zmtp.ping(heartbeats.patience_ms) if heartbeats is not None else b""
        self._is_calm = Heartbeats(0).calm
        if heartbeats is not None and heartbeats.patience_ms >= CALM_BEATS * HEARTBEAT_TIMEOUT_MS:
            self._is_calm = heartbeats.calm
        self._beats = 0
        self._untaken_ms = untaken_ms
        self._greeting = zmtp.GREETING + zmtp.ready(kind)
        self._listener: socket.socket | None = None
        self._epoll = select.epoll()
        self._buffer = receive_buffer()
        self._by_fd: dict[int, _Peer] = {}
        self._by_route: dict[bytes, _Peer] = {}
        self._numbers = count(1)
        self._unread: dict[_Peer, None] = {}
        """Of whom something has come, in the order of their turns."""
        self._written: dict[_Peer, None] = {}
        """For whom something waits for the end of the turn."""
        self._flushing = False
        self._timer: Timer | None = None
        self._beat_at = 0.0
        reactor.add(self._epoll, on_readable)

    def bind(self, host: str, ports: tuple[int, int], avoid: Iterable[int]) -> int:
        """Listen; see `sockets.listen`, which tells what it raises. Gives the port."""
        self._listener = sockets.listen(host, ports, frozenset(avoid))
        self._epoll.register(self._listener, _IN)
        self._beat_at = time.monotonic()
        self._beat()
        return int(self._listener.getsockname()[1])

    @property
    def peers(self) -> Iterable[_Peer]:
        """Those that are connected."""
        return self._by_fd.values()

    def hold(self) -> None:
        """What is sent from here on waits until the caller flushes."""
        self._flushing = True

    def flush(self) -> None:
        """Send what waits for the end of the turn."""
        self._flushing = False
        while self._written:
            peer, _ = self._written.popitem()
            self._write(peer)

    def end(self, peer: _Peer) -> None:
        """End a connection; what waits for it is dropped."""
        if peer.closed:
            return
        peer.closed = True
        self._epoll.unregister(peer.fd)
        del self._by_fd[peer.fd]
        self._by_route.pop(peer.route, None)
        self._unread.pop(peer, None)
        self._written.pop(peer, None)
        peer.drop()
        peer.socket.close()

    def close(self, linger_seconds: float = 0.0) -> None:
        """End all connections; what is under way has so long to leave. Takes no longer."""
        if self._epoll.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reactor.remove(self._epoll)
        if self._listener is not None:
            self._listener.close()
        self.flush()
        until = time.monotonic() + linger_seconds
        while waiting := [peer.fd for peer in self.peers if peer.out]:
            left = until - time.monotonic()
            if left <= 0:
                break
            writable = select.poll()
            for fd in waiting:
                writable.register(fd, select.POLLOUT)
            for fd, _ in writable.poll(1_000 * left):
                self._write(self._by_fd[fd])
        for peer in list(self.peers):
            self.end(peer)
        self._epoll.close()

    # --- what comes -------------------------------------------------------------------------------

    def _receive(self, most: int) -> Iterator[tuple[_Peer, list[bytes]]]:
        """Messages, up to `most` of them, as they come; peers take turns.

        What is no message takes its part of the turn, too: a flood of it stops nobody else.
        """
        left = most
        while left:
            self._poll(left)
            peers = list(islice(self._unread, left))
            if not peers:
                break
            share = left // len(peers)
            for peer in peers:
                messages = self._read(peer, share)
                left -= share if peer.inbound.more else len(messages) or 1
                for message in messages:
                    yield peer, message
        if self._unread:
            self._reactor.call_soon(self._on_readable)

    def _poll(self, most: int) -> None:
        """Find peers of whom something has come, up to so many; let others in, or write to them."""
        if self._epoll.closed:
            return
        for fd, event in self._epoll.poll(0, most):
            peer = self._by_fd.get(fd)
            if peer is None:
                self._accept()
                continue
            if event & _OUT:
                peer.heard_at = time.monotonic()  # its system has taken something
                self._write(peer)
            if event & ~_OUT:
                self._unread[peer] = None

    def _read(self, peer: _Peer, most: int) -> list[list[bytes]]:
        """What one peer has said; nothing if the connection has ended."""
        if peer.closed:
            return []
        self._unread.pop(peer, None)
        try:
            messages = peer.read(self._buffer, most)
        except (OSError, RemoteProtocolError) as error:
            log.debug("a connection ended: %s", error)
            self.end(peer)
            return []
        if peer.inbound.more:
            self._unread[peer] = None
        pong = peer.inbound.pong
        if pong:
            peer.inbound.pong = b""
            if len(peer.out) < self._mark:
                self._put(peer, pong)
        return messages

    def _accept(self) -> None:
        listener = self._listener
        for _ in range(ACCEPT_AT_ONCE):
            if listener is None:
                return
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NONE_LEFT:
                    self._epoll.unregister(listener)
                    self._reactor.call_later(ACCEPT_AGAIN_SECONDS, self._accept_again)
                    return
                continue  # it has gone before it was let in
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in _KEEPALIVE:
                connection.setsockopt(*option)
            if self._untaken_ms:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._untaken_ms)
            route = b"\0" + next(self._numbers).to_bytes(8, "big")
            peer = _Peer(connection, route, zmtp.Inbound(self._accepts, self._largest))
            self._by_fd[peer.fd] = self._by_route[route] = peer
            self._epoll.register(peer.fd, _IN)
            self._put(peer, self._greeting)

    def _accept_again(self) -> None:
        if self._listener is not None and self._listener.fileno() >= 0:
            self._epoll.register(self._listener, _IN)

    # --- what goes --------------------------------------------------------------------------------

    def _put(self, peer: _Peer, *pieces: bytes) -> None:
        """Have this sent at the end of the turn, or at once if it is much."""
        idle = not peer.out
        peer.put(pieces)
        if peer.size >= FLUSH_BYTES and (idle or peer in self._written):
            self._written.pop(peer, None)
            self._write(peer)
        elif idle:
            self._written[peer] = None
            if not self._flushing:
                self._flushing = True
                self._reactor.call_soon(self.flush)

    def _has_room(self, peer: _Peer) -> bool:
        """Whether less waits for it than the mark allows, once the system has taken what it can;
        and it can be sent something."""
        if len(peer.out) >= self._mark and peer in self._written:
            del self._written[peer]
            self._write(peer)
        return len(peer.out) < self._mark and not peer.deaf

    def _write(self, peer: _Peer) -> None:
        if peer.closed:
            return
        try:
            left = peer.write()
        except OSError:
            # `_read` ends it, soon: when it has read what came before.
            left, peer.deaf = False, True
        events = _IN | _OUT if left else _IN
        if events != peer.events:
            peer.events = events
            self._epoll.modify(peer.fd, events)

    # --- who has vanished -------------------------------------------------------------------------

    def _beat(self) -> None:
        self._timer = self._reactor.call_about(HEARTBEAT_MS / 1_000, self._beat)
        now = time.monotonic()
        late = now - self._beat_at - HEARTBEAT_MS / 1_000
        self._beat_at = now
        self._beats += 1
        silent = []
        for peer in self.peers:
            if late > HEARTBEAT_MS / 1_000:
                # A loop that stood still has asked nobody, who need not have said anything then.
                peer.heard_at = min(now, peer.heard_at + late)
            patience = self._patience
            if not peer.inbound.stands:
                patience = HANDSHAKE_SECONDS
            elif peer.inbound.ttl_ms:
                ttl = peer.inbound.ttl_ms / 1_000
                patience = ttl if patience is None else min(patience, ttl)
            if patience is not None and now - peer.heard_at > patience:
                silent.append(peer)
            elif self._ping and peer.inbound.stands and not peer.out:
                # Half of the calm ones each time, so that they do not hold up the others for long;
                # all if this end is late.
                rests = (peer.fd + self._beats) % CALM_BEATS and late <= HEARTBEAT_MS / 1_000
                if rests and self._is_calm(peer.route):
                    continue
                self._put(peer, self._ping)
        if silent:
            # What has come was not read yet if this loop was late, or has much to read.
            unread = select.poll()
            for peer in silent:
                unread.register(peer.fd, select.POLLIN)
            heard = {fd for fd, _ in unread.poll(0)} | {peer.fd for peer in self._unread}
            for peer in silent:
                if peer.fd not in heard or not peer.inbound.stands:
                    self.end(peer)


class Router(_Server):
    """Hears many peers, and answers each: a ROUTER socket.

    Args: as `_Server`, but for the types, and
        on_ended: called soon after connections have ended, with their routes; what came by them
            was received before.
    """

    def __init__(
        self,
        reactor: Reactor,
        *,
        largest: int,
        mark: int,
        on_readable: Call,
        on_ended: Callable[[list[bytes]], None],
        heartbeats: Heartbeats | None = None,
    ) -> None:
        super().__init__(
            reactor, b"ROUTER", frozenset({b"DEALER", b"REQ", b"ROUTER"}),
            largest=largest, mark=mark, on_readable=on_readable, heartbeats=heartbeats,
        )  # fmt: skip
        self._on_ended = on_ended
        self._ended: list[bytes] = []

    def end(self, peer: _Peer) -> None:
        """End a connection, and tell of it."""
        if not peer.closed and peer.inbound.stands:
            if not self._ended:
                self._reactor.call_soon(self._tell_ended)
            self._ended.append(peer.route)
        super().end(peer)

    def _tell_ended(self) -> None:
        ended, self._ended = self._ended, []
        self._on_ended(ended)

    def receive(self, most: int) -> Iterator[tuple[bytes, list[bytes]]]:
        """Messages with the route of their sender, up to `most`, as they come; peers take turns."""
        for peer, message in self._receive(most):
            yield peer.route, message

    def send(self, route: bytes, *messages: bytes) -> Outcome:
        """Send messages of one frame each to one peer, all or none, without waiting."""
        peer = self._by_route.get(route)
        if peer is None:
            return Outcome.GONE
        if not self._has_room(peer):
            return Outcome.BLOCKED
        for message in messages:
            self._put(peer, zmtp.head(len(message)), message)
        return Outcome.SENT


class FanOut(_Server):
    """Sends to all who have subscribed: an XPUB socket that tells of each subscription.

    Args: as `_Server`, but for the types.
    """

    def __init__(
        self,
        reactor: Reactor,
        *,
        largest: int,
        mark: int,
        on_readable: Call,
        untaken_ms: int,
    ) -> None:
        super().__init__(
            reactor, b"XPUB", frozenset({b"SUB", b"XSUB"}),
            largest=largest, mark=mark, on_readable=on_readable, untaken_ms=untaken_ms,
        )  # fmt: skip
        self._subscribers: dict[bytes, dict[_Peer, None]] = {}
        """By prefix."""
        self._lengths: dict[int, int] = {}
        """Lengths of prefixes, and how many prefixes are so long."""
        self._peers_found = 0
        self._found: dict[bytes, list[_Peer]] = {}
        """Who gets messages of a topic; as long as subscriptions stay as they are."""
        self._cancelled: Counter[bytes] = Counter()
        """Prefixes of connections that have ended, to be told so often."""

    def receive(self, most: int) -> Iterator[tuple[bool, bytes]]:
        """What has become of subscriptions, up to about `most`: whether one was made, its prefix.

        Each connection has each prefix once; what it had is cancelled when it ends.
        """
        for peer, message in self._receive(most):
            kind, prefix = message[0][:1], message[0][1:]
            if len(message) != 1 or kind not in (zmtp.SUBSCRIBED, zmtp.CANCELLED):
                log.debug("what a subscriber sends is no subscription")
                self.end(peer)
            elif kind == zmtp.CANCELLED:
                if prefix in peer.prefixes:
                    self._cancel(peer, prefix)
                    yield False, prefix
            elif prefix not in peer.prefixes and not peer.closed:
                if len(peer.prefixes) >= PREFIXES_MAX:
                    self.end(peer)
                    continue
                self._subscribe(peer, prefix)
                yield from self._tell(prefix)
                yield True, prefix
        for prefix in list(islice(self._cancelled, most)):
            yield from self._tell(prefix)
        if self._cancelled:
            self._reactor.call_soon(self._on_readable)

    def _tell(self, prefix: bytes) -> Iterator[tuple[bool, bytes]]:
        """Connections that had it have ended."""
        for _ in range(self._cancelled.pop(prefix, 0)):
            yield False, prefix

    def publish(self, topic: bytes, start: bytes, rest: bytes = b"") -> None:
        """Send a message of one frame to all who have a prefix of its topic.

        One for whom more waits than the mark allows does not get it.

        Args:
            topic: what `start` begins with.
        """
        peers = self._found.get(topic)
        if peers is None:
            peers = self._matching(topic)
            self._peers_found += len(peers)
            if len(self._found) >= TOPICS_FOUND_MAX or self._peers_found > PEERS_FOUND_MAX:
                self._found.clear()
                self._peers_found = len(peers)
            self._found[topic] = peers
        if not peers:
            return
        beginning = zmtp.head(len(start) + len(rest)) + start
        for peer in peers:
            if self._has_room(peer):
                self._put(peer, beginning, rest)

    def end(self, peer: _Peer) -> None:
        """End a connection, and with it its subscriptions."""
        if peer.closed:
            return
        super().end(peer)
        if peer.prefixes:
            if not self._cancelled:
                self._reactor.call_soon(self._on_readable)
            for prefix in list(peer.prefixes):
                self._cancel(peer, prefix)
                self._cancelled[prefix] += 1

    def _subscribe(self, peer: _Peer, prefix: bytes) -> None:
        self._found.clear()
        peer.prefixes.add(prefix)
        subscribers = self._subscribers.get(prefix)
        if subscribers is None:
            subscribers = self._subscribers[prefix] = {}
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        subscribers[peer] = None

    def _cancel(self, peer: _Peer, prefix: bytes) -> None:
        self._found.clear()
        peer.prefixes.discard(prefix)
        subscribers = self._subscribers[prefix]
        del subscribers[peer]
        if not subscribers:
            del self._subscribers[prefix]
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]

    def _matching(self, topic: bytes) -> list[_Peer]:
        found: dict[_Peer, None] = {}
        for length in self._lengths:
            peers = self._subscribers.get(topic[:length]) if length <= len(topic) else None
            if peers:
                found = found | peers if found else peers
        return list(found)
