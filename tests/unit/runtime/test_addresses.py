"""Addresses as people write them."""

from __future__ import annotations

import socket
import threading

import pytest
import zmq

import roq
from roq.errors import InvalidRequest, Unavailable
from roq.runtime.addresses import parse_addresses, what_is_at
from roq.runtime.sockets import new_context


@pytest.mark.parametrize(
    ("given", "endpoints"),
    [
        ("127.0.0.1:5000", ["tcp://127.0.0.1:5000"]),
        ("localhost", ["tcp://localhost:5000"]),
        ("tcp://a.b:7", ["tcp://a.b:7"]),
        ("[::1]:6000", ["tcp://[::1]:6000"]),
        ("[::1]", ["tcp://[::1]:5000"]),
        ("::1", ["tcp://[::1]:5000"]),
        ("a:1, b:2,,", ["tcp://a:1", "tcp://b:2"]),
        (["a:1", "b:2", "a:1"], ["tcp://a:1", "tcp://b:2"]),
    ],
)
def test_the_usual_forms_are_understood(given: str | list[str], endpoints: list[str]) -> None:
    assert parse_addresses(given) == endpoints


@pytest.mark.parametrize(
    "given",
    [
        "", [], ",", "a:b", "a:0", "a:65536", "[::1", "[::1]x", ":5000", "a b:1", "ipc:///x",
        "\ud800:1", "a\0:1", "a\nb:1",
    ],
)  # fmt: skip
def test_anything_else_is_refused(given: str | list[str]) -> None:
    with pytest.raises(InvalidRequest):
        parse_addresses(given)


@pytest.mark.parametrize("given", [None, [None], ["a:1", 5], [b"a:1"]])
def test_what_is_no_text_is_no_address(given: str) -> None:
    with pytest.raises(TypeError, match="an address is text, host:port, not "):
        roq.connect(given)


def test_a_port_at_which_nothing_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and not listened at
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        assert what_is_at([address]) == f" Nothing listens at {address[6:]}."
        with pytest.raises(Unavailable, match=r"no configuration manager.*Nothing listens at"):
            roq.connect(address, timeout=0.3)


def test_a_port_of_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-server\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        told = what_is_at([f"tcp://127.0.0.1:{server.getsockname()[1]}"])
        thread.join(20)
    assert "is not RoQ" in told


def test_another_port_of_roq() -> None:
    context = new_context()
    try:
        server = context.socket(zmq.PUB)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        assert "another port of RoQ" in what_is_at([f"tcp://127.0.0.1:{port}"])
    finally:
        context.destroy(0)


@pytest.mark.parametrize("name", ["no such host", "a" * 70])
def test_a_name_that_no_host_has(name: str) -> None:
    told = what_is_at([f"tcp://{name}:1"])
    assert told == f" There is no host of this name: {name}:1."


def test_something_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        shown = f"127.0.0.1:{server.getsockname()[1]}"
        assert what_is_at([f"tcp://{shown}"]) == f" No RoQ answers at {shown}."
