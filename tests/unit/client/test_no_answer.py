"""What is said of an address at which no configuration manager has answered."""

from __future__ import annotations

import socket
import threading

import pytest
import zmq

import roq
from roq.client.no_answer import what_is_at
from roq.errors import Unavailable
from roq.runtime.sockets import new_context


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
