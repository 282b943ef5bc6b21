"""Settings as the text of a TOML file, for programs that start daemons."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Final

from roq.errors import ConfigError

Section = Mapping[str, str | int | float | bool | list[str]]
"""Keys and values of one section."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def to_toml(sections: Mapping[str, Mapping[str, object]], over: Mapping[str, Section]) -> str:
    """Sections of plain values as TOML; `over` replaces and adds single keys.

    Raises:
        ConfigError: a name or value that a configuration file cannot have.
    """
    lines = []
    for name in [*sections, *(name for name in over if name not in sections)]:
        values = {**sections.get(name, {}), **over.get(name, {})}
        lines.append(f"[{_bare(name)}]")
        lines.extend(f"{_bare(key)} = {_value(value, key)}" for key, value in values.items())
        lines.append("")
    return "\n".join(lines)


def _bare(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} cannot be the name of a setting")
    return name


def _value(value: object, key: str) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's as well, with two exceptions."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} must be a finite number, not {value}")
    # TOML knows no pairs of surrogates, so what is beyond ASCII stays as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
