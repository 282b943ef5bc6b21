"""What a caller who sends on and on leaves, and when it is held; and how one connection begins."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from queue import SimpleQueue
from threading import Thread
from typing import cast

import pytest

from roq.client.io.engine import Engine
from roq.client.publish.connections import (
    ATTENDED_SECONDS,
    HERE_SECONDS,
    HOLD_BYTES,
    HOLD_SECONDS,
    Connection,
    Connections,
)
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Receipt
from roq.client.publish.topics import Stream
from roq.protocol import documents, zmtp
from roq.protocol.channel import REFUSED as REFUSED_LETTER
from roq.protocol.channel import Refused
from roq.protocol.version import WIRE_VERSION
from roq.runtime.lifeline import NOT_GREETED, REFUSED

LINK = 1
SMALL = b"x" * (HOLD_BYTES // 4)
STREAM = Stream("topic", b"topic")
SOON = HOLD_SECONDS / 2


class Sink:
    """A connection that keeps what it is given."""

    def __init__(self) -> None:
        self.link = LINK
        self.put: list[bytes] = []
        self.sent: list[bytes] = []

    def put_batch(self, topic: bytes, batch: bytes) -> None:
        assert topic == STREAM.data
        self.put.append(batch)

    @property
    def unsent(self) -> int:
        return sum(map(len, self.put))

    def flush(self) -> bool:
        self.sent += self.put
        self.put.clear()
        return True


def batch(data: bytes = SMALL) -> PendingBatch:
    return PendingBatch(
        STREAM, data, link_number=1, first_sequence=0, count=1,
        receipt=cast("Receipt", None), sealed_at=0.0,
    )  # fmt: skip


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def connections(sink: Sink) -> Iterator[Connections]:
    engine = Engine()
    engine.start()
    made = Connections(engine)
    made.add(cast("Connection", sink))
    yield made
    engine.close()


def test_small_batches_of_a_busy_caller_leave_together(
    connections: Connections, sink: Sink
) -> None:
    left = []
    for number in range(9):
        assert connections.transmit(LINK, [batch()], 10.0 + number * SOON, HOLD_BYTES)
        left.append(len(sink.sent))
    # The first finds nobody who was here; then four of them make one piece.
    assert left == [1, 1, 1, 1, 5, 5, 5, 5, 9]


@pytest.mark.parametrize(
    ("later", "under_way"), [(2 * HOLD_SECONDS, HOLD_BYTES), (SOON, HOLD_BYTES - 1), (SOON, 0)]
)
def test_nothing_is_held_of_who_comes_seldom_or_has_little_under_way(
    connections: Connections, sink: Sink, later: float, under_way: int
) -> None:
    connections.transmit(LINK, [batch()], 10.0, under_way)
    connections.transmit(LINK, [batch()], 10.0 + later, under_way)
    assert len(sink.sent) == 2
    assert not connections.holding


def test_nothing_is_held_where_more_than_an_acknowledgement_is_waited_for(
    connections: Connections, sink: Sink
) -> None:
    connections.holds = False
    for number in range(3):
        connections.transmit(LINK, [batch()], 10.0 + number * SOON, HOLD_BYTES)
    assert len(sink.sent) == 3


def test_what_is_held_is_sent_by_who_looks_in(connections: Connections, sink: Sink) -> None:
    connections.transmit(LINK, [batch()], 10.0, HOLD_BYTES)
    connections.transmit(LINK, [batch()], 10.0 + SOON, HOLD_BYTES)
    assert len(sink.put) == 1
    assert not connections.attended(10.0)  # the first look is a whole one
    assert connections.attended(10.0 + SOON)
    assert not sink.put
    assert not connections.holding


def test_what_is_held_is_not_forgotten_if_a_signal_handler_ends_the_sending(
    connections: Connections, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections.transmit(LINK, [batch()], 10.0, HOLD_BYTES)
    connections.transmit(LINK, [batch()], 10.0 + SOON, HOLD_BYTES)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sink, "flush", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connections.flush()
    connections.flush()
    assert not sink.put


def test_who_has_gone_is_not_there(connections: Connections) -> None:
    connections.transmit(LINK, [batch()], 10.0)
    assert not connections.attended(10.0)
    assert connections.attended(10.0 + HERE_SECONDS)
    assert not connections.attended(10.0 + 2 * HERE_SECONDS)


def test_now_and_then_somebody_else_looks_all_the_same(connections: Connections) -> None:
    connections.transmit(LINK, [batch()], 10.0)
    assert not connections.attended(10.0)
    connections.transmit(LINK, [batch()], 10.0 + 2 * ATTENDED_SECONDS)
    assert not connections.attended(10.0 + 2 * ATTENDED_SECONDS)


def test_who_judges_exchanges_by_how_soon_they_answer_is_held_up_by_nothing(
    connections: Connections, sink: Sink
) -> None:
    prompt = Connections(connections._engine, prompt=True)
    prompt.add(cast("Connection", sink))
    for now in (10.0, 10.0 + SOON):
        assert prompt.transmit(LINK, [batch()], now, HOLD_BYTES)
        assert not prompt.attended(now)
    assert len(sink.sent) == 2


def test_without_a_connection_nothing_is_taken(connections: Connections) -> None:
    assert not connections.transmit(LINK + 1, [batch()], 10.0)


SECONDS = 10.0


def reason_at(port: int) -> str:
    """Why a connection to this port has ended."""
    reasons: SimpleQueue[str] = SimpleQueue()
    engine = Engine()
    engine.start()
    try:
        connection = engine.run_sync(
            lambda: Connection(
                engine,
                1,
                f"tcp://127.0.0.1:{port}",
                lock=nullcontext(),
                on_readable=lambda _: None,
                on_lost=lambda _, reason: reasons.put(reason),
            )
        )
        return reasons.get(timeout=SECONDS)
    finally:
        engine.run_sync(connection.close)
        engine.close()


def test_where_nobody_listens_it_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert REFUSED in reason_at(port)


def test_what_is_no_exchange_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        port = server.getsockname()[1]
        reasons: SimpleQueue[str] = SimpleQueue()
        thread = Thread(target=lambda: reasons.put(reason_at(port)))
        thread.start()
        stranger, _ = server.accept()
        with stranger:
            stranger.sendall(b"HTTP/1.1 400 Bad Request")
            assert NOT_GREETED in reasons.get(timeout=SECONDS)
        thread.join(SECONDS)


def test_who_waits_is_told_of_the_descriptor_as_soon_as_it_stands() -> None:
    told: SimpleQueue[int] = SimpleQueue()
    engine = Engine()
    engine.start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        connection = engine.run_sync(
            lambda: Connection(
                engine,
                1,
                f"tcp://127.0.0.1:{server.getsockname()[1]}",
                lock=nullcontext(),
                on_readable=lambda connection: told.put(connection.fd),
                on_lost=lambda *_: told.put(-1),
            )
        )
        try:
            engine.run_sync(lambda: connection.watch(wanted=False))
            exchange, _ = server.accept()
            with exchange:
                exchange.sendall(zmtp.GREETING + zmtp.ready(b"ROUTER"))
                assert told.get(timeout=SECONDS) >= 0
        finally:
            engine.run_sync(connection.close)
            engine.close()


def test_an_exchange_of_version_1_has_refused_and_both_versions_are_named() -> None:
    said: SimpleQueue[list[list[bytes]]] = SimpleQueue()
    engine = Engine()
    engine.start()

    def readable(connection: Connection) -> None:
        found = connection.receive(10)
        if found:
            said.put(found)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        connection = engine.run_sync(
            lambda: Connection(
                engine,
                1,
                f"tcp://127.0.0.1:{server.getsockname()[1]}",
                lock=nullcontext(),
                on_readable=readable,
                on_lost=lambda _, reason: said.put([[reason.encode()]]),
            )
        )
        try:
            exchange, _ = server.accept()
            with exchange:
                exchange.sendall(zmtp.GREETING + zmtp.ready(b"ROUTER"))
                exchange.sendall(zmtp.head(1, zmtp.MORE) + b"R" + zmtp.head(2) + b"{}")
                ((letter, document),) = said.get(timeout=SECONDS)
        finally:
            engine.run_sync(connection.close)
            engine.close()
    assert letter == REFUSED_LETTER
    refused = documents.decode(document, Refused)
    assert refused.code == "version"
    assert "the exchange speaks version 1 " in refused.text
    assert f"this side version {WIRE_VERSION}:" in refused.text
