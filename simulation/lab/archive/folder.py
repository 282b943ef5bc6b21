"""Folders of runs: their names, and the documents in them."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from roq.errors import RoQError
from roq.simulation.lab.archive.document import VERSION, Run, RunState, Series
from roq.simulation.lab.archive.life import gone

RUNS: Final = Path("simulation/runs")
"""Where runs are kept if nothing else is said."""
RUN_FILE: Final = "run.json"
SERIES_FILE: Final = "series.json"
BYTES_MAX: Final = 256 * 1024 * 1024
_ID: Final = re.compile(r"\A[a-z0-9][a-z0-9._-]{0,127}\Z")
T = TypeVar("T")


class RunError(RoQError):
    """A run cannot be kept or read; the text says which file and why."""


class _Versioned(msgspec.Struct):
    version: int = 0


def new_id(scenario: str, kind: str, now: float | None = None) -> str:
    """A name for a run: `ramp-live-20260131-235959`, in UTC.

    Args:
        scenario: its name.
        kind: `live` or `model`.
        now: seconds since 1970; None: now.
    """
    return f"{scenario}-{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"


def make(parent: Path, run_id: str) -> Path:
    """A new folder for a run; `-2`, `-3`, … is put behind a name that is taken.

    Raises:
        RunError: it cannot be made.
    """
    for number in range(1, 1_000):
        folder = parent / (run_id if number == 1 else f"{run_id}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"{folder}: cannot be made: {error.strerror}") from None
        return folder
    raise RunError(f"{parent}: has a thousand runs called {run_id}")


@contextmanager
def kept_if_filled(parent: Path, run_id: str) -> Iterator[Path]:
    """A new folder, as `make`; it goes again if nothing was put into it.

    So a run that has nothing to write leaves nothing, and one that must not write learns it before
    the work is done.
    """
    folder = make(parent, run_id)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def find(name: str, parent: Path = RUNS) -> Path:
    """The folder of a run, by its path, its id, or `latest`.

    Raises:
        RunError: there is none.
    """
    given = Path(name)
    if _is_file(given / RUN_FILE):
        return given
    if name == "latest":
        if found := runs(parent):
            return found[-1]
        raise RunError(f"there is no run in {parent}: make one with `roq sim run`")
    if _ID.match(name) and (parent / name / RUN_FILE).is_file():
        return parent / name
    raise RunError(f"there is no run {name!r}, neither here nor in {parent}")


def runs(parent: Path = RUNS) -> list[Path]:
    """The folders of all runs, the oldest first."""
    found = [path.parent for path in parent.glob(f"*/{RUN_FILE}")]
    return sorted(found, key=lambda folder: (folder / RUN_FILE).stat().st_mtime)


def read_run(folder: Path) -> Run:
    """What was asked, and what came out.

    A run that should go on, and whose process is gone, is given as abandoned.

    Raises:
        RunError: the file is missing, damaged or of a later version.
    """
    run = _read(folder / RUN_FILE, Run)
    if run.process is None or not gone(run.process):
        return run
    run = _read(folder / RUN_FILE, Run)  # it may just have ended in order
    if run.process is None:
        return run
    error = f"the process that ran it ({run.process.pid}) was killed"
    return msgspec.structs.replace(run, state=RunState.ABANDONED, error=error)


def settle(parent: Path = RUNS) -> list[Run]:
    """Write down of all abandoned runs that they are; gives those of which that was not known yet.

    Raises:
        RunError: it cannot be written down.
    """
    found = []
    for folder in runs(parent):
        with suppress(RunError):  # a reader of that one is told
            run = read_run(folder)
            if run.state is RunState.ABANDONED and run.process is not None:
                found.append((folder, msgspec.structs.replace(run, process=None)))
    for folder, run in found:
        write_run(folder, run)
    return [run for _, run in found]


def read_series(folder: Path) -> Series:
    """How it went.

    Raises:
        RunError: as `read_run`.
    """
    return _read(folder / SERIES_FILE, Series)


def write_run(folder: Path, run: Run) -> None:
    """Write or replace `run.json`, at once or not at all.

    A figure that is no number is left out, as JSON cannot tell it from one that is missing.
    """
    figures = {name: each for name, each in run.figures.items() if isfinite(each)}
    _write(folder / RUN_FILE, msgspec.structs.replace(run, figures=figures))


def write_series(folder: Path, series: Series) -> None:
    """Write or replace `series.json`, at once or not at all."""
    _write(folder / SERIES_FILE, series)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have, or a folder that is closed
        return False


def _write(path: Path, document: Run | Series) -> None:
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
        partial.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None


def _read(path: Path, kind: type[T]) -> T:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise RunError(f"{path}: cannot be read: it is no file")
        if found.st_size > BYTES_MAX:
            raise RunError(f"{path}: no run has more than {BYTES_MAX} bytes of this")
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).version
        if version > VERSION:
            raise RunError(f"{path}: was written by a later RoQ (version {version} of the file)")
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RunError(f"{path}: is damaged or not of a run: {error}") from None
