"""A Docker Engine of our own, that nobody else sees and that leaves nothing; no test in here.

Its files are in a temporary folder, its socket is there too, its network is a bridge of its own,
and it changes no rule of the firewall.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 30.0
SUBNET = "172.31.251"


def why_not() -> str:
    """Why no engine can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "starting a Docker Engine needs root"
    missing = [name for name in ("dockerd", "ip") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} here (Debian: docker.io, iproute2)" if missing else ""


@contextmanager
def own_engine() -> Iterator[str]:
    """An engine for the length of a block; gives its url."""
    with ExitStack() as stack:
        # Not pytest's folder: the path of a socket has 107 characters at most.
        folder = Path(tempfile.mkdtemp(prefix="roq-docker-"))
        stack.callback(shutil.rmtree, folder)
        stack.callback(_unmount, folder)
        bridge = _bridge(stack)
        path = folder / "docker.sock"
        url = f"unix://{path}"
        log = stack.enter_context((folder / "dockerd.log").open("wb"))
        process = subprocess.Popen(
            ["dockerd", "--data-root", folder / "root", "--exec-root", folder / "run",
             "--pidfile", folder / "pid", "-H", url, "--bridge", bridge,
             "--iptables=false", "--ip6tables=false"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        stack.callback(_stop, process)
        _await(path, process, folder / "dockerd.log")
        yield url


def _bridge(stack: ExitStack) -> str:
    name = f"roq{uuid.uuid4().hex[:8]}"
    for words in (
        ["link", "add", name, "type", "bridge"],
        ["address", "add", f"{SUBNET}.1/24", "dev", name],
        ["link", "set", name, "up"],
    ):
        subprocess.run(["ip", *words], check=True, timeout=10)
        if words[1] == "add" and words[0] == "link":
            stack.callback(subprocess.run, ["ip", "link", "delete", name], check=False, timeout=10)
    return name


def _unmount(folder: Path) -> None:
    """Engines leave a mount behind that names the network of the machine."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=True, timeout=10)


def _await(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(path):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no engine: {log.read_text()[-2_000:]}")
        threading.Event().wait(0.1)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
            client.settimeout(5)
            client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b"200 OK" in client.recv(4096)
        except OSError:
            return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
