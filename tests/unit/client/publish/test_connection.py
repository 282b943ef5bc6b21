"""The connection of a link; what goes over it is tested with the publisher."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from queue import SimpleQueue
from threading import Thread

from roq.client.io.engine import Engine
from roq.client.publish.connection import Connection
from roq.protocol import documents, zmtp
from roq.protocol.channel import REFUSED as REFUSED_LETTER
from roq.protocol.channel import Refused
from roq.protocol.version import WIRE_VERSION
from roq.runtime.lifeline import NOT_GREETED, REFUSED

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
