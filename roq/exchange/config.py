"""Reads the file in which the host manager has written down what this exchange is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from roq.errors import ConfigError
from roq.model import QUEUE_ID_BYTES, Limits
from roq.number_ranges import UNREADABLE
from roq.protocol.spec import ExchangeSpec

_EPOCHS = 1 << 63
MAY_BE_NONE: Final = frozenset(
    {"disk_free_bytes", "disk_free_files", "log_until_done", "message_seconds", "ordered"}
)
"""Limits that may be 0."""


def load_spec(path: Path) -> ExchangeSpec:
    """The exchange that `path` describes.

    Raises:
        ConfigError: no such file, not JSON, or values that make no exchange; names all of them.
    """
    try:
        spec = msgspec.json.decode(path.read_bytes(), type=ExchangeSpec)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UNREADABLE as error:
        raise ConfigError(f"{path}: {error}") from None
    problems = [*_spec_problems(spec), *_limit_problems(spec.limits)]
    if problems:
        raise ConfigError(f"{path}: " + "; ".join(problems))
    return spec


def _spec_problems(spec: ExchangeSpec) -> list[str]:
    problems = []
    if len(spec.queue_id) != QUEUE_ID_BYTES:
        problems.append(f"queue_id has {len(spec.queue_id)} bytes instead of {QUEUE_ID_BYTES}")
    if not 0 <= spec.epoch < _EPOCHS:
        problems.append(f"epoch {spec.epoch} is out of range")
    if not 0 <= spec.number < 1 << 32:
        problems.append(f"number {spec.number} is out of range")
    if not spec.kpi_seconds > 0:
        problems.append(f"kpi_seconds is {spec.kpi_seconds} and must be above 0")
    return problems


def _limit_problems(limits: Limits) -> list[str]:
    return [
        f"limits.{name} is {value} and must be at least 1"
        for name, value in msgspec.structs.asdict(limits).items()
        if value < (name not in MAY_BE_NONE)
    ]
