"""The folders of the logs of durable exchanges: `<data.dir>/logs/<id of the queue>/x<number>/`.

The exchange alone writes in there. This removes what is not wanted any more: at once under its
name, and file by file beside everything else, for a log may be large.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Final

from roq.log.disk import DiskFiles
from roq.log.files import LogRefused
from roq.log.meta import is_there, read_meta
from roq.log.survey import holds_nothing
from roq.model import exchange_name

LOGS: Final = "logs"
_GONE: Final = "removed-"
_LEFT: Final = ".left"
"""Of a file beside a folder that was left, though nobody wants it; in it stands of whom."""
_EXCHANGE: Final = re.compile(r"x([1-9][0-9]{0,9})")

log = logging.getLogger(__name__)


class LogFolders:
    """All of one host.

    Args:
        folder: absolute; it is there once there is a log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def path(self, queue_id: bytes, number: int) -> Path:
        """Where the log of an exchange lies."""
        return self._folder / queue_id.hex() / exchange_name(number)

    def lacks(self, queue_id: bytes, number: int) -> bool:
        """Whether it is certain that the log of an exchange is not here."""
        try:
            names = os.listdir(self.path(queue_id, number))  # noqa: PTH208 - names are wanted
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # its process tells what is wrong
        return not is_there(names)

    def numbers(self, queue_id: bytes) -> list[int]:
        """The exchanges of a queue that have a log here.

        Raises:
            LogRefused: the disk does not tell.
        """
        try:
            names = os.listdir(self._folder / queue_id.hex())  # noqa: PTH208 - names are wanted
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LogRefused(f"logs stay: {error}") from error
        return sorted(int(each[1]) for each in map(_EXCHANGE.fullmatch, names) if each)

    def left(self) -> list[tuple[str, Path]]:
        """The logs that `erase` has left, with the names of their exchanges (`orders.x1`)."""
        found = []
        with contextlib.suppress(OSError):  # the disk gives none now, and is asked again
            for mark in self._folder.glob(f"*/*{_LEFT}"):
                with contextlib.suppress(OSError, ValueError):
                    path = mark.with_suffix("")
                    if path.is_dir():
                        found.append((mark.read_text("utf-8"), path))
        return found

    def erase(self, child: str, queue_id: bytes, number: int, *, empty: bool = False) -> bool:
        """Remove the log of an exchange; another one of that name would begin anew at once.

        What says of itself that it is the log of another exchange, as was moved here by hand, is
        left.

        Args:
            child: the name of that exchange (`orders.x1`), under which a log that is left is known.
            empty: only if it has never held anything; else it is left.

        Returns:
            Whether there was one.

        Raises:
            LogRefused: the disk refuses to remove it.
        """
        path = self.path(queue_id, number)
        mark = path.with_suffix(_LEFT)
        why = _of_another(path, queue_id, number)
        if not why and empty and not _is_empty(path):
            why = "its exchange is not wanted, and it has held something"
        if why:
            log.error("%s is left: %s", path, why, extra={"event": "log_left"})
            with contextlib.suppress(OSError):
                mark.write_text(child, "utf-8")
            return True
        with contextlib.suppress(OSError):
            mark.unlink(missing_ok=True)
        gone = self._unused()
        try:
            path.rename(gone)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise LogRefused(f"{path} stays: {error.strerror}") from error
        log.info("%s is removed", path, extra={"event": "log_removed"})
        self._remove_beside([gone], path.parent)
        return True

    def _unused(self) -> Path:
        """A name that no earlier life has left, which may have had the same pid."""
        while True:
            self._count += 1
            path = self._folder / f"{_GONE}{os.getpid()}-{self._count}"
            if not path.exists():
                return path

    def tidy(self) -> None:
        """Go on with what an earlier life was removing."""
        self._remove_beside(sorted(self._folder.glob(f"{_GONE}*")))

    def _remove_beside(self, folders: list[Path], *empty: Path) -> None:
        if folders:
            threading.Thread(
                target=_remove, args=(folders, empty), name="log removal", daemon=True
            ).start()


def _of_another(path: Path, queue_id: bytes, number: int) -> str:
    """Whose log it is, if it says that it is another one's; empty: not so."""
    if not path.is_dir():
        return ""
    try:
        with contextlib.closing(DiskFiles(path, read_only=True)) as files:
            meta = read_meta(files)
    except (LogRefused, OSError):
        return ""
    if (meta.queue, meta.exchange) == (queue_id.hex(), number):
        return ""
    return (
        f"it is the log of exchange {exchange_name(meta.exchange)} of queue {meta.queue}, and was "
        "moved here; move it back, or away"
    )


def _is_empty(path: Path) -> bool:
    if not path.is_dir():
        return True
    try:
        with contextlib.closing(DiskFiles(path, read_only=True)) as files:
            return holds_nothing(files)
    except (LogRefused, OSError):
        return False


def _remove(folders: list[Path], empty: tuple[Path, ...]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            log.warning("%s cannot be removed: it stays", folder, extra={"event": "file_stays"})
    for folder in empty:
        try:
            folder.rmdir()
        except OSError:
            return  # another exchange of the queue has a log here
