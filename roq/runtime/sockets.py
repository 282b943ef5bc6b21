"""ZeroMQ sockets with the options that RoQ needs, and binding that says what went wrong.

Every socket has linger 0 (an orderly goodbye is the protocol's business), heartbeats (a dead TCP
peer is noticed within two and a half seconds), bounded high-water marks and a largest message.

A socket that is full, whose peer then dies, aborts the process when it sends or answers its next
heartbeat (libzmq 4.3.5: `Assertion failed: !_io_error`). So what others can fill sends none, and is
sent none: servers count on the heartbeats of their clients, which say how long each holds, and on
TCP's own for foreign ones.
"""

from __future__ import annotations

import errno
import ipaddress
import random
import socket as tcp
from collections.abc import Callable, Collection
from typing import Final, TypeVar

import zmq

from roq.errors import ConfigError, Unavailable
from roq.model import endpoint_of
from roq.runtime.interfaces import Dialer, Socket
from roq.timing import CONNECT_MS, HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS

CONTROL_BYTES_MAX: Final = 16 * 1024 * 1024
MAX_SOCKETS: Final = 16_384
BACKLOG: Final = 4_096
"""Newcomers that may stand at the door at the same instant; one who does not fit knocks again after
a second, then three. The system may allow less (net.core.somaxconn)."""
RECONNECT_MS: Final = (25, 100)
"""Between these a socket that reconnects by itself begins to wait; then twice as long, …"""
RECONNECT_MOST_MS: Final = (500, 1_500)
"""… up to a limit between these."""
_KEEPALIVE: Final = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 15,
    zmq.TCP_KEEPALIVE_INTVL: 5,
    zmq.TCP_KEEPALIVE_CNT: 3,
}
"""A client without heartbeats that has vanished is noticed within half a minute."""
_RANDOM_PORT_TRIES: Final = 20
S = TypeVar("S", bound=Socket)
_random: Final = random.Random()  # noqa: S311 - spreads retries, guards nothing


def new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context of one's own, with room for many sockets; never a global one."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
    return context


def router(context: Dialer[S], *, maximum_bytes: int = CONTROL_BYTES_MAX) -> S:
    """A server socket. It must only be sent to with NOBLOCK: see `send_to`."""
    socket = _new(context, zmq.ROUTER, maximum_bytes)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    without_heartbeats(socket)
    return socket


