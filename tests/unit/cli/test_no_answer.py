"""What is at an address at which no configuration manager answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from roq.cli.no_answer import what_is_at
from roq.errors import RemoteProtocolError
from roq.protocol import documents
from roq.protocol.control import Health, HealthRequest
from roq.runtime.sockets import new_context


@contextmanager
def serving(kind: int, serve: Callable[[zmq.Socket[bytes]], None]) -> Iterator[str]:
    """A socket of this kind in a thread of its own; `serve` is called when something has come."""
    context = new_context()
    server = context.socket(kind)
    port = server.bind_to_random_port("tcp://127.0.0.1")
    ended = threading.Event()

    def loop() -> None:
        while not ended.is_set():
            if server.poll(20):
                serve(server)
        server.close(0)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        ended.set()
        thread.join(20)
        context.destroy(0)


def management(server: zmq.Socket[bytes]) -> None:
    *envelope, _ = server.recv_multipart()
    answer = {"RESULT": 1101, "COMMENT": "INVALID CMD Value"}
    server.send_multipart([*envelope, documents.encode_raw(answer)])


def broadcast(server: zmq.Socket[bytes]) -> None:
    server.recv()
    server.send_multipart([documents.encode_raw({"CMD": 1500, "CMD_ID": 1500, "Version": 1})] * 3)


def statistics(server: zmq.Socket[bytes]) -> None:
    server.recv()
    server.send_multipart([documents.encode_raw({"CMD": 23, "QName": "orders"})])


def silent(server: zmq.Socket[bytes]) -> None:
    server.recv_multipart()


def host(server: zmq.Socket[bytes]) -> None:
    *envelope, frame = server.recv_multipart()
    with contextlib.suppress(RemoteProtocolError):
        asked = documents.decode(frame, HealthRequest)
        answer = Health(id=asked.id, role="host", name="h", ready=True, state="serving")
        server.send_multipart([*envelope, documents.encode(answer)])


@pytest.mark.parametrize(
    ("kind", "serve", "text"),
    [
        (zmq.ROUTER, management, "is the management port of a configuration manager"),
        (zmq.XPUB, broadcast, "is the broadcast port of a configuration manager"),
        (zmq.XPUB, statistics, "is the statistics port of a queue"),
        (zmq.ROUTER, host, "is the control port of a host manager"),
        (zmq.ROUTER, silent, "speaks ZeroMQ, but is no configuration manager"),
    ],
)
def test_another_port_of_roq_is_named(
    kind: int, serve: Callable[[zmq.Socket[bytes]], None], text: str
) -> None:
    with serving(kind, serve) as endpoint:
        told = what_is_at(endpoint)
    assert told.startswith(endpoint.removeprefix("tcp://"))
    assert text in told
    assert "5000" in told


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert what_is_at(f"tcp://127.0.0.1:{port}") == f"nothing listens at 127.0.0.1:{port}"


def test_what_is_not_zeromq_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet() -> None:
            with server.accept()[0] as client:
                client.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        told = what_is_at(f"tcp://127.0.0.1:{port}")
        thread.join(20)
    assert "not RoQ" in told


def test_what_says_nothing_is_no_roq() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert what_is_at(f"tcp://127.0.0.1:{port}") == f"no RoQ answers at 127.0.0.1:{port}"


def test_a_name_that_cannot_be_encoded_is_no_host() -> None:
    name = "a" * 70
    assert what_is_at(f"tcp://{name}:1") == f"there is no host of this name: {name}:1"
