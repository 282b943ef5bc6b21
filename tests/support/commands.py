"""`roq` commands as processes, for tests of the command line."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil

ROQ = [sys.executable, "-m", "roq"]
DEADLINE_SECONDS = 60.0


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what would change the commands."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("ROQ_")},
        **changes,
    }


def roq(
    *arguments: str,
    cluster: str = "",
    stdin: bytes = b"",
    timeout: float = DEADLINE_SECONDS,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    if env is None:
        env = environment(ROQ_CLUSTER=cluster) if cluster else environment()
    return subprocess.run(
        [*ROQ, *arguments], input=stdin, capture_output=True, timeout=timeout, env=env, check=False
    )


@contextmanager
def started(
    *arguments: str, env: Mapping[str, str] | None = None, cluster: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command; it is killed if it still runs at the end of the block."""
    given = dict(env) if env is not None else environment()
    if cluster:
        given["ROQ_CLUSTER"] = cluster
    with subprocess.Popen(
        [*ROQ, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=given,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def read_line(stream: Any, timeout: float = DEADLINE_SECONDS) -> bytes:
    """One line of an unbuffered stream; b"" at its end."""
    line = b""
    deadline = time.monotonic() + timeout
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        assert left > 0, f"no line within {timeout:g} s, only {line!r}"
        if not select.select([stream], [], [], left)[0]:
            continue
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        line += byte
    return line


def read_ready(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The addresses in the ready line of `roq up`."""
    line = read_line(process.stdout)
    assert line.startswith(b"ready {"), (line, process.stderr and process.stderr.read())
    document: dict[str, Any] = json.loads(line[len("ready ") :])
    return document


def family(pid: int) -> list[psutil.Process]:
    """The process and everything below it."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def gone(processes: list[psutil.Process], timeout: float = DEADLINE_SECONDS) -> bool:
    """Whether all of them end in time."""
    return until(lambda: not any(alive(process) for process in processes), timeout)


def alive(process: psutil.Process) -> bool:
    """Whether it still does something."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], bool], timeout: float = DEADLINE_SECONDS) -> bool:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], 0.02)
    return True