def without_heartbeats(socket: Socket) -> None:
    """Have the system find out, by TCP's own, that the others are gone; before bind or connect."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, 0)
    for option, value in _KEEPALIVE.items():
        socket.setsockopt(option, value)


def dealer(context: Dialer[S], *, maximum_bytes: int = CONTROL_BYTES_MAX) -> S:
    """A client socket of a server."""
    return _new(context, zmq.DEALER, maximum_bytes)


def publisher(
    context: zmq.Context[zmq.Socket[bytes]], *, maximum_bytes: int = CONTROL_BYTES_MAX
) -> zmq.Socket[bytes]:
    """An XPUB: fans out, and sees subscriptions."""
    return _new(context, zmq.XPUB, maximum_bytes)


def subscriber(
    context: zmq.Context[zmq.Socket[bytes]], *, maximum_bytes: int = -1
) -> zmq.Socket[bytes]:
    """A SUB."""
    return _new(context, zmq.SUB, maximum_bytes)


def listener(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, topic: bytes
) -> zmq.Socket[bytes]:
    """A SUB that is connected and wants this.

    Raises:
        zmq.ZMQError: there can be no such address, or no socket.
    """
    socket = subscriber(context)
    try:
        socket.setsockopt(zmq.SUBSCRIBE, topic)
        socket.connect(endpoint)
    except zmq.ZMQError:
        socket.close(0)
        raise
    return socket


def send_to(socket: Socket, frames: list[bytes]) -> bool:
    """Send from a ROUTER (or any socket) without ever waiting.

    Returns:
        False if the peer is gone or does not read; the message is dropped then.
    """
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise
    return True


def bind(
    socket: zmq.Socket[bytes],
    host: str,
    ports: tuple[int, int] = (0, 0),
    avoid: Collection[int] = (),
) -> int:
    """Bind to a free port out of [first, last) and give it; (0, 0) means any free port.

    Raises:
        Unavailable: no port of the range is free.
        ConfigError: this machine does not have that address, or this process no right to a port.
    """

    def give_back(_: int) -> None:
        socket.unbind(socket.getsockopt_string(zmq.LAST_ENDPOINT))

    return _free_port(lambda port: _try_bind(socket, host, port), give_back, host, ports, avoid)


def listen(host: str, ports: tuple[int, int], avoid: Collection[int]) -> tcp.socket:
    """A TCP socket that listens at a free port out of [first, last); see `bind`.

    Args:
        host: a numeric address of this machine.

    Raises:
        Unavailable, ConfigError: see `bind`.
    """
    listening: dict[int, tcp.socket] = {}

    def try_port(port: int) -> int:
        family = tcp.AF_INET6 if ":" in host else tcp.AF_INET
        try:
            socket = tcp.socket(family, tcp.SOCK_STREAM)
        except OSError as error:  # a machine without IPv6
            return _taken(error, host, port)
        try:
            socket.setsockopt(tcp.SOL_SOCKET, tcp.SO_REUSEADDR, 1)
            if family == tcp.AF_INET6:
                socket.setsockopt(tcp.IPPROTO_IPV6, tcp.IPV6_V6ONLY, 0)
            socket.setblocking(False)
            socket.bind((host.strip("[]"), port))
            socket.listen(BACKLOG)
        except OSError as error:
            socket.close()
            return _taken(error, host, port)
        port = int(socket.getsockname()[1])
        listening[port] = socket
        return port

    return listening[
        _free_port(try_port, lambda port: listening.pop(port).close(), host, ports, avoid)
    ]


def _free_port(
    try_port: Callable[[int], int],
    give_back: Callable[[int], None],
    host: str,
    ports: tuple[int, int],
    avoid: Collection[int],
) -> int:
    """The port that was taken.

    Args:
        try_port: takes a port (0: any) and gives it, or 0 if it is in use.
        give_back: undoes that.
    """
    if ports == (0, 0):
        for _ in range(_RANDOM_PORT_TRIES):
            port = try_port(0)
            if port and port not in avoid:
                return port
            if port:
                give_back(port)
        raise Unavailable(f"the system gave no port on {host} that was unused for long enough")
    for port in range(*ports):
        if port not in avoid and try_port(port):
            return port
    resting = sum(port in avoid for port in range(*ports))
    raise Unavailable(
        f"no free port on {host} from {ports[0]} to {ports[1] - 1} ({resting} of them are in use "
        "by this cluster or were a short while ago): wait, stop what uses them or set a wider range"
    )


def bind_port(socket: zmq.Socket[bytes], host: str, port: int) -> int:
    """Bind to exactly this port (0: any free one) and give it.

    Raises:
        ConfigError: the port is in use, this process has no right to it, or this machine does not
            have that address.
    """
    bound = _try_bind(socket, host, port)
    if not bound:
        if not port:
            raise Unavailable(f"no free port on {host}")
        raise ConfigError(
            f"port {port} on {host} is in use: stop the process that has it "
            f"(`ss -ltnp 'sport = :{port}'` names it) or set another port"
        )
    return bound


def is_loopback(host: str) -> bool:
    """Whether nobody outside this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _new(context: Dialer[S], kind: int, maximum_bytes: int) -> S:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.SNDHWM, 1_000)
    socket.setsockopt(zmq.RCVHWM, 1_000)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.setsockopt(zmq.MAXMSGSIZE, maximum_bytes)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
    # Another one for each socket: those that have lost the same peer must not come back as one.
    socket.setsockopt(zmq.RECONNECT_IVL, _random.randint(*RECONNECT_MS))
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _random.randint(*RECONNECT_MOST_MS))
    return socket


def _try_bind(socket: zmq.Socket[bytes], host: str, port: int) -> int:
    """The port that it is bound to now; 0: that one is in use."""
    endpoint = endpoint_of(host, port)
    try:
        socket.bind(endpoint if port else endpoint.removesuffix("0") + "*")
    except zmq.ZMQError as error:
        return _taken(error, host, port)
    return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])


def _taken(error: zmq.ZMQError | OSError, host: str, port: int) -> int:
    """Say that a port is in use, by 0.

    Raises:
        ConfigError: it is another trouble.
    """
    if error.errno == errno.EADDRINUSE:
        return 0
    if error.errno == errno.EACCES:
        raise ConfigError(
            f"this process has no right to port {port} on {host}: set a port from 1024 on"
        ) from None
    raise ConfigError(
        f"cannot bind to {host}: {error.strerror}. Set `bind` to an address of this machine "
        "(`ip addr` lists them)"
    ) from None
