"""Structured logs: text for people, JSON lines by option, on standard error.

One record per event in a process's life, never one per message; `extra={"event": …}` names the
event for programs. What a peer can provoke at will goes through `RateLimited`.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from roq.runtime.log_writer import LogWriter

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
_PLAIN: Final = frozenset(
    (*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName")
)
_KEYS_MAX: Final = 1_000
_ESCAPES: Final = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != ord("\n")
} | {ord("\n"): "\n  "}


def configure(level: str, format: str, *, process: str) -> None:  # noqa: A002 - the setting's name
    """Send all records of at least `level` to standard error.

    Args:
        level: one of `LEVELS`.
        format: one of `FORMATS`.
        process: who speaks, such as `gcm` or `exchange orders.x1`.
    """
    handler = LogWriter(sys.stderr)
    handler.setFormatter(_Json(process) if format == "json" else _Text(process))
    root = logging.getLogger()
    held = [record for each in root.handlers if isinstance(each, _Held) for record in each.records]
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    for record in held:
        if root.isEnabledFor(record.levelno):
            root.handle(record)


def hold() -> None:
    """Keep records back until `configure`: its arguments are only being read."""
    root = logging.getLogger()
    root.handlers[:] = [_Held()]
    root.setLevel(logging.INFO)


class RateLimited:
    """At most one line per key and interval; the next one says how many were left out."""

    def __init__(self, logger: logging.Logger, seconds: float = 5.0) -> None:
        self._logger = logger
        self._seconds = seconds
        self._last: dict[str, tuple[float, int]] = {}

    def warning(self, key: str, now: float, text: str, *values: object, event: str = "") -> None:
        """Log `text % values` unless `key` was logged less than the interval before `now`.

        Args:
            event: its name for programs, if that is not the key.
        """
        last, suppressed = self._last.get(key, (float("-inf"), 0))
        if now - last < self._seconds:
            self._last[key] = (last, suppressed + 1)
            return
        if len(self._last) >= _KEYS_MAX:
            self._last.clear()
        self._last[key] = (now, 0)
        more = f" ({suppressed} more like this)" if suppressed else ""
        with suppress(Exception):  # a logging handler that raises must not end who has to tell
            self._logger.warning("%s%s", text % values, more, extra={"event": event or key})


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


class _Held(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class _Text(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
        fields = "".join(
            f" {key}={value}" for key, value in _extra(record).items() if key != "event"
        )
        # What peers say is quoted in messages: it must not look like another line, or move the
        # cursor.
        message = f"{record.getMessage()}{fields}".translate(_ESCAPES)
        line = f"{stamp} {record.levelname:<7} {self._process}: {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str, ensure_ascii=False)
