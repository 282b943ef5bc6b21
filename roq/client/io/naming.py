"""How a client calls itself, so that people find its program in `roq top`."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import PurePath
from typing import Final

from roq.model import CLIENT_NAME_MAX, check_client_name

PROGRAM_CHARACTERS: Final = 24
HOST_CHARACTERS: Final = 28


def client_name(name: str | None) -> str:
    """This name, or by default `program/host:pid`.

    Raises:
        InvalidName: no valid name.
        TypeError: no text.
    """
    if name is not None:
        return check_client_name(name)
    program = PurePath(sys.argv[0]).name if sys.argv else ""
    shown = program if program not in {"", "-c", "-m", "-"} else "python"
    host = socket.gethostname()
    full = f"{shown[:PROGRAM_CHARACTERS]}/{host[:HOST_CHARACTERS]}:{os.getpid()}"
    return "".join(each if each.isprintable() else "?" for each in full)[:CLIENT_NAME_MAX]
