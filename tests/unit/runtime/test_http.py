"""The HTTP server for machines: short requests, one answer, and nobody can hold it up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from roq.errors import ConfigError
from roq.runtime import http
from roq.runtime.http import HttpServer, Response

SECONDS = 10.0


def respond(path: str) -> Response:
    if path == "/crash":
        raise RuntimeError(path)
    if path == "/large":
        return Response(200, b"x" * 5_000_000)
    return Response(200, f"you asked for {path}".encode())


@pytest.fixture
def server() -> Iterator[HttpServer]:
    made = HttpServer("127.0.0.1", 0, respond)
    made.start()
    yield made
    made.close()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), SECONDS)


def answer(connection: socket.socket) -> bytes:
    """All that comes until the end."""
    received = b""
    while data := connection.recv(65_536):
        received += data
    return received


def ask(server: HttpServer, request: bytes) -> tuple[int, bytes]:
    with connect(server) as connection:
        connection.sendall(request)
        head, _, body = answer(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_a_request_gets_one_answer_and_the_connection_ends(server: HttpServer) -> None:
    status, body = ask(server, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (status, body) == (200, b"you asked for /metrics")


def test_head_has_no_body(server: HttpServer) -> None:
    assert ask(server, b"HEAD /metrics HTTP/1.1\r\n\r\n") == (200, b"")


def test_a_request_may_come_byte_by_byte(server: HttpServer) -> None:
    with connect(server) as connection:
        for byte in b"GET / HTTP/1.0\r\n\r\n":
            connection.send(bytes([byte]))
        assert answer(connection).endswith(b"you asked for /")


def test_a_large_answer_arrives_whole(server: HttpServer) -> None:
    assert len(ask(server, b"GET /large HTTP/1.1\r\n\r\n")[1]) == 5_000_000


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / SPDY/3\r\n\r\n", 400),
        (b"\xff\xfe\r\n\r\n", 400),
        (b"GET /" + b"a" * 9_000, 431),
        (b"GET /crash HTTP/1.1\r\n\r\n", 500),
    ],
)
def test_what_is_wrong_gets_an_answer_as_well(
    server: HttpServer, request_bytes: bytes, status: int
) -> None:
    assert ask(server, request_bytes)[0] == status
    assert ask(server, b"GET / HTTP/1.1\r\n\r\n")[0] == 200


def test_clients_that_say_nothing_hold_nobody_up(server: HttpServer) -> None:
    with ExitStack() as silent:
        for _ in range(http.CONNECTIONS_MAX + 5):
            silent.enter_context(connect(server))
        assert ask(server, b"GET / HTTP/1.1\r\n\r\n")[0] == 200


def test_a_client_that_reads_nothing_is_dropped(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 0.05)
    with connect(server) as lazy:
        lazy.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert lazy.recv(1) == b"H"  # from here on it reads nothing
        monkeypatch.undo()  # others have the usual time
        assert ask(server, b"GET / HTTP/1.1\r\n\r\n")[0] == 200
        # Which of the two it is depends on who is faster.
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            lazy.sendall(b"x" * 100_000_000)


def test_a_flood_is_answered_in_the_end(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ACCEPTED_PER_SECOND", 3)
    statuses = [ask(server, b"GET / HTTP/1.1\r\n\r\n")[0] for _ in range(5)]
    assert statuses == [200] * 5


def test_a_port_in_use_is_a_wrong_setting(server: HttpServer) -> None:
    with pytest.raises(ConfigError, match=f"port {server.port}"):
        HttpServer("127.0.0.1", server.port, respond)


@pytest.mark.parametrize("bind", ["192.0.2.1", "no.such.name.invalid"])
def test_an_address_of_another_machine_is_a_wrong_setting(bind: str) -> None:
    with pytest.raises(ConfigError, match=bind):
        HttpServer(bind, 0, respond)


def test_closing_gives_the_port_back_and_may_be_repeated() -> None:
    first = HttpServer("127.0.0.1", 0, respond)
    first.start()
    first.close()
    first.close()
    second = HttpServer("127.0.0.1", first.port, respond)
    second.close()
