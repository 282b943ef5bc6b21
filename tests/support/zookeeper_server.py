"""A real ZooKeeper server of one member, for the length of a test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from roq.coordination.embedded import prepare, serves
from roq.errors import Unavailable
from roq.local.part import guarded

START_SECONDS = 60.0
STOP_SECONDS = 5.0


class EmbeddedZooKeeper:
    """The server; it dies with this process, or with the thread that has started it.

    Args:
        data_dir: where its data, configuration and log are; made if missing.
        host: address to bind to.
        port: 0 chooses one at the first start.
    """

    def __init__(self, data_dir: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self._data_dir = data_dir
        self._host = host
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def pid(self) -> int:
        """The server process; 0 when none runs."""
        process = self._process
        return 0 if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Start the server and wait until it takes requests; does nothing when it runs."""
        if self.pid:
            return
        if not self._port:
            self._port = _free_port(self._host)
        command = prepare(self._data_dir, self._host, self._port, os.environ)
        log = self._data_dir / "zookeeper.log"
        with log.open("ab") as out:
            process = self._process = subprocess.Popen(
                guarded(command, signal.SIGKILL), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not serves(self._host, self._port):
            if time.monotonic() > deadline or process.poll() is not None:
                self.stop()
                raise Unavailable(f"ZooKeeper did not come up\n{log.read_text()[-2000:]}")
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)

    def stop(self) -> None:
        """Stop the server, by force if it hangs; idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as free:
        return int(free.getsockname()[1])
