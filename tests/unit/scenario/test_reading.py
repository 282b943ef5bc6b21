"""Scenarios out of files: what is wrong is named with file, line and key."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from roq.simulation.scenario.draws import Choice, LogNormal, Topics, Uniform
from roq.simulation.scenario.legacy import LegacyLoad
from roq.simulation.scenario.offered import offered_by_phase
from roq.simulation.scenario.rates import Burst, Diurnal, Ramp, Step, Trace
from roq.simulation.scenario.reading import ScenarioError, dump, find, known, parse, read
from roq.simulation.scenario.scenario import (
    ConsumerGroup,
    Expectation,
    Fault,
    FaultKind,
    Phase,
    PublisherGroup,
    QueueSettings,
    Scenario,
    SubscriberGroup,
    What,
)

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
    messages, _ = offered_by_phase(read(find("eqs-2011")))[1]
    assert messages / steady.seconds * 60 == pytest.approx(54_400, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", r"scenario.yaml:1: "),
        ("- 1", r"is a mapping"),
        ("title: x\nphases: 3", r":2: phases: Expected `array`"),
        ("title: x\nphases: []", r":2: phases: "),
        ("title: x\ntitle: y\nphases: []", r":2: key `title` stands here twice"),
        (HEAD + "    secnds: 5", r":5: phases\[0\]: .*`secnds`"),
        (HEAD + "    publishers:\n      - rate: -5", r":6: phases\[0\].publishers\[0\].rate"),
        (
            HEAD + "    publishers:\n      - rate: {kind: rampe, from: 1, to: 2}",
            r":6: .*rate.kind: Invalid value 'rampe'",
        ),
        (
            HEAD + "    publishers:\n      - size: {kind: uniform, min: 5, max: 1}",
            r":6: .*size: `max`",
        ),
        (
            HEAD + "faults: [{at: 9, kind: kill, target: exchange}]",
            r":5: faults\[0\].at: .*comes after the end",
        ),
        (HEAD + "faults: [{at: 1, kind: burn, target: exchange}]", r"faults\[0\].kind"),
        (HEAD + "expect: [{what: luck, op: '==', value: 1}]", r"expect\[0\].what"),
        (HEAD + "  - {name: a, seconds: 1}", r":5: phases\[1\].name: .*same name"),
        (
            HEAD + "faults:\n  - at: 1\n    kind: kill\n    target: exchange\n    index: 77\n"
            "queue: {rules: {exchanges_max: 4}}",
            r":9: faults\[0\].index: of exchange 77: there are at most 4, counted from 0",
        ),
        (
            HEAD + "faults:\n  - at: 1\n    kind: cut\n    target: exchange",
            r":7: faults\[0\].kind: there is no fault 'cut'",
        ),
        (
            HEAD + "faults:\n  - at: 1\n    target: subscriber\n    kind: kill",
            r":7: faults\[0\].target: no fault harms a subscriber",
        ),
        (
            HEAD + "faults:\n  - {at: 1, kind: kill, target: host, index: 1}",
            r":6: faults\[0\].index: of host 1: there is at most 1",
        ),
        (
            HEAD + "queue:\n  rules:\n    latency_ms: 3\n    exchanges_max: 0",
            r":8: queue.rules: exchanges_max must be from 1 to 1024, not 0",
        ),
        (
            HEAD + "queue:\n  rules:\n    exchanges_max: 2\n    exchanges_min: 5",
            r":8: queue.rules: exchanges_min 5 is above exchanges_max 2",
        ),
        (
            HEAD + "queue:\n  rules:\n    latency_ms: 3\n    policy: best",
            r":8: queue.rules: there is no policy 'best'; there are balanced, ",
        ),
        (
            HEAD + "queue:\n  limits:\n    topics: 5\n    ring_bytes: 5",
            r":8: queue.limits: limit ring_bytes must be from 65536 to",
        ),
        (
            HEAD + "queue:\n  limits:\n    topics: 5\n    rings: 5",
            r":8: queue.limits: there is no limit 'rings'",
        ),
        (
            HEAD + "    publishers: [{rate: {kind: trace, points_file: none.csv}}]",
            r":5: phases\[0\].publishers\[0\].rate.points_file: 'none.csv': No such file",
        ),
        (
            HEAD + "    publishers:\n      - rate:\n          kind: trace",
            r":7: phases\[0\].publishers\[0\].rate: a trace needs `points` or `points_file`",
        ),
        (
            HEAD + "    publishers: [{rate: {kind: trace, points: [[0, 1], [.nan, 2]]}}]",
            r"points\[1\]\[0\]: Expected `float` >= 0",
        ),
        (HEAD + "    publishers: [{spawn_rate: .inf}]", r"spawn_rate: Expected `float` <="),
        (
            HEAD + "    publishers: [{size: {kind: choice, values: [1], weights: [.inf]}}]",
            "weights",
        ),
        (HEAD + "    publishers: [{topics: {names: [a], zipf: 1}}]", "`zipf` needs `count`"),
        (HEAD + "    publishers: [{topics: {names: [a], weights: [1], count: 5}}]", "`weights`"),
        (HEAD + "expect: [{what: lost, op: '==', value: .nan}]", r"expect\[0\].value"),
        (HEAD + "    publishers: [{size: 1" + "0" * 5_000 + "}]", r":5: Exceeds the limit"),
        (HEAD + "about: 2020-99-99", r":5: month must be"),
        (HEAD + "queue:\n  rules: {cool: 1}", r":6: queue.rules: there is no rule 'cool'"),
        (HEAD + "queue:\n  rules: {latency_ms: x}", r":6: queue.rules: .*latency_ms"),
        (HEAD + "queue:\n  limits: {toppics: 1}", r":6: queue.limits: there is no limit 'toppics'"),
        (HEAD + "[a]: b", r":5: a key is a word"),
        (HEAD + "<<: {about: x}", r":5: `<<` is not understood"),
        ("[" * 5_000, r"scenario.yaml: is nested too deeply"),
        ("title: &a [*a]", r"scenario.yaml: its aliases"),
        (
            "a: &a [1, 2, 3, 4]\n"
            + "".join(
                f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")
            ),
            r"scenario.yaml: its aliases",
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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"0,5\n10,-1\n", r"points.csv: Expected `float` >= 0.0"),
        (b"0,5\nnan,1\n", r"points.csv: Expected `float` >= 0.0"),
        (b"0,5\n", r"points.csv: a trace has at least two"),
        (b"seconds,rate\n", r"points.csv: has no points"),
        (b"0," + b"1" * 200_000, r"points.csv: is no text of two columns"),
        (b"\xff\xfe", r"points.csv: is no text of two columns"),
    ],
)
def test_a_file_that_holds_no_trace_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "points.csv").write_bytes(content)
    text = HEAD + "    publishers: [{rate: {kind: trace, points_file: points.csv}}]"
    with pytest.raises(ScenarioError, match=says):
        parse(text, tmp_path / "scenario.yaml")


def test_a_device_is_no_trace() -> None:
    text = HEAD + "    publishers: [{rate: {kind: trace, points_file: /dev/zero}}]"
    with pytest.raises(ScenarioError, match="'/dev/zero': is not a file"):
        parse(text, HERE)


def test_a_scenario_without_a_name_is_called_as_its_file() -> None:
    assert parse(HEAD, Path("My Löad (2).yaml")).name == "my-l-ad-2"
    assert parse(HEAD, Path("....yaml")).name == "scenario"


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"maxPub": 0,\n "rate": 1}', r"load.json:1: maxPub: Expected `int` >= 1"),
        ('{"rate": 1,\n "maxPub": 1000000000000}', r"load.json:2: maxPub: Expected `int` <="),
        ('{"rate": 1,\n "payload": 1000000000000}', r"load.json:2: payload"),
        ('{"rate": 1,\n "duration": 1e300}', r"load.json:2: duration"),
        ('{"maxPub": 1, "raet": 1}', r"load.json:1: .*`raet`"),
        ('{"maxPub": 1}', r"load.json:1: .*there would be no load"),
    ],
)
def test_an_old_description_that_makes_no_sense_is_refused(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
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


def test_a_fault_at_the_very_end_stays_there() -> None:
    phases = "".join(f"  - {{name: p{n}, seconds: 1}}\n" for n in range(6))
    text = f"title: x\nphases:\n{phases}faults: [{{at: 6, kind: kill, target: exchange}}]"
    quick = parse(text, HERE).scaled(0.1)
    assert quick.faults[0].at == quick.seconds


def test_in_less_time_just_as_many_publishers_come() -> None:
    scenario = read(find("eqs-2011"))
    quick = scenario.scaled(0.05)
    last = quick.phases[0].publishers[0]
    assert last.begins(15) == pytest.approx(15 * 3, rel=1e-4)
    assert offered_by_phase(quick)[0].messages == pytest.approx(
        0.05 * offered_by_phase(scenario)[0].messages
    )


def test_the_reference_names_all_that_a_scenario_can_say() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "simulation.md").read_text()
    section = docs.partition("## Scenario files\n")[2].partition("\n## ")[0]
    example = textwrap.dedent(section[section.index("    title:") : section.index("\n| key")])
    assert parse(example, HERE).faults[0].at == 30
    kinds = (Ramp, Step, Burst, Diurnal, Trace, Uniform, LogNormal, Choice)
    parts = (Scenario, QueueSettings, Phase, PublisherGroup, SubscriberGroup, ConsumerGroup, Fault,
             Expectation, Topics, LegacyLoad, *kinds)  # fmt: skip
    keys = {name for part in parts for name in part.__struct_encode_fields__}
    words = {str(kind.__struct_config__.tag) for kind in kinds} | set(get_args(What))
    assert [each for each in sorted(keys | words) if f"`{each}`" not in section] == []
    assert [each for each in get_args(FaultKind) if each not in section] == []
