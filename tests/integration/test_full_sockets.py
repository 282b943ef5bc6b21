"""Whoever does not read what comes outlives the death of whoever sends it.

libzmq 4.3.5 ends the process (`Assertion failed: !_io_error`) when a socket is full, its peer dies,
and a heartbeat is due.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from commands import until

import roq
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

SUPPORT = Path(__file__).resolve().parents[1] / "support"

SLOW_SUBSCRIBER = """
import sys, time
import roq
from roq.client.session.events import Cause

with roq.connect(sys.argv[1]) as cluster:
    subscriber = cluster.subscriber("flood")
    print("there", flush=True)
    sys.stdin.readline()  # reads nothing meanwhile
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = subscriber.receive(1)
        if message is not None and message.payload == b"last":
            print("last", flush=True)
            break
"""

BUSY_EXCHANGE = """
import sys
sys.path.insert(0, sys.argv[1])
from fake_control import FakeControl, ThreadExchange
from roq.model import Limits

control = FakeControl(limits=Limits(window_batches=64))
exchange = ThreadExchange(control)
control.exchanges = [exchange.info]
print(control.address, flush=True)
sys.stdin.readline()
released = exchange.freeze()
print("busy", flush=True)
sys.stdin.readline()
released.set()
exchange.kill()
control.close()
print("over", flush=True)
"""

PUBLISHER = """
import os, sys
from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.errors import WouldBlock

engine = Engine()
engine.start()
publisher = Publisher(engine, [sys.argv[1]], "orders", publisher_id=os.urandom(16), block=False)
print("there", flush=True)
sys.stdin.readline()
try:
    while True:
        publisher.publish(b"x" * 60_000)
except WouldBlock:
    print("full", flush=True)
sys.stdin.readline()
"""

FLOOD = 2_500
"""Batches: more than the socket of a subscriber that reads nothing holds."""
PAYLOAD = b"x" * 60_000
"""A batch of its own; all of them are more than a subscriber keeps for its application."""


def test_a_subscriber_that_reads_nothing_outlives_its_exchange(emptied: RunningCluster) -> None:
    with emptied.connect() as connection:
        connection.create_queue("flood", limits={"exchanges_max": 1})
        publisher = connection.publisher("flood")
        with process(SLOW_SUBSCRIBER, emptied.address) as slow:
            assert said(slow) == "there"
            publisher.publish_many([PAYLOAD] * FLOOD)
            publisher.flush(60)
            before = connection.exchanges("flood")[0].pid
            os.kill(before, signal.SIGKILL)
            assert until(partial(serves_again, connection, before))
            publisher.publish_many([PAYLOAD] * FLOOD)
            publisher.flush(60)
            publisher.publish(b"last").wait(60)
            assert told(slow) == "last"
            assert slow.wait(30) == 0
        publisher.close()


def test_an_exchange_that_is_busy_outlives_a_publisher_with_a_full_window() -> None:
    with process(BUSY_EXCHANGE, str(SUPPORT)) as exchange:
        with process(PUBLISHER, said(exchange)) as publisher:
            assert said(publisher) == "there"
            assert told(exchange) == "busy"
            assert told(publisher) == "full"
            # All of it has arrived, and nobody reads it, when the connection is reset.
            with pytest.raises(subprocess.TimeoutExpired):
                exchange.wait(1.0)
            publisher.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            exchange.wait(3.0)  # several heartbeats
        assert told(exchange) == "over"
        assert exchange.wait(30) == 0


def serves_again(connection: roq.Cluster, before: int) -> bool:
    return connection.exchanges("flood")[0].pid not in {0, before}


@contextmanager
def process(script: str, argument: str) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own, which is told and tells lines."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, argument],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as made:  # fmt: skip
        try:
            yield made
        finally:
            made.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def told(process: subprocess.Popen[str]) -> str:
    """What it says when it is told to go on."""
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()
    return said(process)


BUSY_SERVER = """
import sys, time
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcServer

reactor, context = Reactor(), sockets.new_context()
router = sockets.router(context)
port = sockets.bind_port(router, "127.0.0.1", 0)
taken = []
server = RpcServer(reactor, router, lambda peer, data: taken.append(data))
print(f"tcp://127.0.0.1:{port}", flush=True)
sys.stdin.readline()  # busy with something else meanwhile
reactor.call_later(0.5, reactor.stop)
reactor.run()
server.close()
context.term()
print("over" if taken else "nothing came", flush=True)
"""

FLOODING_CLIENT = """
import sys
import zmq

context = zmq.Context()
socket = context.socket(zmq.DEALER)
socket.setsockopt(zmq.SNDHWM, 10_000)
socket.connect(sys.argv[1])
for _ in range(5_000):
    socket.send(b"x" * 1_000)
print("sent", flush=True)
sys.stdin.readline()
"""


def test_a_server_that_is_busy_outlives_a_client_that_sends_too_much() -> None:
    with process(BUSY_SERVER, "") as server:
        with process(FLOODING_CLIENT, said(server)) as client:
            assert said(client) == "sent"
            with pytest.raises(subprocess.TimeoutExpired):
                server.wait(1.0)
            client.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(3.0)  # several heartbeats
        assert told(server) == "over"
        assert server.wait(30) == 0
