"""Hosts of a real network on one machine: Linux network namespaces joined by a switch.

    with network(2) as hosts:
        spawn([*hosts[0].prefix, sys.executable, "-m", "roq", "gcm", …])

Each host is a namespace with one address of 10.97.0.0/24 and its own loopback; the switch is a
bridge in a namespace of its own, so the machine's own network is not touched. Needs root and `ip`
(iproute2). Whatever still runs in a namespace is killed when it is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

from roq.errors import Unavailable

_serial = count(1)


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """One host: the name of its namespace and its address on the switch."""

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """Put before a command line, it runs the command on this host."""
        return ["ip", "netns", "exec", self.name]

    def run(self, *argv: str) -> str:
        """Run a short command on this host and give its output."""
        return _run(*self.prefix, *argv)


def missing() -> str:
    """Why namespaces cannot be used here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the `ip` command (apt-get install iproute2)"
    try:
        with network(1):
            return ""
    except Unavailable as error:
        return str(error)


@contextmanager
def network(hosts: int) -> Iterator[list[NetworkHost]]:
    """Make `hosts` namespaces that reach each other; all are gone afterwards.

    Raises:
        Unavailable: the system refused, with its own words.
    """
    tag = f"roq-{os.getpid()}-{next(_serial)}"
    switch = f"{tag}-s"
    with ExitStack() as stack:
        _namespace(stack, switch)
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        made = []
        for number in range(1, hosts + 1):
            host = NetworkHost(f"{tag}-{number}", f"10.97.0.{number}")
            _namespace(stack, host.name)
            _connect(host, switch, f"port{number}")
            made.append(host)
        yield made


def _connect(host: NetworkHost, switch: str, port: str) -> None:
    _run(
        "ip", "-n", host.name, "link", "add", "eth0", "type", "veth",
        "peer", "name", port, "netns", switch,
    )  # fmt: skip
    _run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
    _run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    _run("ip", "-n", host.name, "link", "set", "eth0", "up")
    _run("ip", "-n", host.name, "link", "set", "lo", "up")


def _namespace(stack: ExitStack, name: str) -> None:
    _run("ip", "netns", "add", name)
    stack.callback(_remove, name)


def _remove(name: str) -> None:
    for pid in _run("ip", "netns", "pids", name).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    _run("ip", "netns", "delete", name)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
    return done.stdout
