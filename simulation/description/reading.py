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
from simulation.description.legacy import LEGACY_KEYS, from_legacy
from simulation.description.rates import Trace
from simulation.description.scenario import Phase, PublisherGroup, Scenario

FOLDER: Final = Path(__file__).parents[1] / "scenarios"
"""The scenarios that come with RoQ."""
BYTES_MAX: Final = 4 * 1024 * 1024
_AT: Final = re.compile(r"(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?\Z", re.DOTALL)
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
    if path.is_file():
        return path
    inside = FOLDER / f"{name}.yaml"
    if inside.is_file() and inside.parent == FOLDER:
        return inside
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
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.load(text, Loader=_Strict)  # noqa: S506 - a SafeLoader that refuses doubles
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ScenarioError(f"{path}{line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: a scenario is a mapping with `name`, `title` and `phases`")
    if data.keys() & LEGACY_KEYS and "phases" not in data:
        return from_legacy(data, path)
    data.setdefault("name", path.stem)
    try:
        scenario = msgspec.convert(data, Scenario, strict=False)
    except msgspec.ValidationError as error:
        raise ScenarioError(_located(str(error), node, path)) from None
    return _with_traces(scenario, path)


class _Strict(yaml.SafeLoader):
    """Keys that stand twice in a mapping are an error: YAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key `{key}` stands here twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _located(message: str, node: yaml.Node | None, path: Path) -> str:
    found = _AT.match(message)
    assert found is not None  # noqa: S101 - it matches every text
    where = found["path"] or "$"
    key = where.removeprefix("$").removeprefix(".")
    line = _line(node, where)
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


def _with_traces(scenario: Scenario, path: Path) -> Scenario:
    """Points that stand in files of their own are read in."""
    return msgspec.structs.replace(
        scenario, phases=[_phase_with_traces(phase, path) for phase in scenario.phases]
    )


def _phase_with_traces(phase: Phase, path: Path) -> Phase:
    def read_in(group: PublisherGroup) -> PublisherGroup:
        rate = group.rate
        if isinstance(rate, Trace) and not rate.points:
            rate = Trace(points=_points(path.parent / rate.points_file, rate.points_file, path))
        return msgspec.structs.replace(group, rate=rate)

    return msgspec.structs.replace(phase, publishers=[read_in(each) for each in phase.publishers])


def _points(file: Path, given: str, path: Path) -> list[tuple[float, float]]:
    if not given:
        raise ScenarioError(f"{path}: a trace needs `points` or `points_file`")
    try:
        with file.open(newline="") as lines:
            points = list(_numbers(csv.reader(lines), file))
        return msgspec.convert(Trace(points=points).points, list[tuple[float, float]])
    except OSError as error:
        raise ScenarioError(f"{path}: points_file {given!r}: {error.strerror}") from None
    except ValueError as error:
        raise ScenarioError(f"{file}: {error}") from None


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
