"""File descriptors: as many as the system allows, and whether any are left.

A server that has none left lets nobody in any more: connections wait in the kernel, and those that
exist go on. An exchange says so and tries again twice a second; where libzmq lets them in, it says
nothing, and its thread spins. A connection of a client is not begun.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.runtime import procfs

EXHAUSTED: Final = (
    "no descriptor is left: no new client can connect; "
    "raise LimitNOFILE (ulimit -n) of the host manager"
)
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NEAR: Final = 8
"""With so few left, it is for want of them that a socket, which takes several, was not made."""


def raise_limit(most: int | None = None) -> int:
    """Take as many as this process may without more rights, at most so many; gives the limit.

    A limit that is higher already stays, and so does one that cannot be changed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if most is None or 0 <= hard < most else most
    if soft == wanted or (most is not None and not 0 <= soft < wanted):
        return soft
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def exhausted() -> bool:
    """Whether none can be opened at the moment, by this process or by the system."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _NONE_LEFT
    return False


def need(count: int, what: str) -> None:
    """Make sure that so many are left for this: libzmq ends the process if a context has too few.

    Raises:
        Unavailable: there are fewer; says how many are open, and how many may be.
    """
    left = _left()
    if left is not None and left < count:
        raise Unavailable(f"too few descriptors are left for {what}: {_figures(left)}")


def reason(error: OSError | zmq.ZMQError) -> str:
    """What an error says, with the figures if it is for want of descriptors."""
    text = error.strerror or str(error)
    if error.errno not in _NONE_LEFT:
        return text
    left = _left()
    if left is None or left > _NEAR:
        return f"{text}: the system, or this client's ZeroMQ context, has none left"
    return f"{text}: {_figures(left)}"


def _left() -> int | None:
    """How many this process may still open; None: nobody knows, or as many as it likes."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    used = procfs.open_files(os.getpid())
    if used is None and exhausted():
        used = limit  # so many that they cannot even be counted
    return None if used is None or limit < 0 else limit - used


def _figures(left: int) -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"{limit - left} of {limit} are open; raise the limit (ulimit -n, LimitNOFILE) or close "
        "clients that are not needed"
    )
