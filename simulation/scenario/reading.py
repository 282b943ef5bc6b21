"""Scenarios out of files: YAML, or the old JSON. Errors name file, line and key."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import yaml

from roq.errors import ConfigError
from roq.simulation.scenario.checks import problems
from roq.simulation.scenario.legacy import LEGACY_KEYS, from_legacy
from roq.simulation.scenario.rates import Trace
from roq.simulation.scenario.scenario import PublisherGroup, Scenario

FOLDER: Final = Path(__file__).parents[1] / "scenarios"
"""The scenarios that come with RoQ."""
BYTES_MAX: Final = 1024 * 1024
POINTS_BYTES_MAX: Final = 64 * 1024 * 1024
NODES_MAX: Final = 1_000_000
_AT: Final = re.compile(r"(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?\Z", re.DOTALL)
_UNKNOWN: Final = re.compile(r"unknown field `([^`.\[\]]+)`")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class ScenarioError(ConfigError):
    """A scenario cannot be read; the text names file, line and key."""


def known() -> list[Path]:
    """The scenarios that come with RoQ, by name."""
    return sorted(FOLDER.glob("*.yaml"))


def find(name: str) -> Path:
    """The file of a scenario, by its name or by its path.

    Raises:
        ScenarioError: there is none.
    """
    path = Path(name)
    inside = FOLDER / f"{name}.yaml"
    try:
        if path.is_file():
            return path
        if inside.is_file() and inside.parent == FOLDER:
            return inside
    except OSError as error:
        raise ScenarioError(f"{name}: cannot be read: {error.strerror}") from None
    names = ", ".join(each.stem for each in known())
    raise ScenarioError(f"there is no scenario {name!r}: give a file, or one of {names}")


def read(path: Path) -> Scenario:
    """The scenario in a file.

    Raises:
        ScenarioError: it cannot be read, or does not say what a scenario says.
    """
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ScenarioError(f"{path}: no scenario has more than {BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Scenario:
    """The scenario in a text.

    Args:
        text: YAML, or the JSON of the old tool.
        path: where it comes from, for errors, traces beside it, and the name if it has none.

    Raises:
        ScenarioError: as `read`.
    """
    node, data = _understood(text, path)
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: a scenario is a mapping with `name`, `title` and `phases`")
    try:
        if data.keys() & LEGACY_KEYS and "phases" not in data:
            return from_legacy(data, _name(path))
        data.setdefault("name", _name(path))
        scenario = msgspec.convert(data, Scenario, strict=False)
    except msgspec.ValidationError as error:
        raise ScenarioError(_located(str(error), node, path)) from None
    for problem in problems(scenario):
        line = _line(node, problem.path)
        raise ScenarioError(f"{path}:{line}: {problem.key}: {problem.text}")
    return _with_traces(scenario, node, path)


def _understood(text: str, path: Path) -> tuple[yaml.Node | None, object]:
    """A text as nodes, which know their lines, and as plain objects."""
    try:
        loader = _Strict(text)
        node = loader.get_single_node()
        if node is None:
            return None, None
        if _whole(node, {}) > NODES_MAX:
            raise ScenarioError(f"{path}: its aliases (`*`) stand for too much")
        return node, loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ScenarioError(f"{path}{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: {error}") from None
    except RecursionError:
        raise ScenarioError(f"{path}: is nested too deeply") from None


def _whole(node: yaml.Node, found: dict[int, int]) -> int:
    """How many nodes one is, with all that its aliases stand for."""
    if id(node) not in found:
        found[id(node)] = NODES_MAX + 1  # for a node that holds itself
        inside = node.value if isinstance(node, yaml.CollectionNode) else []
        pairs = isinstance(node, yaml.MappingNode)
        parts = (part for each in inside for part in (each if pairs else (each,)))
        found[id(node)] = 1 + sum(_whole(part, found) for part in parts)
    return found[id(node)]


def _name(path: Path) -> str:
    """What a scenario is called that has no name: as its file."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:64] or "scenario"


