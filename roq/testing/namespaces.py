"""Hosts of a real network on one machine: Linux network namespaces joined by a switch.

    with network(2) as hosts:
        spawn([*hosts[0].prefix, sys.executable, "-m", "roq", "gcm", …])

Each host is a namespace with one address of 10.97.0.0/24 and its own loopback; the switch is a
bridge in a namespace of its own, so the machine's own network is not touched. Needs root, `ip` and
`tc` (iproute2), and `iptables`. Whatever still runs in a namespace is killed when it is removed.

Links can be limited, cut, made to lose packets, and closed to a port. Names of namespaces hold the
pid of their maker, so `sweep` finds what one that was killed has left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from roq.errors import Unavailable

BURST: Final = "256kb"
"""What a limited link lets through at once; more than the largest piece that the kernel sends."""
WAIT: Final = "50ms"
"""What waits longer for a limited link is dropped, as in a real switch."""
_CLONE_NEWNET: Final = 0x40000000
_OURS: Final = re.compile(r"roq-(\d+)-\d+-(s|\d+)")
_TOOLS: Final = {"ip": "iproute2", "tc": "iproute2", "iptables": "iptables"}
_serial = count(1)


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """One host: the name of its namespace, its address, and where it is plugged in."""

    name: str
    address: str
    switch: str
    port: str

    @property
    def prefix(self) -> list[str]:
        """Put before a command line, it runs the command on this host."""
        return ["ip", "netns", "exec", self.name]

    @property
    def absolute_prefix(self) -> list[str]:
        """The same with the full path of the program, as exec wants it."""
        return [shutil.which("ip") or "ip", *self.prefix[1:]]

    def run(self, *argv: str) -> str:
        """Run a short command on this host and give its output."""
        return _run(*self.prefix, *argv)

    def limit(self, inward: float, outward: float) -> None:
        """Let its link carry so many megabits per second and no more; 0: as many as go.

        Raises:
            Unavailable: the system refused (`tc`, of iproute2, is needed).
        """
        for namespace, device, megabits in (
            (self.switch, self.port, inward),
            (self.name, "eth0", outward),
        ):
            if megabits > 0:
                _run(
                    "tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
                    "rate", f"{round(megabits * 1_000)}kbit", "burst", BURST, "latency", WAIT,
                )  # fmt: skip

    def cut(self) -> None:
        """Pull its plug: nothing comes in or goes out, and nobody is told."""
        _run("ip", "-n", self.switch, "link", "set", self.port, "down")

    def join(self) -> None:
        """Put the plug in again."""
        _run("ip", "-n", self.switch, "link", "set", self.port, "up")

    @contextmanager
    def loses(self, percent: float) -> Iterator[None]:
        """Drop so many packets of a hundred at random, in each direction, inside the block.

        Raises:
            Unavailable: the system refused (`iptables` is needed).
        """
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{percent / 100:.4f}")
        with self._filtered(("INPUT", "-i", "eth0", *chance), ("OUTPUT", "-o", "eth0", *chance)):
            yield

    @contextmanager
    def closed_to(self, port: int) -> Iterator[None]:
        """Drop what goes to, and comes from, this TCP port of other hosts inside the block.

        Raises:
            Unavailable: the system refused (`iptables` is needed).
        """
        tcp = ("-p", "tcp")
        with self._filtered(
            ("INPUT", "-i", "eth0", *tcp, "--sport", str(port)),
            ("OUTPUT", "-o", "eth0", *tcp, "--dport", str(port)),
        ):
            yield

    @contextmanager
    def mute_at(self, port: int) -> Iterator[None]:
        """Drop what this TCP port sends to other hosts inside the block.

        Raises:
            Unavailable: the system refused (`iptables` is needed).
        """
        with self._filtered(("OUTPUT", "-o", "eth0", "-p", "tcp", "--sport", str(port))):
            yield

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Drop whatever comes in inside the block; what it sends still goes out.

        Raises:
            Unavailable: the system refused (`iptables` is needed).
        """
        with self._filtered(("INPUT", "-i", "eth0")):
            yield

    @contextmanager
    def _filtered(self, *rules: tuple[str, ...]) -> Iterator[None]:
        with ExitStack() as stack:
            for rule in rules:
                self.run("iptables", "-w", "5", "-I", *rule, "-j", "DROP")
                stack.callback(self.run, "iptables", "-w", "5", "-D", *rule, "-j", "DROP")
            yield

    def pids(self) -> list[int]:
        """The processes that are on this host."""
        return _pids(self.name)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be on this host: the calling thread, and what it starts inside the block.

        Threads and processes started meanwhile stay on the host; others are not touched.

        Raises:
            Unavailable: the system refused.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            inside = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(inside)
            finally:
                os.close(inside)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)


def missing() -> str:
    """Why namespaces cannot be used here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"network namespaces need the `{tool}` command (apt-get install {package})"
    try:
        with network(1) as (host,):
            # Some systems have the command and not what it needs in the kernel.
            host.run("iptables", "-w", "5", "-L", "INPUT")
            return ""
    except Unavailable as error:
        return str(error)


def sweep() -> list[str]:
    """Remove namespaces whose makers have been killed, with whatever runs there; gives their names.

    Raises:
        Unavailable: the system refused.
    """
    found = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]
    left = []
    for name in found:
        ours = _OURS.fullmatch(name)
        if ours is not None and not Path(f"/proc/{ours[1]}").exists():
            with contextlib.suppress(Unavailable):  # another one that sweeps was faster
                _remove(name)
                left.append(name)
    return left


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
            host = NetworkHost(f"{tag}-{number}", f"10.97.0.{number}", switch, f"port{number}")
            _namespace(stack, host.name)
            _connect(host)
            made.append(host)
        yield made


def _connect(host: NetworkHost) -> None:
    _run(
        "ip", "-n", host.name, "link", "add", "eth0", "type", "veth",
        "peer", "name", host.port, "netns", host.switch,
    )  # fmt: skip
    _run("ip", "-n", host.switch, "link", "set", host.port, "master", "br0", "up")
    _run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    _run("ip", "-n", host.name, "link", "set", "eth0", "up")
    _run("ip", "-n", host.name, "link", "set", "lo", "up")


def _enter(descriptor: int) -> None:
    """Put the calling thread into a network namespace (`os.setns` comes with Python 3.12)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise Unavailable(f"setns failed: {os.strerror(ctypes.get_errno())}")


def _namespace(stack: ExitStack, name: str) -> None:
    _run("ip", "netns", "add", name)
    stack.callback(_remove, name)


def _remove(name: str) -> None:
    for pid in _pids(name):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _run("ip", "netns", "delete", name)


def _pids(name: str) -> list[int]:
    return [int(pid) for pid in _run("ip", "netns", "pids", name).split()]


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"`{' '.join(argv)}` failed: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
    return done.stdout
