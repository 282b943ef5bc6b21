import errno
from contextlib import ExitStack
from socket import socket as new_socket

import pytest
import zmq

from roq.errors import ConfigError, Unavailable
from roq.runtime import sockets


@pytest.fixture
def context():
    context = sockets.new_context()
    yield context
    context.term()


def test_a_taken_port_is_an_error_that_says_how_to_find_the_owner(context) -> None:
    first, second = sockets.router(context), sockets.router(context)
    port = sockets.bind_port(first, "127.0.0.1", 0)
    with pytest.raises(ConfigError, match=f"port {port} .* in use.*ss -ltnp"):
        sockets.bind_port(second, "127.0.0.1", port)
    first.close()
    second.close()


def test_the_next_free_port_of_a_range_is_taken(context) -> None:
    first, second, third = (sockets.router(context) for _ in range(3))
    port = sockets.bind_port(first, "127.0.0.1", 0)
    assert sockets.bind(second, "127.0.0.1", (port, port + 30)) > port
    with pytest.raises(Unavailable, match="no free port"):
        sockets.bind(third, "127.0.0.1", (port, port + 1))
    for socket in (first, second, third):
        socket.close()


def test_ports_to_avoid_are_not_taken(context) -> None:
    socket = sockets.router(context)
    base = sockets.bind_port(socket, "127.0.0.1", 0)
    other = sockets.router(context)
    taken = sockets.bind(other, "127.0.0.1", (base, base + 50), avoid={base + 1})
    assert taken not in {base, base + 1}
    socket.close()
    other.close()


def test_an_address_of_another_machine_is_a_configuration_error(context) -> None:
    socket = sockets.router(context)
    with pytest.raises(ConfigError, match="address of this machine"):
        sockets.bind_port(socket, "203.0.113.7", 0)
    socket.close()


def test_a_port_that_this_process_may_not_have_is_not_said_to_be_in_use() -> None:
    class Refused:
        def bind(self, _endpoint: str) -> None:
            raise zmq.ZMQError(errno.EACCES)

    with pytest.raises(ConfigError, match=r"no right to port 80 .* from 1024 on"):
        sockets.bind_port(Refused(), "127.0.0.1", 80)
    with pytest.raises(ConfigError, match="no right to port 80 "):
        sockets.bind(Refused(), "127.0.0.1", (80, 90))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("[::1]", True),
     ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("example", False)],
)  # fmt: skip
def test_loopback_is_told_from_what_others_can_reach(host: str, loopback: bool) -> None:
    assert sockets.is_loopback(host) is loopback


def test_sending_to_nobody_is_false_instead_of_waiting(context) -> None:
    socket = sockets.router(context)
    assert sockets.send_to(socket, [b"nobody", b"x"]) is False
    socket.close()


def test_a_refusal_for_ports_that_rest_says_so(context) -> None:
    socket = sockets.router(context)
    try:
        with pytest.raises(Unavailable, match="2 of them are in use by this cluster or were"):
            sockets.bind(socket, "127.0.0.1", (40_001, 40_003), avoid=[40_001, 40_002])
    finally:
        socket.close(0)


def test_an_ipv6_host_may_be_written_in_full(context) -> None:
    socket = sockets.router(context)
    try:
        port = sockets.bind_port(socket, "0:0:0:0:0:0:0:1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    finally:
        socket.close()
    assert port > 0


def test_a_machine_that_takes_no_connection_is_called_again_soon(context) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(new_socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # the system drops what does not fit, as a machine that is gone does
            taken = stack.enter_context(new_socket())
            taken.setblocking(False)
            taken.connect_ex(full.getsockname())
        dealer = stack.enter_context(sockets.dealer(context))
        events = stack.enter_context(dealer.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED))
        stack.callback(dealer.disable_monitor)
        dealer.connect(f"tcp://127.0.0.1:{full.getsockname()[1]}")
        for _ in range(2):  # the system itself waits twice as long each time
            assert events.poll(15_000)
            events.recv_multipart()


# --- without libzmq -------------------------------------------------------------------------------


def test_it_listens_at_the_next_free_port_of_a_range_that_is_not_to_be_avoided() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(sockets.listen("127.0.0.1", (0, 0), ()))
        port = first.getsockname()[1]
        second = stack.enter_context(
            sockets.listen("127.0.0.1", (port, port + 50), frozenset({port + 1}))
        )
        assert port + 2 <= second.getsockname()[1] < port + 50
        assert stack.enter_context(new_socket()).connect_ex(second.getsockname()) == 0
        assert second.accept()[0].close() is None
        with pytest.raises(Unavailable, match=f"no free port .* from {port} to {port} "):
            sockets.listen("127.0.0.1", (port, port + 1), ())
        with pytest.raises(Unavailable, match=r"\(2 of them are in use by this cluster"):
            sockets.listen("127.0.0.1", (port, port + 2), {port, port + 1})


def test_whoever_has_the_port_of_all_addresses_has_that_of_one() -> None:
    with sockets.listen("0.0.0.0", (0, 0), ()) as first:
        port = first.getsockname()[1]
        with pytest.raises(Unavailable):
            sockets.listen("127.0.0.1", (port, port + 1), ())


def test_of_the_ports_that_the_system_gives_those_to_avoid_are_given_back() -> None:
    class AllButOne:
        """Avoids the first that is asked for."""

        def __init__(self) -> None:
            self.asked: list[int] = []

        def __contains__(self, port: int) -> bool:
            self.asked.append(port)
            return len(self.asked) == 1

    avoid = AllButOne()
    with sockets.listen("127.0.0.1", (0, 0), avoid) as made:
        assert made.getsockname()[1] == avoid.asked[1]
        with sockets.listen("127.0.0.1", (avoid.asked[0], avoid.asked[0] + 1), ()):
            pass


@pytest.mark.parametrize("host", ["203.0.113.7", "no address", "2001:db8::7"])
def test_an_address_that_is_none_of_this_machine_is_no_place_to_listen(host: str) -> None:
    with pytest.raises(ConfigError, match="address of this machine"):
        sockets.listen(host, (0, 0), ())


def test_a_machine_without_a_kind_of_address_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(sockets.tcp, "socket", refuse)
    with pytest.raises(ConfigError, match=r"family not supported.*address of this machine"):
        sockets.listen("::1", (0, 0), ())


def test_a_port_without_the_right_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(new_socket):
        def bind(self, _address: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(sockets.tcp, "socket", Refused)
    with pytest.raises(ConfigError, match="no right to port 80 "):
        sockets.listen("127.0.0.1", (80, 90), ())
