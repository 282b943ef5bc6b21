"""The processes of the children: started, adopted, watched by pidfd, looked at, and ended.

An exchange has a process of its own. Monitors share processes (`monitors-1`, `monitors-2`, …), each
of which reads from a pipe in the data folder what it serves. The pipe is there as long as its
process: a later life of the host manager can still end one monitor of it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from roq.hcm.children import EVERYTHING, child_name
from roq.hcm.events import (
    Adopted,
    Discard,
    Erase,
    Erased,
    Exited,
    Forget,
    Kill,
    Probe,
    Probed,
    Release,
    Remember,
    RememberEpoch,
    RememberLeader,
    Rested,
    Spawn,
    Spawned,
    SpawnFailed,
    Terminate,
)
from roq.hcm.log_folders import LOGS, LogFolders
from roq.hcm.records import ProcessRecord, Records, remove
from roq.log.files import LogRefused
from roq.model import exchange_name
from roq.protocol.reports import Check
from roq.protocol.spec import (
    Command,
    End,
    ExchangeSpec,
    MonitorSpec,
    Serve,
    Spec,
    encode_command,
)
from roq.runtime import process, procfs
from roq.runtime.reactor import Reactor

LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""A log above this is put aside (one older one is kept) when its child is started again."""
TAIL_BYTES: Final = 4_096
EMPTIED_SECONDS: Final = 10.0
LEFT_MAX: Final = 5
"""Logs that are named."""
"""A process that serves nobody any more has so long to end."""
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
ProcessEffect = (
    Spawn | Release | Remember | RememberLeader | RememberEpoch | Probe | Terminate | Kill
    | Discard | Forget | Erase
)  # fmt: skip


@dataclass(slots=True, eq=False)
class _Running:
    """A process, and the children that it serves, with their epochs.

    Attributes:
        name: of one that serves monitors; empty: it is that of one child.
        pipe: its pipe, open for writing; None: it takes no commands.
        most: how many monitors it may be given; those of an earlier life get no more.
    """

    process: Process
    name: str = ""
    pipe: int | None = None
    most: int = 0
    children: dict[str, int] = field(default_factory=dict)

    def tell(self, command: Command) -> None:
        """Send it a command, without waiting.

        Raises:
            OSError: it has not read for long, or the folder is gone.
        """
        if self.pipe is not None:
            os.write(self.pipe, encode_command(command))

    def close(self) -> None:
        """Give its descriptors back."""
        self.process.close()
        if self.pipe is not None:
            os.close(self.pipe)


