"""Addresses as people write them, and as ZeroMQ wants them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roq.errors import InvalidRequest
from roq.model import endpoint_of

CLIENT_PORT: Final = 5000


def parse_addresses(addresses: str | Iterable[str]) -> list[str]:
    """Endpoints out of `host`, `host:port`, `[ipv6]:port` or `tcp://…`, several with commas.

    Raises:
        InvalidRequest: none at all, or one that cannot be an address; says which.
    """
    given = [addresses] if isinstance(addresses, str) else list(addresses)
    parts = [part.strip() for text in given for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidRequest("no address given: use the client address of a cluster, host:port")
    return list(dict.fromkeys(_endpoint(part) for part in parts))


def _endpoint(text: str) -> str:
    host, port = _split(text.removeprefix("tcp://"), text)
    if not host or any(character in " /\\,@\t" for character in host):
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
