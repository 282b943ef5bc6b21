"""What goes wrong between a client and an exchange goes wrong as it was asked for, and no worse."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import zmq
from waiting import eventually

from roq.model import ExchangeInfo
from roq.testing.faults import BUFFER_BYTES, FaultyNetwork, LossyLive, Relay, parse_endpoint


class Echo:
    """A server that gives back what it gets, in capitals."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65_536):
                connection.sendall(data.upper())

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as made:
        yield made


def connect(address: str) -> socket.socket:
    return socket.create_connection(parse_endpoint(address), timeout=30)


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    found = b""
    while len(found) < len(data) and (more := client.recv(65_536)):
        found += more
    return found


def ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("endpoint", "found"),
    [("tcp://127.0.0.1:5", ("127.0.0.1", 5)), ("tcp://[::1]:65535", ("::1", 65_535)),
     ("host:7", ("host", 7))],
)  # fmt: skip
def test_an_endpoint_has_a_host_and_a_port(endpoint: str, found: tuple[str, int]) -> None:
    assert parse_endpoint(endpoint) == found


def test_what_passes_a_relay_is_exact_in_both_directions_for_each_client(echo: Echo) -> None:
    with Relay(echo.address) as relay, connect(relay.address) as one, connect(relay.address) as two:
        large = b"x" * (2 * BUFFER_BYTES)
        sender = threading.Thread(target=one.sendall, args=(large,))
        sender.start()
        assert ask(two, b"two") == b"TWO"
        found = 0
        while found < len(large):
            found += len(one.recv(1 << 20))
        sender.join()
        assert found == len(large)
        assert relay.cuts == 0


def test_a_cut_breaks_all_that_there_are_and_lets_new_ones_in(echo: Echo) -> None:
    with Relay(echo.address) as relay, connect(relay.address) as one, connect(relay.address) as two:
        assert (ask(one, b"a"), ask(two, b"b")) == (b"A", b"B")
        relay.cut_now()
        assert ended(one)
        assert ended(two)
        assert relay.cuts == 2
        with connect(relay.address) as three:
            assert ask(three, b"c") == b"C"


def test_cuts_come_again_and_again_if_that_is_wanted(echo: Echo) -> None:
    with Relay(echo.address, cut_every_seconds=0.02) as relay:
        for _ in range(3):
            with connect(relay.address) as client:
                assert ended(client)
        eventually(lambda: relay.cuts >= 3)


def test_while_it_pauses_nothing_passes_and_afterwards_all_of_it_does(echo: Echo) -> None:
    with Relay(echo.address) as relay, connect(relay.address) as client:
        assert ask(client, b"a") == b"A"
        relay.pause()
        with connect(relay.address) as later:
            later.sendall(b"b")
            client.sendall(b"c")
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(1)
            relay.resume()
            client.settimeout(30)
            assert (client.recv(1), later.recv(1)) == (b"C", b"B")


@pytest.mark.parametrize("way", ["delay_seconds", "upstream_delay_seconds"])
def test_what_is_delayed_does_not_come_before_its_time(echo: Echo, way: str) -> None:
    with Relay(echo.address, **{way: 0.2}) as relay, connect(relay.address) as client:
        begun = time.monotonic()
        assert ask(client, b"a") == b"A"
        assert time.monotonic() - begun >= 0.2
        relay.set_delay(0.0)
        assert ask(client, b"b") == b"B"


def test_a_target_that_does_not_answer_ends_the_connection_and_the_relay_goes_on(
    echo: Echo,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Relay(f"tcp://127.0.0.1:{port}") as relay:
        for _ in range(2):
            with connect(relay.address) as client:
                assert ended(client)


def test_the_end_of_one_side_is_the_end_of_the_other_and_of_the_relay_the_end_of_all(
    echo: Echo,
) -> None:
    relay = Relay(echo.address)
    with connect(relay.address) as client:
        assert ask(client, b"a") == b"A"
        relay.close()
        relay.close()
        assert ended(client)
    with pytest.raises(ConnectionError):
        connect(relay.address)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


def dropped(context: zmq.Context[zmq.Socket[bytes]], seed: int, drop: float) -> list[int]:
    """The numbers of the batches that do not come through, of 100."""
    with context.socket(zmq.XPUB) as out, context.socket(zmq.SUB) as reader:
        port = out.bind_to_random_port("tcp://127.0.0.1")
        return missed(out, reader, LossyLive(f"tcp://127.0.0.1:{port}", drop=drop, seed=seed))


def missed(out: zmq.Socket[bytes], reader: zmq.Socket[bytes], through: LossyLive) -> list[int]:
    with through as lossy:
        reader.connect(lossy.address)
        for prefix in (b"t", b"\xffE"):
            reader.setsockopt(zmq.SUBSCRIBE, prefix)
            assert out.recv() == b"\x01" + prefix
        for number in range(100):
            out.send(b"t%d" % number)
            out.send(b"\xffE%d" % number)
        ends, found = 0, set[int]()
        while ends < 100:
            frame = reader.recv()
            ends += frame.startswith(b"\xffE")
            if frame.startswith(b"t"):
                found.add(int(frame[1:]))
        lost = sorted(set(range(100)) - found)
        assert (lossy.dropped, lossy.passed) == (len(lost), 100 - len(lost) + 100)
        return lost


def test_batches_are_dropped_by_chance_and_the_same_ones_for_a_seed_and_no_control_topic(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    first = dropped(context, 1, 0.3)
    assert 10 < len(first) < 60
    assert dropped(context, 1, 0.3) == first
    assert dropped(context, 2, 0.3) != first
    assert dropped(context, 1, 0.0) == []


def test_a_client_is_told_other_addresses_of_an_exchange_and_no_others(echo: Echo) -> None:
    info = ExchangeInfo(
        number=1, epoch=1, generation=1, host="h", data=echo.address, live="tcp://127.0.0.1:1"
    )
    with FaultyNetwork() as network:
        network.add(info, delay_seconds=0.01)
        assert (len(network.relays), network.lossy) == (2, [])
        assert [each.delay_seconds for each in network.relays] == [0.01, 0.01]
        data = network.translate(echo.address)
        assert data != echo.address
        assert network.translate(info.live) != info.live
        assert network.translate("tcp://127.0.0.1:9") == "tcp://127.0.0.1:9"
        with connect(data) as client:
            assert ask(client, b"a") == b"A"
    with pytest.raises(ConnectionError):
        connect(data)


def test_a_lossy_exchange_has_a_fan_out_of_its_own_before_the_relay(echo: Echo) -> None:
    info = ExchangeInfo(
        number=1, epoch=1, generation=1, host="h", data=echo.address, live="tcp://127.0.0.1:1"
    )
    with FaultyNetwork() as network:
        network.add(info, drop=0.5, cut_every_seconds=60.0)
        (lossy,) = network.lossy
        assert [each.cut_every_seconds for each in network.relays] == [60.0, 60.0]
        assert lossy.address not in (network.translate(info.live), info.live)
        assert network.relays[0]._target == parse_endpoint(lossy.address)
