"""Ports for a local cluster: the three of a configuration manager stand in a fixed distance."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from typing import Final

from roq.errors import ConfigError, Unavailable

OFFSETS: Final = {"client": 0, "management": 3, "broadcast": 5}
"""Interface of the configuration manager → distance of its port from the base."""
MANAGER_METRICS: Final = 8
HOST_METRICS: Final = 9
"""Distance of the ports for metrics: a manager's from its own base, a host's, which has an address
of its own, from that of the cluster."""
MANAGER_STEP: Final = 10
"""Distance between the bases of two configuration managers of a cluster."""
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


def bases(base: int, managers: int) -> list[int]:
    """The base of each configuration manager of a cluster."""
    return [base + MANAGER_STEP * number for number in range(managers)]


def check_base(host: str, base: int, managers: int = 1) -> int:
    """Give `base` back if the ports that belong to it can be used.

    Raises:
        ConfigError: one of them is in use or out of range.
    """
    for each in bases(base, managers):
        for interface, offset in OFFSETS.items():
            check_port(host, base, each + offset, interface)
    return base


def check_port(host: str, base: int, port: int, interface: str) -> int:
    """Give a port that follows from `base` back if it can be used.

    Raises:
        ConfigError: it is in use or out of range; the text names the interface.
    """
    if not 0 < port < 65_536:
        raise ConfigError(f"--port-base {base} is out of range: use 1 to {65_535 - 5}, or 0")
    if not is_free(host, port):
        raise ConfigError(
            f"port {port} on {host}, the {interface} interface, is in use: stop the process "
            f"that has it (`ss -ltnp 'sport = :{port}'` names it) or set another --port-base "
            "(0: any free ports)"
        )
    return port


def choose_base(host: str, managers: int = 1) -> int:
    """A random base whose ports are all free.

    Raises:
        Unavailable: none found.
    """
    draw = random.Random()  # noqa: S311 - spreads clusters over the range, guards nothing
    for _ in range(_TRIES):
        base = draw.randrange(_LOWEST, _HIGHEST)
        wanted = [each + offset for each in bases(base, managers) for offset in OFFSETS.values()]
        if all(is_free(host, port) for port in wanted):
            return base
    raise Unavailable(f"no free ports on {host} from {_LOWEST} to {_HIGHEST}: stop something")


def choose_ports(host: str, count: int, avoid: Collection[int] = ()) -> list[int]:
    """So many different free ports, drawn at random.

    Raises:
        Unavailable: not so many found.
    """
    draw = random.Random()  # noqa: S311 - spreads clusters over the range, guards nothing
    chosen: list[int] = []
    for _ in range(_TRIES):
        if len(chosen) == count:
            return chosen
        port = draw.randrange(_LOWEST, _HIGHEST)
        if port not in chosen and port not in avoid and is_free(host, port):
            chosen.append(port)
    raise Unavailable(f"no free port on {host} from {_LOWEST} to {_HIGHEST}: stop something")
