"""Addresses as people write them, and as ZeroMQ wants them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from roq.errors import InvalidRequest
from roq.model import endpoint_of

CLIENT_PORT: Final = 5000
Translate = Callable[[str], str]
"""Gives the address to connect to instead of another one."""


def parse_addresses(addresses: str | Iterable[str]) -> list[str]:
    """Endpoints out of `host`, `host:port`, `[ipv6]:port` or `tcp://…`, several with commas.

    Raises:
        InvalidRequest: none at all, or one that cannot be an address; says which.
        TypeError: no text.
    """
    given = [addresses] if isinstance(addresses, str) else list(addresses)
    for text in given:
        if not isinstance(text, str):
            raise TypeError(f"an address is text, host:port, not {type(text).__name__}")
    parts = [part.strip() for text in given for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidRequest("no address given: use the client address of a cluster, host:port")
    return list(dict.fromkeys(_endpoint(part) for part in parts))


def _endpoint(text: str) -> str:
    host, port = _split(text.removeprefix("tcp://"), text)
    if not host or not host.isprintable() or any(each in " /\\,@" for each in host):
        raise InvalidRequest(f"{text!r} is no address: use host:port")
    if not 0 < port < 65_536:
        raise InvalidRequest(f"{text!r} has no valid port: 1 to 65535, by default {CLIENT_PORT}")
    return endpoint_of(host, port)


def _split(text: str, whole: str) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidRequest(f"{whole!r} is no address: use [ipv6]:port")
        return host, _port(rest[1:], whole)
    if text.count(":") > 1:
        return text, CLIENT_PORT  # a bare IPv6 address
    host, _, port = text.partition(":")
    return host, _port(port, whole)


def _port(text: str, whole: str) -> int:
    if not text:
        return CLIENT_PORT
    if not (text.isascii() and text.isdecimal()):
        raise InvalidRequest(f"{whole!r} has no valid port: it is a number")
    return int(text)


# What is at an address at which no configuration manager has answered.

LOOK_SECONDS: Final = 0.5
LOOKS_MAX: Final = 3
"""Addresses that are looked at: who has waited in vain is not to wait much longer."""
_GREETING: Final = b"\xff"
"""What every ZeroMQ peer sends first."""


def what_is_at(addresses: Iterable[str]) -> str:
    """A sentence for each address of which something can be said, with a blank before it."""
    told = [_look(address) for address in list(addresses)[:LOOKS_MAX]]
    return "".join(f" {each[0].upper()}{each[1:]}." for each in told)


def without_zeromq(address: str, seconds: float) -> str:
    """Why nothing that speaks ZeroMQ is at this address; empty if something is.

    Args:
        address: `HOST:PORT`, with or without `tcp://`.
        seconds: for the connection, and for its first byte.
    """
    shown = address.removeprefix("tcp://")
    host, _, port = shown.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds) as found:
            found.settimeout(seconds)
            spoken = found.recv(1)
    except ConnectionRefusedError:
        return f"nothing listens at {shown}"
    except (socket.gaierror, ValueError):  # among them names that cannot be encoded
        return f"there is no host of this name: {shown}"
    except ConnectionError:
        spoken = b""
    except TimeoutError:
        # Either the connection was not accepted, or what has accepted it says nothing.
        return f"no RoQ answers at {shown}"
    except OSError as error:
        return f"{error.strerror or error}: {shown}"
    if spoken == _GREETING:
        return ""
    return f"what listens is not RoQ (it does not speak ZeroMQ): {shown}"


def _look(address: str) -> str:
    shown = address.removeprefix("tcp://")
    return without_zeromq(address, LOOK_SECONDS) or (
        f"something at {shown} speaks ZeroMQ: is it another port of RoQ? A configuration manager "
        "answers clients at its port 5000, if it was not told otherwise"
    )
