"""Writes log lines and nothing worse: a log that cannot be written costs lines, never a daemon.

A full disk, a terminal that was closed, a pipe whose reader has gone: the line is lost and counted.
A pipe whose reader has stopped reading: nobody waits for it, the line is lost as well. The next one
that can be written says how many were lost, and why.
"""

from __future__ import annotations

import io
import logging
import os
import select
from typing import Final, TextIO

PIECE_BYTES: Final = select.PIPE_BUF
"""What a pipe takes at once without waiting if it is writable at all."""
_NOBODY_READS: Final = "nobody reads them"


class LogWriter(logging.Handler):
    """Writes records to a stream, one a line.

    Args:
        stream: usually standard error; None if there is none.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self._descriptor = _descriptor(stream)
        self._writable = select.poll()
        if self._descriptor is not None:
            self._writable.register(self._descriptor, select.POLLOUT)
        self._lost = 0
        self._reason = ""
        self._broken = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, or count it as lost; never raises, never waits."""
        line = self._line(record)
        if self._lost:
            text = f"{self._lost} lines before this could not be written: {self._reason}"
            line = f"{self._line(_told(text))}\n{line}"
        try:
            self._write(f"{line}\n")
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self._lost += 1
            self._reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        else:
            self._lost = 0

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record)
        except Exception as error:  # noqa: BLE001 - a bug in a message must not end a daemon
            where = f"{record.pathname}:{record.lineno}"
            return self.format(_told(f"a record of {where} cannot be written: {error!r}"))

    def _write(self, text: str) -> None:
        if self._descriptor is None:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
            return
        # Past the stream's buffer: what stays there would be tried again at the end of the process,
        # and spoil its exit code.
        data = memoryview(f"{chr(10) * self._broken}{text}".encode(errors="backslashreplace"))
        while data:
            if not self._writable.poll(0):
                raise BlockingIOError(0, _NOBODY_READS)
            self._broken = True
            data = data[os.write(self._descriptor, data[:PIECE_BYTES]) :]
        self._broken = False


def _descriptor(stream: TextIO | None) -> int | None:
    """The file below a stream; None if it has none, as in tests."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError, io.UnsupportedOperation):
        return None


def _told(text: str) -> logging.LogRecord:
    record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (), None)
    record.event = "log_lost"
    return record
