"""Loopback addresses as the addresses of hosts that share one machine."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from roq.errors import NoMoreHosts

_LISTENING: Final = "0A"
_SOCKETS: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ORDER: Final = -1 if sys.byteorder == "little" else 1
"""The kernel shows an address as one number of the machine, or as four."""
_MAPPED: Final = "0" * 16 + bytes.fromhex("0000FFFF")[::_ORDER].hex().upper()
"""Before an address of IPv4 in the table of IPv6."""


class Addresses:
    """The addresses from `first` to `last`, both included.

    Raises:
        ValueError: they are no loopback addresses of IPv4, or in the wrong order.
    """

    def __init__(self, first: str, last: str) -> None:
        try:
            self._first = ipaddress.IPv4Address(first)
            self._last = ipaddress.IPv4Address(last)
        except ipaddress.AddressValueError as error:
            raise ValueError(f"{error}: use loopback addresses such as 127.0.0.2") from None
        if not (self._first.is_loopback and self._last.is_loopback):
            raise ValueError(f"{first} to {last} are not all loopback addresses (127.x.x.x)")
        if self._first > self._last:
            raise ValueError(f"first_address {first} is above last_address {last}")

    def choose(self, taken: Collection[str]) -> str:
        """The first one that is not taken and at which nobody listens.

        Raises:
            NoMoreHosts: there is none.
        """
        used = listening().union(taken)
        for number in range(int(self._first), int(self._last) + 1):
            address = str(ipaddress.IPv4Address(number))
            if address not in used:
                return address
        raise NoMoreHosts(
            f"all addresses from {self._first} to {self._last} are taken: remove a host or set a "
            "wider range by first_address and last_address"
        )


def listening() -> frozenset[str]:
    """The IPv4 addresses of this machine at which some process listens (TCP)."""
    found: set[str] = set()
    for path in _SOCKETS:
        if path.exists():  # no tcp6 without IPv6
            found.update(map(_listener, path.read_text().splitlines()[1:]))
    return frozenset(found - {""})


def _listener(line: str) -> str:
    """The IPv4 address of one line of the kernel's table; empty if nobody listens there."""
    words = line.split()
    digits = words[1].partition(":")[0]
    number = digits.removeprefix(_MAPPED)
    # A socket of IPv6 may listen at an address of IPv4; other addresses of IPv6 are not ours.
    if words[3] != _LISTENING or len(number) != len("7F000001"):
        return ""
    return str(ipaddress.IPv4Address(bytes.fromhex(number)[::_ORDER]))
