"""The processes of the children: spec files, logs, pidfds."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from roq.hcm.events import Exited, Spawned, SpawnFailed
from roq.protocol.spec import ExchangeSpec, MonitorSpec, encode_spec
from roq.runtime.process import Child, spawn
from roq.runtime.reactor import Reactor

LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""A log above this is put aside (one older one is kept) when its child is started again."""
TAIL_BYTES: Final = 4_096
MODULES: Final = {MonitorSpec: "roq.monitor", ExchangeSpec: "roq.exchange"}

log = logging.getLogger(__name__)


class Processes:
    """Starts children, watches them, and tells when they have ended.

    Args:
        folder: where spec files and logs go; must exist.
        on_exit: called once for each process that ended.
    """

    def __init__(self, reactor: Reactor, folder: Path, on_exit: Callable[[Exited], None]) -> None:
        self._reactor = reactor
        self._folder = folder
        self._on_exit = on_exit
        self._running: dict[str, tuple[int, Child]] = {}

    def spawn(self, spec: MonitorSpec | ExchangeSpec) -> Spawned | SpawnFailed:
        """Write the spec down and start the process that reads it."""
        path = self._folder / f"{spec.child}.json"
        try:
            path.write_bytes(encode_spec(spec))
            self._rotate(spec.child)
            process = spawn(
                [sys.executable, "-P", "-m", MODULES[type(spec)], str(path)],
                log_path=self._log(spec.child),
            )
        except OSError as error:
            return SpawnFailed(spec.child, spec.epoch, str(error))
        self._running[spec.child] = (spec.epoch, process)
        self._reactor.add(process, lambda: self._ended(spec.child, process))
        return Spawned(spec.child, spec.epoch, process.pid)

    def terminate(self, child: str) -> None:
        """SIGTERM, if it still runs."""
        if child in self._running:
            self._running[child][1].terminate()

    def kill(self, child: str) -> None:
        """SIGKILL, if it still runs."""
        if child in self._running:
            self._running[child][1].kill()

    def discard(self, child: str, *, with_log: bool) -> None:
        """Remove the files of a child that is gone for good."""
        self._folder.joinpath(f"{child}.json").unlink(missing_ok=True)
        if with_log:
            self._log(child).unlink(missing_ok=True)
            self._old_log(child).unlink(missing_ok=True)

    def forget(self, queue: str) -> None:
        """Remove the logs of all children of a queue but those that run."""
        own = re.compile(rf"({re.escape(queue)}\.(monitor|x[0-9]+))\.log(\.1)?")
        for path in self._folder.glob("*.log*"):
            found = own.fullmatch(path.name)
            if found is not None and found[1] not in self._running:
                path.unlink(missing_ok=True)

    def close(self, *, kill: bool) -> None:
        """Watch no more; with `kill` end those that still run, else leave them to themselves."""
        for _, process in self._running.values():
            self._reactor.remove(process)
            if kill:
                process.stop(grace=0.0)
            process.close()
        self._running.clear()

    def _ended(self, child: str, process: Child) -> None:
        code = process.poll()
        if code is None:
            return
        epoch, _ = self._running.pop(child)
        self._reactor.remove(process)
        process.close()
        status = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
        self._on_exit(Exited(child, epoch, status, self._last_line(child)))

    def _log(self, child: str) -> Path:
        return self._folder / f"{child}.log"

    def _old_log(self, child: str) -> Path:
        return self._folder / f"{child}.log.1"

    def _rotate(self, child: str) -> None:
        path = self._log(child)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(self._old_log(child))

    def _last_line(self, child: str) -> str:
        try:
            with self._log(child).open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - TAIL_BYTES))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError as error:
            log.warning("no log of %s: %s", child, error, extra={"event": "log_unreadable"})
            return ""
        return lines[-1].strip() if lines else ""
