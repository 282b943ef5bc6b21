"""Settings out of a TOML file and the environment, checked as a whole before anything starts.

Programs that start daemons write the text of such a file here, too.

A configuration is a frozen msgspec struct whose fields are sections, themselves structs; defaults,
types and bounds stand there (`Annotated[int, msgspec.Meta(ge=1)]`, or a `__post_init__` that
raises `ValueError`). Reading it gives the finished object or one error that lists everything that
is wrong, so nobody has to correct a file problem by problem.

    file                 [ports]                    the first of  --config FILE
                         base = 5000                              $ROQ_HOME/config/<name>.toml
    environment          ROQ_GCM_PORTS_BASE=5000                  ./config/<name>.toml
    (wins)                                                        /etc/roq/<name>.toml
"""

from __future__ import annotations

import difflib
import json
import logging
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar, get_args

import msgspec
from msgspec.structs import FieldInfo

from roq.errors import ConfigError

log = logging.getLogger(__name__)

SYSTEM_FOLDER: Final = Path("/etc/roq")
FILE_BYTES_MAX: Final = 1024 * 1024
_SHOWN_MAX: Final = 40
_OTHERS: Final = "others' sections"
_TRUE: Final = {"1", "true", "yes", "on"}
_FALSE: Final = {"0", "false", "no", "off"}

Kind = TypeVar("Kind", bound=msgspec.Struct)
Keys = tuple[str, ...]

OtherSections: TypeAlias = Annotated[
    dict[str, dict[str, object]], msgspec.Meta(extra={_OTHERS: True})
]
"""Type of the field that takes the sections which nobody knows yet when the file is read, by name.

Only a file has them, no variable. The caller knows what they should be, and reads them with
`convert`.
"""


def load(
    kind: type[Kind],
    name: str,
    *,
    path: Path | None = None,
    environ: Mapping[str, str],
    prefix: str,
) -> Kind:
    """Read the settings called `name`.

    Args:
        kind: what they are: a struct of sections.
        name: of the file, without `.toml`.
        path: the file, or the folder that holds it; None looks in the usual places, and no file
            there means the defaults.
        environ: where variables are looked up.
        prefix: of the variables: `<prefix>_<SECTION>_<KEY>`.

    Raises:
        ConfigError: the file named by `path` is missing, or the settings are wrong; the text lists
            all problems with file (or variable) and key.
    """
    file = find(name, path, environ)
    reader = _Reader(
        file="the defaults" if file is None else str(file), prefix=prefix, environ=environ
    )
    result = reader.struct(kind, {} if file is None else _parse(file), (), None)
    reader.look_for_unknown_variables(kind)
    if reader.problems or result is None:
        raise ConfigError(_text(reader.problems))
    log.info(
        "configuration from %s",
        " and ".join([reader.file, *sorted(reader.used)]),
        extra={"event": "configured"},
    )
    return result


def convert(kind: type[Kind], table: Mapping[str, object], *, source: str, section: str) -> Kind:
    """Make settings out of one section that has been read before.

    Args:
        kind: what they are.
        table: what the section holds.
        source, section: where it stands, for the errors.

    Raises:
        ConfigError: lists all problems with source and key.
    """
    reader = _Reader(file=source, prefix="", environ={})
    result = reader.struct(kind, table, tuple(section.split(".")), None)
    if reader.problems or result is None:
        raise ConfigError(_text(reader.problems))
    return result


