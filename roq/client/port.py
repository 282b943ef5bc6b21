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
    return "".join(f" {each}." for each in told if each)


def _look(address: str) -> str:
    shown = address.removeprefix("tcp://")
    host, _, port = shown.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), LOOK_SECONDS) as found:
            found.settimeout(LOOK_SECONDS)
            spoken = found.recv(1)
    except ConnectionRefusedError:
        return f"Nothing listens at {shown}"
    except TimeoutError:
        return ""
    except ConnectionError:
        spoken = b""
    except (OSError, ValueError):
        return ""
    if spoken != _GREETING:
        return f"What listens at {shown} is not RoQ: it does not speak ZeroMQ"
    return (
        f"Something at {shown} speaks ZeroMQ: is it another port of RoQ? A configuration manager "
        "answers clients at its port 5000, if it was not told otherwise"
    )
