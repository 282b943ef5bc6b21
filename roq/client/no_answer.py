"""What is at an address at which no configuration manager has answered."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

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
