"""The machines of a run: network namespaces, or loopback addresses where those cannot be.

Each has a small disk of its own, so that one can be full. Everything lies in one folder, whose name
holds our pid: `sweep` removes what a run that was killed has left.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from roq.errors import Unavailable
from roq.simulation.real.detour import Detour, detour
from roq.testing import namespaces
from roq.testing.namespaces import NetworkHost

DISK_MEGABYTES: Final = 48
APART: Final = 2
"""Machines of clients that can be cut off."""
_PREFIX: Final = "roq-chaos-"
_CLOCK: Final = "faketime-"
_SHARED: Final = Path("/dev/shm")  # noqa: S108 - libfaketime's choice
_OURS: Final = re.compile(rf"{_PREFIX}(\d+)-\w+")


@dataclass(frozen=True, slots=True)
class Node:
    """One machine.

    Attributes:
        address: of everything that runs there.
        folder: its disk.
        link: its plug; None on loopback addresses, where nothing can be pulled.
        small: whether the disk is one of its own, which can be filled.
    """

    address: str
    folder: Path
    link: NetworkHost | None
    small: bool

    @property
    def prefix(self) -> list[str]:
        """Put before a command line, it runs the command on this machine."""
        return [] if self.link is None else self.link.absolute_prefix

    @property
    def bind(self) -> str:
        """Where servers listen."""
        return self.address if self.link is None else "0.0.0.0"

    @property
    def clock(self) -> Path:
        """The file that says how far its clock is off, as libfaketime reads it."""
        return self.folder.parent / f"clock-{self.address}"

    @property
    def ballast(self) -> Path:
        """The file that fills its disk."""
        return self.folder / "ballast"


@dataclass(frozen=True, slots=True)
class Machines:
    """All machines.

    Attributes:
        folder: for files of the run.
        nodes: those of the cluster; most clients are with us.
        far: where a client has a bad line; None on loopback addresses.
        apart: two more on which there are clients, whose plugs can be pulled; or none.
        clocks: the library that makes clocks jump; empty: there is none.
        lacking: what cannot be done here and why, in sentences.
    """

    folder: Path
    nodes: tuple[Node, ...]
    far: Detour | None
    apart: tuple[NetworkHost, ...]
    clocks: str
    lacking: tuple[str, ...]


@contextmanager
def machines(count: int, *, networked: bool, bad: bool = True) -> Iterator[Machines]:
    """So many machines until the block ends; this thread, and what it starts, reaches all of them.

    Args:
        networked: namespaces, which needs root; else loopback addresses.
        bad: disks can be full, and clients are on three machines more, one with a bad line.

    Raises:
        Unavailable: namespaces are wanted and cannot be made; says why.
    """
    sweep()
    if networked and (reason := namespaces.missing()):
        raise Unavailable(reason)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        stack.callback(_remove, folder)
        lacking = [] if networked else ["links: hosts on loopback addresses have none"]
        links: list[NetworkHost | None] = [None] * count
        apart: tuple[NetworkHost, ...] = ()
        far: Detour | None = None
        if networked:
            links[:], apart, far = _links(stack, count, folder, bad=bad)
        nodes = []
        for number, link in enumerate(links, 1):
            address = f"127.97.{os.getpid() % 250}.{number}" if link is None else link.address
            disk = folder / f"node{number}"
            disk.mkdir()
            nodes.append(Node(address, disk, link, networked and bad and _mounted(stack, disk)))
        if not all(node.small for node in nodes):
            lacking.append("disks: no file system can be mounted here")
        clocks = clock_library()
        if not clocks:
            lacking.append("clocks: no libfaketime (apt-get install faketime)")
        yield Machines(folder, tuple(nodes), far, apart, clocks, tuple(lacking))


def sweep() -> list[str]:
    """Remove what runs that were killed have left; gives what it was."""
    left = []
    if os.geteuid() == 0 and shutil.which("ip"):
        left += namespaces.sweep()
    for folder in folders():
        ours = _OURS.fullmatch(folder.name)
        if ours is None or psutil.pid_exists(int(ours[1])) or folder.stat().st_uid != os.geteuid():
            continue
        for process in psutil.process_iter(["cmdline"]):
            if any(word.startswith(f"{folder}/") for word in process.info["cmdline"] or ()):
                process.kill()
        for disk in folder.glob("node*"):
            if disk.is_mount():
                _unmount(disk)
        _remove(folder)
        left.append(str(folder))
    return left


def note_clock(folder: Path, pid: int) -> None:
    """This process has a clock that can be set: what it leaves in /dev/shm has to be removed."""
    folder.joinpath(f"{_CLOCK}{pid}").touch()


def _remove(folder: Path) -> None:
    for path in folder.glob(f"{_CLOCK}*"):
        pid = path.name.removeprefix(_CLOCK)
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            _SHARED.joinpath(name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def folders() -> list[Path]:
    """Those of all runs, of ours and of others."""
    return sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"))


def _links(
    stack: ExitStack, count: int, folder: Path, *, bad: bool
) -> tuple[list[NetworkHost], tuple[NetworkHost, ...], Detour | None]:
    """The plugs of so many machines, of clients, and of one with a bad line; we are on one more."""
    front, *others = stack.enter_context(namespaces.network(count + 1 + (1 + APART) * bad))
    line = stack.enter_context(detour(others.pop(), folder / "detour.log")) if bad else None
    stack.enter_context(front.entered())
    return others[:count], tuple(others[count:]), line


def clock_library() -> str:
    """The library that makes the clock of a process jump; empty if it is not installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else ""


def _mounted(stack: ExitStack, disk: Path) -> bool:
    """Mount a small disk, if that is allowed."""
    size = f"size={DISK_MEGABYTES}m"
    done = _run("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk))
    if done:
        stack.callback(_unmount, disk)
    return done


def _unmount(disk: Path) -> None:
    # Lazily: what still has a file open there must not keep the mount for ever.
    _run("umount", "-l", str(disk))


def _run(program: str, *arguments: str) -> bool:
    path = shutil.which(program)
    if path is None:
        return False
    return subprocess.run([path, *arguments], capture_output=True, check=False).returncode == 0
