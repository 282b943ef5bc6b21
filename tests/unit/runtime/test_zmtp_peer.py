"""One connection: what waits for it, and what has come."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from roq.errors import RemoteProtocolError
from roq.protocol import zmtp
from roq.runtime.zmtp_peer import PIECES_AT_ONCE, ZmtpPeer, receive_buffer

BUFFER = receive_buffer()
HANDSHAKE = zmtp.GREETING + zmtp.ready(b"DEALER")


@pytest.fixture
def pair() -> Iterator[tuple[ZmtpPeer, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    with near, far:
        yield ZmtpPeer(near, zmtp.Inbound(frozenset({b"DEALER"}), 1 << 24)), far


def drained(far: socket.socket) -> bytes:
    found = []
    with suppress(BlockingIOError):
        while data := far.recv(1 << 20):
            found.append(data)
    return b"".join(found)


def test_it_writes_what_was_put_in_order_and_holds_nothing_afterwards(
    pair: tuple[ZmtpPeer, socket.socket],
) -> None:
    peer, far = pair
    pieces = [b"%d," % number for number in range(3 * PIECES_AT_ONCE + 1)]
    peer.put([b"", *pieces, b""])
    assert (len(peer.out), peer.size) == (len(pieces), len(b"".join(pieces)))
    assert not peer.write()
    assert (len(peer.out), peer.size) == (0, 0)
    assert drained(far) == b"".join(pieces)
    assert not peer.write()


def test_what_the_system_does_not_take_waits_and_is_written_later(
    pair: tuple[ZmtpPeer, socket.socket],
) -> None:
    peer, far = pair
    pieces = [bytes((number,)) * (1 + 499 * number) for number in range(150)]
    peer.put(pieces)
    got, blocked = bytearray(), 0
    while peer.write():
        blocked += 1
        assert peer.size == sum(len(piece) for piece in peer.out) > 0
        got += drained(far)
    assert blocked > 3
    assert got + drained(far) == b"".join(pieces)
    assert peer.size == 0


def test_what_waits_can_be_dropped(pair: tuple[ZmtpPeer, socket.socket]) -> None:
    peer, far = pair
    peer.put([b"x" * 100])
    peer.drop()
    assert not peer.write()
    assert drained(far) == b""
    assert peer.size == 0


def test_writing_to_one_that_is_gone_is_an_error(pair: tuple[ZmtpPeer, socket.socket]) -> None:
    peer, far = pair
    far.close()
    peer.put([b"x"])
    with pytest.raises(BrokenPipeError):
        peer.write()


def test_writing_to_one_that_is_gone_signals_nothing(
    pair: tuple[ZmtpPeer, socket.socket],
) -> None:
    """A program in which SIGPIPE has its default lives on."""
    peer, far = pair
    far.close()
    peer.put([b"to nobody"])
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        with pytest.raises(BrokenPipeError):
            peer.write()
        assert not signal.sigtimedwait({signal.SIGPIPE}, 0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGPIPE, before)


def test_it_reads_what_has_come_and_says_who_has_gone(
    pair: tuple[ZmtpPeer, socket.socket],
) -> None:
    peer, far = pair
    assert peer.read(BUFFER, 50) == []
    far.sendall(HANDSHAKE + b"\x00\x01a\x00")
    assert peer.read(BUFFER, 50) == [[b"a"]]
    far.sendall(b"\x01b")
    far.close()
    assert peer.read(BUFFER, 50) == [[b"b"]]
    with pytest.raises(ConnectionResetError):
        peer.read(BUFFER, 50)


def test_what_is_left_of_a_turn_is_read_though_nothing_else_comes(
    pair: tuple[ZmtpPeer, socket.socket],
) -> None:
    peer, far = pair
    far.sendall(HANDSHAKE + b"\x00\x01a" * 5)
    far.close()
    got = [peer.read(BUFFER, 2) for _ in range(3)]
    assert got == [[[b"a"]] * 2, [[b"a"]] * 2, [[b"a"]]]
    assert not peer.inbound.more


def test_a_large_frame_and_what_follows_it(pair: tuple[ZmtpPeer, socket.socket]) -> None:
    peer, far = pair
    body = bytes(range(256)) * 10_000
    told = memoryview(HANDSHAKE + zmtp.head(len(body)) + body + b"\x00\x01z")
    got: list[list[bytes]] = []
    at = 0
    while len(got) < 2:
        with suppress(BlockingIOError):
            at += far.send(told[at:])
        got += peer.read(BUFFER, 50)
    assert got == [[body], [b"z"]]


def test_only_who_stands_is_heard(pair: tuple[ZmtpPeer, socket.socket]) -> None:
    """A handshake has one time for all of it, however slowly its bytes come."""
    peer, far = pair
    made = peer.heard_at
    far.sendall(HANDSHAKE[:-1])
    peer.read(BUFFER, 50)
    assert peer.heard_at == made
    far.sendall(HANDSHAKE[-1:])
    peer.read(BUFFER, 50)
    assert peer.heard_at > made


def test_garbage_is_an_error_of_the_other_end(pair: tuple[ZmtpPeer, socket.socket]) -> None:
    peer, far = pair
    far.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(RemoteProtocolError):
        peer.read(BUFFER, 50)