def find(name: str, path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file that `load` would read, None if there is none.

    Raises:
        ConfigError: `path` is given and there is no file.
    """
    if path is not None:
        file = path / f"{name}.toml" if path.is_dir() else path
        if not file.is_file():
            raise ConfigError(f"there is no configuration file {file}")
        return file
    home = environ.get("ROQ_HOME", "").strip()
    folders = [Path(home) / "config"] if home else []
    for folder in [*folders, Path("config"), SYSTEM_FOLDER]:
        file = folder / f"{name}.toml"
        if file.is_file():
            return file
    return None


def _parse(file: Path) -> Mapping[str, object]:
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{file}: has more than {FILE_BYTES_MAX} bytes, so it is something else")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is no UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: is no TOML: {error}") from None


def _text(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return "\n  ".join([f"{len(problems)} problems in the configuration:", *problems])


@dataclass(slots=True)
class _Reader:
    """Turns a table into structs and collects what is wrong on the way."""

    file: str
    prefix: str
    environ: Mapping[str, str]
    problems: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def struct(
        self, kind: type[Kind], table: Mapping[str, object], keys: Keys, base: object
    ) -> Kind | None:
        """One struct; None, after noting why, if it cannot be made.

        Args:
            table: what the file has for it.
            keys: where that stands.
            base: a struct whose values are the defaults; None: those of `kind`.
        """
        before = len(self.problems)
        fields = {item.encode_name: item for item in msgspec.structs.fields(kind)}
        values: dict[str, object] = {}
        open_to = [fields.pop(key).name for key in list(fields) if _is_open(fields[key])]
        others = {key: value for key, value in table.items() if key not in fields}
        for key, value in others.items():
            if not (open_to and isinstance(value, dict)):
                self._unknown_key(key, keys, fields)
        values.update(dict.fromkeys(open_to, others))
        for key, item in fields.items():
            value = self._field(item, table, (*keys, key), base)
            if value is not msgspec.UNSET:
                values[item.name] = value
        if len(self.problems) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            self._note(keys, str(error))
            return None

    def _field(
        self, item: FieldInfo, table: Mapping[str, object], keys: Keys, base: object
    ) -> object:
        default = _default(item) if base is None else getattr(base, item.name)
        value = table.get(keys[-1], msgspec.UNSET)
        section = _section(item)
        if section is not None:
            if value is msgspec.UNSET:
                value = {}
            if not isinstance(value, dict):
                self._note(keys, f"is a section, write [{'.'.join(keys)}] and its keys below")
                return msgspec.UNSET
            return self.struct(section, value, keys, None if default is msgspec.UNSET else default)
        variable = _variable(self.prefix, keys)
        if variable in self.environ:
            self.used.add(variable)
            return self._from_variable(item, variable)
        if value is not msgspec.UNSET:
            return self._from_file(item, value, keys)
        if default is msgspec.UNSET:
            self._note(keys, f"is missing: set it here or by the variable {variable}")
        return default

    def _from_file(self, item: FieldInfo, value: object, keys: Keys) -> object:
        try:
            return _finite(msgspec.convert(value, item.type))
        except (msgspec.ValidationError, ValueError) as error:
            self._note(keys, _reason(error))
            return msgspec.UNSET

    def _from_variable(self, item: FieldInfo, variable: str) -> object:
        text = self.environ[variable]
        try:
            return _finite(msgspec.convert(_words(item, text), item.type, strict=False))
        except (msgspec.ValidationError, ValueError) as error:
            shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
            self.problems.append(f"environment: {variable}={shown!r}: {_reason(error, text=True)}")
            return msgspec.UNSET

    # --- what nobody knows ------------------------------------------------------------------------

    def _unknown_key(self, key: str, keys: Keys, fields: Mapping[str, FieldInfo]) -> None:
        nearest = difflib.get_close_matches(key, fields, n=1)
        hint = f"did you mean {'.'.join((*keys, nearest[0]))}?" if nearest else (
            f"known here: {', '.join(fields) or 'nothing'}"
        )  # fmt: skip
        self._note((*keys, key), f"unknown key, {hint}")

    def look_for_unknown_variables(self, kind: type[msgspec.Struct]) -> None:
        """Refuse variables of a known section with an unknown key; mention all others.

        Not every variable with our prefix is meant for us: container systems set such as
        `ROQ_GCM_SERVICE_HOST` for a service of that name.
        """
        known = {_variable(self.prefix, keys): keys for keys in _leaves(kind, ())}
        sections = {_variable(self.prefix, keys[:-1]) for keys in known.values() if keys[:-1]}
        for name in sorted(self.environ):
            if not name.startswith(f"{self.prefix}_") or name in known:
                continue
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            if any(name.startswith(f"{section}_") for section in sections):
                self.problems.append(f"environment: {name}: unknown variable{hint}")
            else:
                log.warning(
                    "the variable %s is no setting and is ignored%s", name, hint,
                    extra={"event": "unknown_variable"},
                )  # fmt: skip

    def _note(self, keys: Keys, problem: str) -> None:
        self.problems.append(": ".join(filter(None, [self.file, ".".join(keys), problem])))


def _is_open(item: FieldInfo) -> bool:
    """Whether this field takes the sections that nobody knows yet."""
    return any(
        isinstance(meta, msgspec.Meta) and _OTHERS in (meta.extra or {})
        for meta in get_args(item.type)[1:]
    )


def _section(item: FieldInfo) -> type[msgspec.Struct] | None:
    kind = item.type
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _default(item: FieldInfo) -> object:
    """The default of a field, UNSET if it has none."""
    if item.default is not msgspec.NODEFAULT:
        return item.default
    if item.default_factory is not msgspec.NODEFAULT:
        return item.default_factory()
    return msgspec.UNSET


def _leaves(kind: type[msgspec.Struct], keys: Keys) -> Iterator[Keys]:
    """The dotted names of all settings that are not sections."""
    for item in msgspec.structs.fields(kind):
        section = _section(item)
        if section is not None:
            yield from _leaves(section, (*keys, item.encode_name))
        elif not _is_open(item):
            yield (*keys, item.encode_name)


def _variable(prefix: str, keys: Keys) -> str:
    return "_".join((prefix, *keys)).upper().replace("-", "_")


def _words(item: FieldInfo, text: str) -> object:
    """The text of a variable in the shape of its type: lists are separated by commas."""
    match msgspec.inspect.type_info(item.type):
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return [word.strip() for word in text.split(",")] if text.strip() else []
        case msgspec.inspect.BoolType():
            word = text.strip().lower()
            return True if word in _TRUE else False if word in _FALSE else text
        case msgspec.inspect.StrType():
            return text
        case _:
            return text.strip()


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _reason(error: Exception, *, text: bool = False) -> str:
    words = str(error)
    if text:  # a variable is always text, so saying that it is does not help
        words = words.removesuffix(", got `str`")
    return words[:1].lower() + words[1:]


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
