"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DRAFT: Final = ".new"
"""What the name of a file that is being written ends with."""


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Put `data` in the place of the file; a reader sees the old one or all of the new one.

    Args:
        mode: who may read and write it, as for `open(2)`.

    Raises:
        OSError: what was there before is still there.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        draft.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
