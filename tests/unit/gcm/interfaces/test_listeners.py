"""Rules are pushed to those who listen; none of them is waited for."""

from collections.abc import Iterator

import pytest
import zmq

from roq.gcm.interfaces.listeners import UPDATES_MAX, Listeners


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    made = Listeners()
    yield made
    made.close()


@pytest.fixture
def pull() -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.setsockopt(zmq.RCVTIMEO, 30_000)
    yield socket
    context.destroy(linger=0)


def bound(pull: zmq.Socket[bytes]) -> str:
    return f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}"


def test_every_update_reaches_a_listener_in_order(
    listeners: Listeners, pull: zmq.Socket[bytes]
) -> None:
    address = bound(pull)
    sent = [b"%d" % number for number in range(5)]
    assert all(listeners.push(address, data) for data in sent)
    assert [pull.recv() for _ in sent] == sent


def test_one_that_does_not_read_is_forgotten_with_the_first_update_that_finds_no_room(
    listeners: Listeners, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = "tcp://127.0.0.1:1"
    assert [listeners.push(nobody, b"x") for _ in range(UPDATES_MAX + 1)] == [
        *[True] * UPDATES_MAX, False,
    ]  # fmt: skip
    assert f"listener {nobody} does not read and is forgotten" in caplog.text
    assert listeners.push(nobody, b"x"), "it may have come back, and has all the room again"


def test_one_that_does_not_read_holds_nobody_up(
    listeners: Listeners, pull: zmq.Socket[bytes]
) -> None:
    for _ in range(2 * UPDATES_MAX):
        listeners.push("tcp://127.0.0.1:1", b"x")
    address = bound(pull)
    for number in range(UPDATES_MAX):
        assert listeners.push(address, b"%d" % number)
        assert pull.recv() == b"%d" % number


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1", "ipx://a:1", ""])
def test_what_is_no_address_is_told_and_not_kept(
    listeners: Listeners, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not listeners.push(address, b"x")
    assert f"cannot push rules to {address}" in caplog.text
    listeners.forget(address)


def test_a_forgotten_listener_holds_nothing_any_more(listeners: Listeners) -> None:
    for _ in range(2):
        assert all(listeners.push("tcp://127.0.0.1:1", b"x") for _ in range(UPDATES_MAX))
        listeners.forget("tcp://127.0.0.1:1")


def test_the_end_waits_for_nobody_and_may_come_twice(listeners: Listeners) -> None:
    for _ in range(3):
        listeners.push("tcp://127.0.0.1:1", b"x")
    listeners.close()
    listeners.close()