class _Strict(yaml.SafeLoader):
    """Refuses what YAML would take and no author means.

    Keys are words, and none stands twice in a mapping: YAML would take the last one. `<<` is not
    understood, as a short text could become any number of keys by it.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _refused("a key is a word", key)
            if key.value == "<<":
                raise _refused("`<<` is not understood here", key)
            if key.value in seen:
                raise _refused(f"key `{key.value}` stands here twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a number or a date that is none
            raise _refused(str(error), node) from None


def _refused(why: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(problem=why, problem_mark=node.start_mark)


def _located(message: str, node: yaml.Node | None, path: Path) -> str:
    found = _AT.match(message)
    assert found is not None  # noqa: S101 - it matches every text
    where = found["path"] or "$"
    key = where.removeprefix("$").removeprefix(".")
    unknown = _UNKNOWN.search(found["text"])
    line = _line(node, f"{where}.{unknown[1]}" if unknown is not None else where)
    return f"{path}:{line}: {key or 'scenario'}: {found['text']}"


def _line(node: yaml.Node | None, where: str) -> int:
    """The line (from 1) of what a path such as `$.phases[1].rate` means, or of what is around."""
    line = 1
    for name, index in _STEP.findall(where):
        inner = _inside(node, name, index)
        if inner is None:
            break
        node = inner
        line = node.start_mark.line + 1
    return line


def _inside(node: yaml.Node | None, name: str, index: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode) and name:
        return next((value for key, value in node.value if key.value == name), None)
    if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
        inner: yaml.Node = node.value[int(index)]
        return inner
    return None


def _with_traces(scenario: Scenario, node: yaml.Node | None, path: Path) -> Scenario:
    """Points that stand in files of their own are read in."""

    def read_in(group: PublisherGroup, where: str) -> PublisherGroup:
        rate = group.rate
        if not isinstance(rate, Trace) or rate.points:
            return group
        try:
            rate = _trace(path.parent / rate.points_file)
        except OSError as error:
            why = f"{rate.points_file!r}: {error.strerror or error}"
            text = f"{why} - at `{where}.rate.points_file`"
            raise ScenarioError(_located(text, node, path)) from None
        return msgspec.structs.replace(group, rate=rate)

    phases = [
        msgspec.structs.replace(
            phase,
            publishers=[
                read_in(group, f"$.phases[{number}].publishers[{place}]")
                for place, group in enumerate(phase.publishers)
            ],
        )
        for number, phase in enumerate(scenario.phases)
    ]
    return msgspec.structs.replace(scenario, phases=phases)


def _trace(file: Path) -> Trace:
    """The trace in a file of two columns."""
    if file.exists() and not file.is_file():
        raise OSError("is not a file")
    if file.stat().st_size > POINTS_BYTES_MAX:
        raise ScenarioError(f"{file}: no trace has more than {POINTS_BYTES_MAX} bytes")
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            points = list(_numbers(csv.reader(lines), file))
        if not points:
            raise ScenarioError(f"{file}: has no points")
        return msgspec.convert({"kind": "trace", "points": points}, Trace)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{file}: {error}") from None
    except (ValueError, csv.Error) as error:
        raise ScenarioError(f"{file}: is no text of two columns: {error}") from None


def _numbers(rows: Iterable[list[str]], file: Path) -> Iterable[tuple[float, float]]:
    for number, row in enumerate(rows, start=1):
        try:
            time, rate = row
            yield float(time), float(rate)
        except ValueError:
            if number == 1:
                continue  # the heading
            raise ScenarioError(
                f"{file}:{number}: two numbers are wanted, seconds and messages a second"
            ) from None


def dump(scenario: Scenario) -> str:
    """The scenario as JSON, whole, as runs keep it."""
    return json.dumps(msgspec.to_builtins(scenario), indent=2)
