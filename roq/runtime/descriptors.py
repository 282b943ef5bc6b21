"""File descriptors: as many as the system allows, and whether any are left.

A server that has none left lets nobody in any more, and libzmq says nothing about it: connections
wait in the kernel, and its thread spins. Those that exist go on.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

EXHAUSTED: Final = (
    "no descriptor is left: nobody new can connect, and one processor is busy with that; "
    "raise LimitNOFILE (ulimit -n) of the host manager"
)


def raise_limit() -> int:
    """Take as many as this process may without asking anybody; gives how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def exhausted() -> bool:
    """Whether none can be opened at the moment, by this process or by the system."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in {errno.EMFILE, errno.ENFILE}
    return False
