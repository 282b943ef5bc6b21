"""Whoever connects to an exchange process and means ill, or dies in the middle of something."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zmq
from exchange_process import Peers, Process, Publisher, Reader, running
from waiting import eventually
from zmtp_bench import Raw

from roq.protocol import zmtp

pytestmark = pytest.mark.integration

BATCHES = 300
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for all of them: each leaves it as it was."""
    with running(tmp_path_factory.mktemp("hostile")) as process:
        yield process
        assert process.process.poll() is None
        assert process.stop() == 0
        assert "Traceback" not in process.log


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers()
    yield peers
    peers.close()


def newcomer(peers: Peers, exchange: Process, name: str) -> Publisher:
    """A publisher that this exchange does not know: what a test sends that is run once more is no
    duplicate of what it sent before."""
    return peers.publisher(exchange, f"{name[:8]}{os.urandom(4).hex()}")


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


FLOOD = """
import select, socket, sys

port, count = map(int, sys.argv[1:])
hello, _, data = sys.stdin.buffer.read().partition(b"then")
left = {}
for _ in range(count):
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(hello)
    made.setblocking(False)
    left[made] = memoryview(data)
print("there", flush=True)
while True:
    for each in select.select([], list(left), [])[1]:
        left[each] = left[each][each.send(left[each]):] or memoryview(data)
"""


@contextmanager
def flooding(port: int, count: int, data: bytes) -> Iterator[None]:
    """So many connections that send this again and again as fast as they can, and read nothing."""
    with subprocess.Popen(
        [sys.executable, "-S", "-P", "-c", FLOOD, str(port), str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(zmtp.GREETING + zmtp.ready(b"DEALER") + b"then" + data)
        process.stdin.close()
        assert process.stdout.readline() == b"there\n"
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


def slowest(publisher: Publisher, count: int) -> float:
    """Seconds that a batch waited at most for its acknowledgement, of so many in turn."""
    most = 0.0
    for _ in range(count):
        began = time.monotonic()
        publisher.send(b"x")
        publisher.settle()
        most = max(most, time.monotonic() - began)
    return most


TINY = b"\x00\x01x"
FLOODS = {
    "tiny messages": TINY * 20_000,
    "a message without an end": b"\x01\x00" * 30_000,
    "empty commands": b"\x04\x00" * 30_000,
    "questions for a sign of life": zmtp.command(b"PING", b"\0\0" + b"c" * 16) * 3_000,
    "large frames of no meaning": zmtp.head(4 * MEGABYTE) + b"x" * (4 * MEGABYTE),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_whoever_floods_it_is_read_beside_the_others(
    exchange: Process, peers: Peers, flood: str
) -> None:
    publisher = newcomer(peers, exchange, flood)
    with flooding(port_of(exchange.data), 3, FLOODS[flood]):
        waited = [slowest(publisher, 5) for _ in range(3)]
    # A turn has a bound, so none waits for more than a few of them; half a second is for a machine
    # that does other work.
    assert min(waited) < 0.5


def test_who_overfills_it_while_it_is_busy_and_dies_ends_nothing(
    exchange: Process, peers: Peers
) -> None:
    """With libzmq this ended the process (docs/decisions/0009)."""
    publisher = newcomer(peers, exchange, "beside")
    raws = [Raw(port_of(exchange.data), b"DEALER") for _ in range(2)]
    foreign = peers.dealer(exchange.data)
    foreign.setsockopt(zmq.SNDHWM, 20_000)
    publisher.send(b"before")
    publisher.settle()
    os.kill(exchange.process.pid, signal.SIGSTOP)
    try:
        assert raws[0].fill() > 100_000
        raws[1].send(TINY * 20_000)
        for _ in range(5_000):
            foreign.send(b"x" * 1_000, zmq.NOBLOCK)
        raws[0].reset()
        raws[1].socket.close()
        foreign.close(0)
        publisher.send(b"meanwhile")
    finally:
        os.kill(exchange.process.pid, signal.SIGCONT)
    publisher.settle()
    slowest(publisher, 20)


def test_what_is_only_announced_takes_no_memory(exchange: Process, peers: Peers) -> None:
    publisher = newcomer(peers, exchange, "announced")
    before = resident(exchange)
    raws = [Raw(port_of(exchange.data), b"DEALER") for _ in range(100)]
    for raw in raws:
        raw.send(zmtp.head(64 * MEGABYTE) + b"x" * 1_000)
    slowest(publisher, 20)
    assert resident(exchange) - before < 100 * MEGABYTE  # of 6,400
    for raw in raws:
        raw.reset()


def resident(process: Process) -> int:
    """Bytes."""
    pages = Path(f"/proc/{process.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


@pytest.mark.long
def test_a_subscriber_with_too_many_subscriptions_is_sent_away_and_the_others_are_served(
    exchange: Process, peers: Peers
) -> None:
    publisher, reader = newcomer(peers, exchange, "many"), peers.reader(exchange, b"t")
    greedy = Raw(port_of(exchange.live), b"SUB")
    several = b"".join(zmtp.command(b"SUBSCRIBE", b"n%d" % each) for each in range(101_000))

    def subscribe() -> None:
        with suppress(OSError):
            greedy.send(several)

    asking = threading.Thread(target=subscribe, daemon=True)
    asking.start()
    most = 0.0
    while not greedy.ended():
        most = max(most, delivered(publisher, reader))
    asking.join()
    greedy.socket.close()
    assert max(most, delivered(publisher, reader)) < 5.0


def delivered(publisher: Publisher, reader: Reader) -> float:
    """Seconds from a batch's being sent to its being heard."""
    began = time.monotonic()
    publisher.send(b"%d" % publisher.number)
    assert reader.payload() == b"%d" % (publisher.number - 1)
    publisher.settle()
    return time.monotonic() - began


def test_connections_that_say_nothing_or_garbage_disturb_nobody(
    exchange: Process, peers: Peers
) -> None:
    publisher, reader = newcomer(peers, exchange, "garbage"), peers.reader(exchange, b"t")
    crowd = []
    for number in range(200):
        raw = Raw(port_of(exchange.live if number % 2 else exchange.data))
        raw.send([b"", b"GET / HTTP/1.1\r\n\r\n", zmtp.GREETING[:40], os.urandom(200)][number % 4])
        if number % 8 < 4:
            raw.reset()
        else:
            crowd.append(raw)
    assert delivered(publisher, reader) < 5.0
    eventually(lambda: all(raw.ended() for raw in crowd[1::4]), "garbage ends its connection")
    for raw in crowd:
        raw.socket.close()