class Processes:
    """Starts children, watches them, and tells when they have ended.

    Args:
        folder: where specs, records and logs go; absolute, and must exist.
        on_exit: called once for each child whose process ended.
        queues_per_process: so many monitors share a process.
    """

    def __init__(
        self,
        reactor: Reactor,
        folder: Path,
        on_exit: Callable[[Exited], None],
        queues_per_process: int = 1,
    ) -> None:
        self._reactor = reactor
        self._queues_per_process = queues_per_process
        self._folder = folder
        self._records = Records(folder)
        self._logs = LogFolders(folder / LOGS)
        self._on_exit = on_exit
        self._running: dict[str, _Running] = {}
        """By child."""
        self._emptied: list[_Running] = []
        """Processes whose last child was dropped, and that have not ended yet."""
        self._names: set[str] = set()
        """Of processes of monitors that run."""

    def adopt(self) -> tuple[Rested, list[Adopted]]:
        """Watch those that an earlier life of this host manager has left running. Comes first."""
        adopted = []
        self._logs.tidy()
        left = self._records.left()
        found: dict[int, _Running] = {}
        for spec, record in left.living:
            try:
                running = found.get(record.pid) or self._adopt(record)
            except OSError as error:
                log.warning(
                    "%s cannot be adopted: %s", spec.child, error, extra={"event": "not_adopted"}
                )
                continue
            found[record.pid] = running
            self._add(running, spec)
            adopted.append(Adopted(spec, record.pid, tuple(record.ports)))
        resting = tuple(sorted(left.resting))
        records = self._records
        epochs = records.leader_epoch(), records.epoch(), records.since()
        return Rested(resting, *epochs), adopted

    def perform(self, effect: ProcessEffect) -> Iterator[Spawned | SpawnFailed | Probed | Erased]:
        """Do what the machine wants done to a process or its files; gives its answer, if any."""
        match effect:
            case Spawn(spec, alone):
                yield self.spawn(spec, alone=alone)
            case Release(child, retire):
                self.release(child, retire=retire)
            case Remember(child, ports):
                self._records.write_ports(child, ports)
            case RememberLeader(epoch):
                self._records.write_leader(epoch)
            case RememberEpoch(epoch):
                self._records.write_epoch(epoch)
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
            case Erase():
                yield from self._erased(effect)

    def _erased(self, effect: Erase) -> Iterator[Erased]:
        try:
            found = self.erase(effect.queue, effect.queue_id, effect.number, empty=effect.empty)
            yield Erased(effect, found)
        except (LogRefused, OSError) as error:
            log.warning("%s", error, extra={"event": "log_stays"})
            yield Erased(effect, found=True, problem=str(error))

    def spawn(self, spec: Spec, *, alone: bool = False) -> Spawned | SpawnFailed:
        """Write the spec down and have a process serve it: a new one, or one of monitors with room.

        Args:
            alone: of a monitor: no others are in its process.
        """
        if isinstance(spec, ExchangeSpec) and spec.log and spec.has_log:
            number = spec.number
            if self._logs.lacks(spec.queue_id, number):
                why = f"the log of {exchange_name(number)} is not in {spec.log}"
                return SpawnFailed(spec.child, spec.epoch, why, no_log=True)
        try:
            path = self._records.write_spec(spec)
            if not isinstance(spec, MonitorSpec):
                running = self._start("roq.exchange", path, spec.child)
            else:
                running = (None if alone else self._with_room()) or self._start_monitors(
                    1 if alone else self._queues_per_process
                )
        except OSError as error:
            return SpawnFailed(spec.child, spec.epoch, _words_of(error))
        self._add(running, spec)
        try:
            self._records.write_process(spec, running.process.pid, running.name)
            running.tell(Serve(child=spec.child))
        except OSError as error:
            # Nobody would know it after our end.
            self._drop(running, spec.child)
            if not running.children:
                running.process.kill()
            return SpawnFailed(spec.child, spec.epoch, _words_of(error))
        return Spawned(spec.child, spec.epoch, running.process.pid)

    def open_files(self) -> dict[str, int]:
        """Child → how many descriptors it has open, of those that run."""
        counted = {
            name: procfs.open_files(each.process.pid) for name, each in self._running.items()
        }
        return {name: files for name, files in counted.items() if files is not None}

    def probe(self, child: str, epoch: int) -> Probed:
        """How its process is at this moment."""
        running = self._running.get(child)
        found = procfs.sample(running.process.pid) if running is not None else None
        if found is None:
            return Probed(child, epoch, "", 0)
        return Probed(child, epoch, found.state, found.ran_ns)

    def release(self, child: str, *, retire: bool) -> None:
        """Count a child as gone; a process that still serves it is told not to.

        Args:
            retire: the process is given no others.
        """
        running = self._running.get(child)
        if running is not None:
            running.most = 0 if retire else running.most
            self.terminate(child)
            self._drop(running, child)

    def terminate(self, child: str) -> None:
        """Ask it to end, if it still runs."""
        running = self._running.get(child)
        if running is None:
            return
        if not running.name:
            running.process.terminate()
            return
        try:
            running.tell(End(child=child, epoch=running.children[child]))
        except OSError as error:
            log.warning(
                "%s cannot be told to end: %s", child, error, extra={"event": "not_told"}
            )  # it is given up when its time is over

    def kill(self, child: str) -> None:
        """SIGKILL for its process, if it still runs."""
        if child in self._running:
            self._running[child].process.kill()

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

    def erase(self, queue: str, queue_id: bytes, number: int, *, empty: bool = False) -> bool:
        """Remove the log of an exchange from the disk; number -1: of all that do not run.

        Args:
            empty: only if it has never held anything.

        Returns:
            Whether there was any.

        Raises:
            LogRefused: the disk refuses to remove some.
        """
        found, refused = False, []
        numbers = self._logs.numbers(queue_id) if number == EVERYTHING else [number]
        for each in numbers:
            child = child_name(queue, each)
            runs = child in self._running
            try:
                found |= runs or self._logs.erase(child, queue_id, each, empty=empty)
            except (LogRefused, OSError) as error:
                refused.append(str(error))
        if refused:
            raise LogRefused("; ".join(refused[:LEFT_MAX]))
        return found

    def logs_left(self) -> Check:
        """Whether a log was left here that no definition wants, and that has held something."""
        left = [str(path) for child, path in self._logs.left() if child not in self._running]
        text = f"left with what is in them: {', '.join(left[:LEFT_MAX])}"
        detail = f"{text}; `roq log dump` shows it; remove them when they are not wanted"
        return Check(
            name="logs", ok=not left, detail=detail if left else "all are wanted", essential=False
        )

    def close(self, *, kill: bool) -> None:
        """Watch no more; with `kill` end those that still run, else leave them to themselves."""
        for running in dict.fromkeys([*self._running.values(), *self._emptied]):
            self._reactor.remove(running.process)
            if kill:
                running.process.stop(grace=0.0)
                for child in running.children:
                    self._records.forget(child)
                self._remove_pipe(running)
            running.close()
        self._running.clear()

    # --- processes --------------------------------------------------------------------------------

    def _start(self, module: str, argument: Path, name: str) -> _Running:
        self._rotate(name)
        child = process.spawn(
            [sys.executable, "-P", "-m", module, str(argument)], log_path=self._log(name)
        )
        return self._watch(_Running(child))

    def _with_room(self) -> _Running | None:
        """A process that may be given one monitor more."""
        used = dict.fromkeys(self._running.values())
        return next((each for each in used if len(each.children) < each.most), None)

    def _start_monitors(self, most: int) -> _Running:
        """Start a process that serves monitors as it is told."""
        name = next(n for n in (f"monitors-{i}" for i in count(1)) if n not in self._names)
        path = self._records.pipe(name)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        pipe = _open_pipe(path)
        try:
            running = self._start("roq.monitor", path, name)
        except OSError:
            os.close(pipe)
            raise
        running.name, running.pipe, running.most = name, pipe, most
        self._names.add(name)
        return running

    def _adopt(self, record: ProcessRecord) -> _Running:
        found = process.Adopted(record.pid, record.start)
        try:
            pipe = _open_pipe(self._records.pipe(record.process)) if record.process else None
        except OSError:
            found.close()
            raise
        # Its host manager may be elsewhere now: those that it has stay, and no others come.
        self._names.update({record.process} - {""})
        return self._watch(_Running(found, record.process, pipe))

    def _watch(self, running: _Running) -> _Running:
        self._reactor.add(running.process, lambda: self._ended(running))
        return running

    def _add(self, running: _Running, spec: Spec) -> None:
        running.children[spec.child] = spec.epoch
        self._running[spec.child] = running

    def _drop(self, running: _Running, child: str) -> None:
        """It is not this process's any more. One of monitors that has none left ends by itself."""
        del running.children[child], self._running[child]
        self._records.ended(child)
        if not running.children:
            self._emptied.append(running)
            self._reactor.call_later(EMPTIED_SECONDS, lambda: self._end_emptied(running))

    def _end_emptied(self, running: _Running) -> None:
        if running in self._emptied:
            running.process.kill()

    def _ended(self, running: _Running) -> None:
        status = running.process.status
        if status is None:
            return
        self._reactor.remove(running.process)
        if running in self._emptied:
            self._emptied.remove(running)
        self._names.discard(running.name)
        self._remove_pipe(running)
        running.close()
        children = list(running.children.items())
        for child, _ in children:
            del self._running[child]
            self._records.ended(child)
        for child, epoch in children:
            self._on_exit(Exited(child, epoch, status, self._last_line(running.name or child)))

    def _remove_pipe(self, running: _Running) -> None:
        if running.name:
            remove(self._records.pipe(running.name))

    # --- logs -------------------------------------------------------------------------------------

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


def _open_pipe(path: Path) -> int:
    # Both ways, so that it can be opened before its process does so.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def _words_of(error: OSError) -> str:
    """What the system says, of which file, and what to do about it."""
    words = error.strerror or str(error)
    if error.filename is not None:
        words += f": {error.filename}"
    advice = _ADVICE.get(error.errno or 0)
    return f"{words}; {advice}" if advice else words
