"""The folders of the logs of durable exchanges: `<data.dir>/logs/<id of the queue>/x<number>/`.

The exchange alone writes in there. This removes what is not wanted any more: at once under its
name, and file by file beside everything else, for a log may be large.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Final

from roq.model import exchange_name

LOGS: Final = "logs"
_GONE: Final = "removed-"
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

    def numbers(self, queue_id: bytes) -> list[int]:
        """The exchanges of a queue that have a log here."""
        try:
            names = os.listdir(self._folder / queue_id.hex())  # noqa: PTH208 - names are wanted
        except FileNotFoundError:
            return []
        except OSError as error:
            log.warning("%s", error, extra={"event": "file_stays"})
            return []
        return sorted(int(each[1]) for each in map(_EXCHANGE.fullmatch, names) if each)

    def erase(self, queue_id: bytes, number: int) -> None:
        """Remove the log of an exchange; another one of that name would begin anew at once."""
        path = self.path(queue_id, number)
        self._count += 1
        gone = self._folder / f"{_GONE}{os.getpid()}-{self._count}"
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("%s stays: %s", path, error.strerror, extra={"event": "file_stays"})
            return
        log.info("%s is removed", path, extra={"event": "log_removed"})
        self._remove_beside([gone], path.parent)

    def tidy(self) -> None:
        """Go on with what an earlier life was removing."""
        self._remove_beside(sorted(self._folder.glob(f"{_GONE}*")))

    def _remove_beside(self, folders: list[Path], *empty: Path) -> None:
        if folders:
            threading.Thread(
                target=_remove, args=(folders, empty), name="log removal", daemon=True
            ).start()


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
