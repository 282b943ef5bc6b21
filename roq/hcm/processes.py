"""The processes of the children: started, adopted, watched by pidfd, looked at, and ended."""

from __future__ import annotations

import errno
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from roq.hcm.events import (
    Adopted,
    Discard,
    Exited,
    Forget,
    Kill,
    Probe,
    Probed,
    Remember,
    Rested,
    Spawn,
    Spawned,
    SpawnFailed,
    Terminate,
)
from roq.hcm.records import MODULES, Records, remove
from roq.protocol.spec import Spec
from roq.runtime import process, procfs
from roq.runtime.reactor import Reactor

LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""A log above this is put aside (one older one is kept) when its child is started again."""
TAIL_BYTES: Final = 4_096
_ADVICE: Final = {
    errno.ENOSPC: "make room on the disk of data.dir",
    errno.EDQUOT: "make room on the disk of data.dir",
    errno.EROFS: "data.dir must be writable",
    errno.EACCES: "data.dir must be writable",
    errno.EMFILE: "allow this host manager more descriptors (LimitNOFILE, ulimit -n)",
    errno.ENFILE: "allow this machine more descriptors (fs.file-max)",
    errno.EAGAIN: "allow more processes (TasksMax, ulimit -u)",
    errno.ENOMEM: "this machine has no memory left",
}

log = logging.getLogger(__name__)

Process = process.Child | process.Adopted
ProcessEffect = Spawn | Remember | Probe | Terminate | Kill | Discard | Forget


class Processes:
    """Starts children, watches them, and tells when they have ended.

    Args:
        folder: where specs, records and logs go; absolute, and must exist.
        on_exit: called once for each process that ended.
    """

    def __init__(self, reactor: Reactor, folder: Path, on_exit: Callable[[Exited], None]) -> None:
        self._reactor = reactor
        self._folder = folder
        self._records = Records(folder)
        self._on_exit = on_exit
        self._running: dict[str, tuple[int, Process]] = {}

    def adopt(self) -> tuple[Rested, list[Adopted]]:
        """Watch those that an earlier life of this host manager has left running. Comes first."""
        adopted = []
        left = self._records.left()
        for spec, record in left.living:
            try:
                found = process.Adopted(record.pid, record.start)
            except OSError as error:
                log.warning(
                    "%s cannot be adopted: %s", spec.child, error, extra={"event": "not_adopted"}
                )
                continue
            self._watch(spec, found)
            adopted.append(Adopted(spec, found.pid, tuple(record.ports)))
        return Rested(tuple(sorted(left.resting))), adopted

    def perform(self, effect: ProcessEffect) -> Iterator[Spawned | SpawnFailed | Probed]:
        """Do what the machine wants done to a process or its files; gives its answer, if any."""
        match effect:
            case Spawn(spec):
                yield self.spawn(spec)
            case Remember(child, ports):
                self._records.write_ports(child, ports)
            case Probe(child, epoch):
                yield self.probe(child, epoch)
            case Terminate(child):
                self.terminate(child)
            case Kill(child):
                self.kill(child)
            case Discard(child, with_log):
                self.discard(child, with_log=with_log)
            case Forget(queue):
                self.forget(queue)

    def spawn(self, spec: Spec) -> Spawned | SpawnFailed:
        """Write the spec down and start the process that reads it."""
        try:
            path = self._records.write_spec(spec)
            self._rotate(spec.child)
            child = process.spawn(
                [sys.executable, "-P", "-m", MODULES[type(spec)], str(path)],
                log_path=self._log(spec.child),
            )
        except OSError as error:
            return SpawnFailed(spec.child, spec.epoch, _words_of(error))
        try:
            self._records.write_process(spec, child.pid)
        except OSError as error:
            # Nobody would know it after our end.
            child.stop(grace=0.0)
            child.close()
            return SpawnFailed(spec.child, spec.epoch, _words_of(error))
        self._watch(spec, child)
        return Spawned(spec.child, spec.epoch, child.pid)

    def open_files(self) -> dict[str, int]:
        """Child → how many descriptors it has open, of those that run."""
        counted = {name: procfs.open_files(each.pid) for name, (_, each) in self._running.items()}
        return {name: files for name, files in counted.items() if files is not None}

    def probe(self, child: str, epoch: int) -> Probed:
        """How its process is at this moment."""
        running = self._running.get(child)
        found = procfs.sample(running[1].pid) if running is not None else None
        if found is None:
            return Probed(child, epoch, "", 0)
        return Probed(child, epoch, found.state, found.ran_ns)

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
        self._records.forget(child)
        if with_log:
            remove(self._log(child))
            remove(self._old_log(child))

    def forget(self, queue: str) -> None:
        """Remove the logs of all children of a queue but those that run."""
        own = re.compile(rf"({re.escape(queue)}\.(monitor|x[0-9]+))\.log(\.1)?")
        try:
            logs = list(self._folder.glob("*.log*"))
        except OSError as error:
            log.warning("logs of %s stay: %s", queue, error, extra={"event": "file_stays"})
            return
        for path in logs:
            found = own.fullmatch(path.name)
            if found is not None and found[1] not in self._running:
                remove(path)

    def close(self, *, kill: bool) -> None:
        """Watch no more; with `kill` end those that still run, else leave them to themselves."""
        for child, (_, running) in self._running.items():
            self._reactor.remove(running)
            if kill:
                running.stop(grace=0.0)
                self._records.forget(child)
            running.close()
        self._running.clear()

    def _watch(self, spec: Spec, running: Process) -> None:
        self._running[spec.child] = (spec.epoch, running)
        self._reactor.add(running, lambda: self._ended(spec.child, running))

    def _ended(self, child: str, running: Process) -> None:
        status = running.status
        if status is None:
            return
        epoch, _ = self._running.pop(child)
        self._reactor.remove(running)
        running.close()
        self._records.ended(child)
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


def _words_of(error: OSError) -> str:
    """What the system says, of which file, and what to do about it."""
    words = error.strerror or str(error)
    if error.filename is not None:
        words += f": {error.filename}"
    advice = _ADVICE.get(error.errno or 0)
    return f"{words}; {advice}" if advice else words
