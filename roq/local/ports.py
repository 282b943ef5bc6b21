"""Ports for a local cluster: the three of the configuration manager stand in a fixed distance."""

from __future__ import annotations

import random
import socket
from typing import Final

from roq.errors import ConfigError, Unavailable

OFFSETS: Final = {"client": 0, "management": 3, "broadcast": 5}
"""Interface of the configuration manager → distance of its port from the base."""
_LOWEST: Final = 10_240
_HIGHEST: Final = 32_000
"""Below the range from which the system gives ports to connections."""
_TRIES: Final = 200


def is_free(host: str, port: int) -> bool:
    """Whether a server could bind to this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def check_base(host: str, base: int) -> int:
    """Give `base` back if the ports that belong to it can be used.

    Raises:
        ConfigError: one of them is in use or out of range.
    """
    for interface, offset in OFFSETS.items():
        port = base + offset
        if not 0 < port < 65_536:
            raise ConfigError(f"--port-base {base} is out of range: use 1 to {65_535 - 5}, or 0")
        if not is_free(host, port):
            raise ConfigError(
                f"port {port} on {host}, the {interface} interface, is in use: stop the process "
                f"that has it (`ss -ltnp 'sport = :{port}'` names it) or set another --port-base "
                "(0: any free ports)"
            )
    return base


def choose_base(host: str) -> int:
    """A random base whose ports are all free.

    Raises:
        Unavailable: none found.
    """
    draw = random.Random()  # noqa: S311 - spreads clusters over the range, guards nothing
    for _ in range(_TRIES):
        base = draw.randrange(_LOWEST, _HIGHEST)
        if all(is_free(host, base + offset) for offset in OFFSETS.values()):
            return base
    raise Unavailable(f"no free ports on {host} from {_LOWEST} to {_HIGHEST}: stop something")


def choose_port(host: str) -> int:
    """A random free port.

    Raises:
        Unavailable: none found.
    """
    draw = random.Random()  # noqa: S311 - spreads clusters over the range, guards nothing
    for _ in range(_TRIES):
        port = draw.randrange(_LOWEST, _HIGHEST)
        if is_free(host, port):
            return port
    raise Unavailable(f"no free port on {host} from {_LOWEST} to {_HIGHEST}: stop something")
