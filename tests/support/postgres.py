"""A PostgreSQL server of its own in a temporary folder, if its programs are on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

USER = "nobody"
"""initdb refuses root."""


def programs() -> Path | None:
    """The folder of the newest installed server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    return Path(there).parent if there else None


def _version(path: Path) -> float:
    return float(path.parts[-3])


def _as_user(command: list[str | Path]) -> list[str | Path]:
    if os.getuid() != 0:
        return command
    return ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups", *command]


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a server without any jobs, over a socket in its folder; skips if there is none."""
    folder = programs()
    if folder is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL refuses root, and there is no setpriv: apt-get install util-linux")
    pytest.importorskip("psycopg", reason="no psycopg: pip install 'roq-cluster[postgres]'")
    with tempfile.TemporaryDirectory(prefix="roq-pg-") as name:
        home = Path(name)
        if os.getuid() == 0:
            shutil.chown(home, USER, "nogroup")
        data = home / "data"
        _run([folder / "initdb", "-D", data, "-U", "roq", "-A", "trust", "-E", "UTF8", "-N"], home)
        _control(home, "start")
        try:
            yield f"postgresql+psycopg://roq@/postgres?host={home}"
        finally:
            _control(home, "stop")


def _control(home: Path, verb: str) -> None:
    options = f"-k {home} -h '' -c fsync=on -c max_connections=60 -c shared_buffers=32MB"
    how = ["-o", options, "-l", home / "log"] if verb == "start" else ["-m", "immediate"]
    folder = programs()
    assert folder is not None
    _run([folder / "pg_ctl", "-D", home / "data", "-w", *how, verb], home)


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """This server is down meanwhile, as after a crash."""
    home = Path(url.partition("host=")[2])
    _control(home, "stop")
    try:
        yield
    finally:
        _control(home, "start")


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """No process of this server does anything meanwhile, and no connection is closed."""
    home = Path(url.partition("host=")[2])
    head = int((home / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{head}/task/{head}/children").read_text().split()
    processes = [head, *map(int, children)]
    try:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


def _run(command: list[str | Path], home: Path) -> None:
    done = subprocess.run(
        _as_user(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, cwd=home, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
