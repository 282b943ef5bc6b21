"""Files that are there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DRAFT: Final = ".new"
"""What the name of a file that is being written ends with."""


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file; a reader sees the old one or all of the new one.

    Raises:
        OSError: what was there before is still there.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
