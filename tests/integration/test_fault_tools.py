"""The tools that make faults: exact when they pass on, sure when they break."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from roq.model import ExchangeInfo
from roq.runtime import sockets
from roq.testing.faults import FaultyNetwork, LossyLive, Relay, parse_endpoint

pytestmark = pytest.mark.integration


@contextmanager
def echo() -> Iterator[str]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                try:
                    while data := client.recv(65536):
                        client.sendall(data)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)


def connect(relay: Relay) -> socket.socket:
    return socket.create_connection(parse_endpoint(relay.address), timeout=30)


def read(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = client.recv(65536)
        if not data:
            break
        found += data
    return bytes(found)


def test_a_relay_is_exact_to_the_byte_beyond_its_buffers() -> None:
    data = os.urandom(16 * 1024 * 1024)
    with echo() as server, Relay(server, delay_seconds=0.01) as relay, connect(relay) as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        received = read(client, len(data))
        sender.join()
    assert received == data


def test_a_relay_cuts_and_takes_new_connections() -> None:
    with echo() as server, Relay(server) as relay:
        with connect(relay) as client:
            client.sendall(b"a")
            assert read(client, 1) == b"a"
            relay.cut_now()
            assert read(client, 1) == b""
        with connect(relay) as client:
            client.sendall(b"b")
            assert read(client, 1) == b"b"
        assert relay.cuts == 1


def test_a_paused_relay_passes_on_later() -> None:
    with echo() as server, Relay(server) as relay, connect(relay) as client:
        client.sendall(b"a")
        assert read(client, 1) == b"a"
        relay.pause()
        client.sendall(b"b")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        relay.resume()
        client.settimeout(30)
        assert read(client, 1) == b"b"


def test_a_lossy_fan_out_drops_batches_and_no_control_topics() -> None:
    context = sockets.new_context()
    publisher = sockets.publisher(context)
    port = sockets.bind_port(publisher, "127.0.0.1", 0)
    subscriber = sockets.subscriber(context)
    subscriber.setsockopt(zmq.RCVTIMEO, 30_000)
    with LossyLive(f"tcp://127.0.0.1:{port}", drop=0.5, seed=1) as lossy:
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        subscriber.connect(lossy.address)
        assert publisher.recv() == b"\x01"
        for number in range(200):
            publisher.send(b"t %d" % number)
            publisher.send(b"\xffE %d" % number)
        batches, control = [], []
        while len(control) < 200:
            topic, number = subscriber.recv().split()
            (control if topic == b"\xffE" else batches).append(int(number))
        assert control == list(range(200))
        assert batches == sorted(batches)
        assert len(batches) == lossy.passed - 200
        assert 50 < lossy.dropped < 150
    context.destroy(linger=0)


def test_a_faulty_network_translates_what_it_knows() -> None:
    exchange = ExchangeInfo(
        number=1,
        epoch=1,
        generation=1,
        host="h",
        data="tcp://127.0.0.1:1",
        live="tcp://127.0.0.1:2",
    )
    with FaultyNetwork() as network:
        network.add(exchange, drop=0.1)
        data, live = network.translate(exchange.data), network.translate(exchange.live)
        assert len({data, live, exchange.data, exchange.live}) == 4
        assert network.translate("tcp://127.0.0.1:3") == "tcp://127.0.0.1:3"
