"""The folder of a run, and a keeper that removes it with everything that was started below it.

Whatever a run starts inherits a mark: an environment variable with the name of its folder. The
keeper is a process that waits until the run has ended, in whatever way, kills what carries the
mark, and removes the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Final

import psutil

from roq.simulation.real.waiting import until

MARK: Final = "ROQ_CHAOS_SPARK"
CLEAN_SECONDS: Final = 20.0
SHORT_LIVED: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For a Java that ends soon: better code and a look at each class cost more than they bring."""
_PREFIX: Final = "roq-chaos-spark-"
_OURS: Final = re.compile(rf"{_PREFIX}(\d+)-\w+")


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder until the block ends; what was started meanwhile is gone then, and so is it.

    Also when this process is killed.
    """
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    (folder / "tmp").mkdir()
    keeper = Popen(
        [sys.executable, "-P", "-m", "roq.simulation.experiments.chaos_spark.keeper", str(folder)],
        stdin=PIPE,
        stdout=DEVNULL,
        start_new_session=True,
    )
    before = dict(os.environ)
    try:
        os.environ.update(_marked(folder))
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
        assert keeper.stdin is not None  # noqa: S101 - a pipe is wanted above
        keeper.stdin.close()
        keeper.wait()


def sweep() -> list[Path]:
    """Remove what runs have left whose keeper was killed, too; gives their folders."""
    left = [folder for folder in folders() if not psutil.pid_exists(_owner(folder))]
    for folder in left:
        clean(folder)
    return left


def folders() -> list[Path]:
    """Those of all runs of this user."""
    return sorted(
        path
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
        if _OURS.fullmatch(path.name) and path.stat().st_uid == os.geteuid()
    )


def clean(folder: Path) -> None:
    """Kill whatever carries the mark of this folder, and remove it; idempotent."""

    def quiet() -> bool:
        found = marked(folder)
        for process in found:
            _kill(process)
        return not found

    until(quiet, CLEAN_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def marked(folder: Path) -> list[psutil.Process]:
    """The processes of a run, without the one that has begun it."""
    return [process for process in psutil.process_iter() if _mark(process) == str(folder)]


def _marked(folder: Path) -> dict[str, str]:
    # Java leaves files for its tools in the folder for temporary files when it is killed.
    java = f"-XX:-UsePerfData -Djava.io.tmpdir={folder / 'tmp'} {SHORT_LIVED}"
    return {MARK: str(folder), "TMPDIR": str(folder / "tmp"), "JDK_JAVA_OPTIONS": java}


def _owner(folder: Path) -> int:
    found = _OURS.fullmatch(folder.name)
    return int(found[1]) if found else 0


def _mark(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return str(process.environ().get(MARK, ""))
    except (psutil.Error, OSError):
        return ""  # it has ended, or is another user's


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return  # it has ended


def keep(folder: Path) -> None:
    """Wait until standard input ends with the process that has started us; then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 4_096):
        continue
    clean(folder)
