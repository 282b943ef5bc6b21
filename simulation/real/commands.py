"""What a worker process is told: one JSON document a line, over a pipe."""

from __future__ import annotations

import os
import select
from typing import Final, TypeAlias

import msgspec

_READ_BYTES: Final = 65_536
FOREVER_SECONDS: Final = 3_600.0


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="command"):
    pass


class Open(_Command, frozen=True, kw_only=True, tag="open"):
    """Connect."""


class Rate(_Command, frozen=True, kw_only=True, tag="rate"):
    """Publish so many messages a second from now on; below 0: as many as go."""

    per_second: float


class Move(_Command, frozen=True, kw_only=True, tag="move"):
    """Publish at the next relay (naive hand-off only)."""


class Finish(_Command, frozen=True, kw_only=True, tag="finish"):
    """Bring the work to its end, write down that it is done, and end."""


Command: TypeAlias = Open | Rate | Move | Finish

_decoder = msgspec.json.Decoder(Command)


def line(command: Command) -> bytes:
    """A command as one line."""
    return msgspec.json.encode(command) + b"\n"


class Commands:
    """A pipe, read line by line, without waiting longer than wanted."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    def next(self, timeout: float) -> Command | None:
        """The next command; None if there is none in time.

        Raises:
            EOFError: the process that gave commands has gone.
            msgspec.DecodeError: a line is no command.
        """
        while b"\n" not in self._buffer:
            if self._ended:
                raise EOFError
            if not select.select([self._descriptor], [], [], timeout)[0]:
                return None
            data = os.read(self._descriptor, _READ_BYTES)
            self._ended = not data
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\n")
        found: Command = _decoder.decode(first)
        return found

    def wait_for(self, kind: type[Command]) -> None:
        """Until such a command comes.

        Raises:
            EOFError: the process that gave commands has gone.
        """
        while not isinstance(self.next(FOREVER_SECONDS), kind):
            continue
