"""Scenarios out of files: what is wrong is named with file, line and key."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roq.errors import ConfigError
from simulation.description.rates import Trace
from simulation.description.reading import ScenarioError, dump, find, known, parse, read
from simulation.description.scenario import Scenario

HERE = Path("scenario.yaml")
HEAD = "title: x\nphases:\n  - name: a\n    seconds: 5\n"


@pytest.mark.parametrize("path", known(), ids=lambda path: path.stem)
def test_each_scenario_that_comes_with_roq_can_be_read(path: Path) -> None:
    scenario = read(path)
    assert scenario.name == path.stem
    assert scenario.expect, "a scenario says what is expected"
    assert msgspec.json.decode(dump(scenario), type=Scenario) == scenario


def test_the_published_experiment_offers_what_was_published() -> None:
    steady = read(find("eqs-2011")).phases[1]
    messages, _ = steady.offered()
    assert messages / steady.seconds * 60 == pytest.approx(54_400, rel=1e-4)


def test_who_begins_later_sends_less() -> None:
    text = HEAD + "    publishers: [{count: 5, rate: 10, spawn_rate: 1}]\n"
    assert parse(text, HERE).phases[0].offered()[0] == 10 * (5 + 4 + 3 + 2 + 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", r"scenario.yaml:1: "),
        ("- 1", r"is a mapping"),
        ("title: x\nphases: 3", r":2: phases: Expected `array`"),
        ("title: x\nphases: []", r":2: phases: "),
        ("title: x\ntitle: y\nphases: []", r":2: key `title` stands here twice"),
        (HEAD + "    secnds: 5", r":3: phases\[0\]: .*`secnds`"),
        (HEAD + "    publishers:\n      - rate: -5", r":6: phases\[0\].publishers\[0\].rate"),
        (
            HEAD + "    publishers:\n      - rate: {kind: rampe, from: 1, to: 2}",
            r":6: .*rate.kind: Invalid value 'rampe'",
        ),
        (
            HEAD + "    publishers:\n      - size: {kind: uniform, min: 5, max: 1}",
            r":6: .*size: `max`",
        ),
        (HEAD + "faults: [{at: 9, kind: kill, target: exchange}]", "comes after the end"),
        (HEAD + "faults: [{at: 1, kind: burn, target: exchange}]", r"faults\[0\].kind"),
        (HEAD + "expect: [{what: luck, op: '==', value: 1}]", r"expect\[0\].what"),
        (HEAD + "  - {name: a, seconds: 1}", "same name"),
        (
            HEAD + "    publishers: [{rate: {kind: trace, points_file: none.csv}}]",
            r"points_file 'none.csv'",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse(text, HERE)


def test_yaml_cannot_make_objects() -> None:
    with pytest.raises(ScenarioError):
        parse("!!python/object/apply:os.system [true]", HERE)


def test_a_trace_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("seconds,rate\n0,5\n10,15\n")
    text = HEAD + "    publishers: [{rate: {kind: trace, points_file: points.csv}}]"
    rate = parse(text, tmp_path / "scenario.yaml").phases[0].publishers[0].rate
    assert rate == Trace(points=[(0, 5), (10, 15)])
    (tmp_path / "points.csv").write_text("0,5\n10,many\n")
    with pytest.raises(ScenarioError, match=r"points.csv:2"):
        parse(text, tmp_path / "scenario.yaml")


def test_the_old_description_is_understood() -> None:
    text = '{"delay": 2, "duration": 0.5, "maxPub": 3, "maxSub": 2, "payload": 10, "rate": 7}'
    scenario = parse(text, Path("My Load.json"))
    assert scenario.name == "my-load"
    delay, load = scenario.phases
    assert (delay.seconds, load.seconds) == (2, 30)
    assert (load.publishers[0].count, load.publishers[0].rate) == (3, 7)
    assert delay.subscribers[0].count == 2


def test_the_old_throughput_is_divided() -> None:
    scenario = parse('{"maxPub": 2, "maxSub": 5, "throughput": 100}', Path("load.json"))
    assert scenario.phases[1].publishers[0].rate == 10


@pytest.mark.parametrize("text", ['{"maxPub": 0, "rate": 1}', '{"maxPub": 1, "raet": 1}',
                                  '{"maxPub": 1}'])  # fmt: skip
def test_an_old_description_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"load\.json"):
        parse(text, Path("load.json"))


def test_a_scenario_is_found_by_name_and_nothing_else_is(tmp_path: Path) -> None:
    assert find("ramp").name == "ramp.yaml"
    for name in ("../scenarios/ramp", "no-such", str(tmp_path / "none.yaml")):
        with pytest.raises(ScenarioError, match="ramp"):
            find(name)


def test_time_can_be_scaled() -> None:
    scenario = read(find("faults")).scaled(0.5)
    assert scenario.seconds == 15
    assert [fault.at for fault in scenario.faults] == [5, 10]
    assert scenario.faults[1].seconds == 3, "time-outs of RoQ do not change either"


def test_in_less_time_just_as_many_publishers_come() -> None:
    scenario = read(find("eqs-2011"))
    quick = scenario.scaled(0.05)
    last = quick.phases[0].publishers[0]
    assert last.begins(15) == pytest.approx(15 * 3, rel=1e-4)
    assert quick.phases[0].offered()[0] == pytest.approx(0.05 * scenario.phases[0].offered()[0])
