"""The machines of a chaos run: network namespaces, or loopback addresses where those cannot be.

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
from roq.testing import namespaces
from roq.testing.namespaces import NetworkHost

DISK_MEGABYTES: Final = 48
_PREFIX: Final = "roq-chaos-"
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
        if self.link is None:
            return []
        return [shutil.which("ip") or "ip", *self.link.prefix[1:]]

    @property
    def bind(self) -> str:
        """Where servers listen."""
        return self.address if self.link is None else "0.0.0.0"

    @property
    def ballast(self) -> Path:
        """The file that fills its disk."""
        return self.folder / "ballast"


@dataclass(frozen=True, slots=True)
class Site:
    """All machines.

    Attributes:
        folder: for files of the run.
        nodes: those of the cluster; clients are with us.
        lacking: what cannot be done here and why, in sentences.
    """

    folder: Path
    nodes: tuple[Node, ...]
    lacking: tuple[str, ...]


@contextmanager
def site(count: int, *, networked: bool) -> Iterator[Site]:
    """So many machines until the block ends; this thread, and what it starts, reaches all of them.

    Args:
        networked: namespaces, which needs root; else loopback addresses.

    Raises:
        Unavailable: namespaces are wanted and cannot be made; says why.
    """
    sweep()
    if networked and (reason := namespaces.missing()):
        raise Unavailable(reason)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        lacking = [] if networked else ["links: hosts on loopback addresses have none"]
        if networked and shutil.which("iptables") is None:
            lacking.append("loss: no iptables (apt-get install iptables)")
        links = _links(stack, count) if networked else [None] * count
        nodes = []
        for number, link in enumerate(links, 1):
            address = f"127.97.{os.getpid() % 250}.{number}" if link is None else link.address
            disk = folder / f"node{number}"
            disk.mkdir()
            nodes.append(Node(address, disk, link, networked and _mounted(stack, disk)))
        if not all(node.small for node in nodes):
            lacking.append("full disks: no file system can be mounted here")
        yield Site(folder, tuple(nodes), tuple(lacking))


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
        shutil.rmtree(folder, ignore_errors=True)
        left.append(str(folder))
    return left


def folders() -> list[Path]:
    """Those of all runs, of ours and of others."""
    return sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"))


def _links(stack: ExitStack, count: int) -> list[NetworkHost]:
    """The plugs of so many machines; we are on one more."""
    front, *others = stack.enter_context(namespaces.network(count + 1))
    stack.enter_context(front.entered())
    return others


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
