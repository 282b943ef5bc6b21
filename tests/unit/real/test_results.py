"""What all programs of `simulation/` have in common: two options, an ending, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec import Meta

from roq.errors import Unavailable
from roq.simulation.real import results
from roq.simulation.real.workers import ScenarioError


class Found(msgspec.Struct):
    answer: int


@click.command()
@click.option("--wanted", default=42)
@results.scenario("Directory for the answer.")
def program(wanted: int, output: Path, as_json: bool) -> bool:
    if wanted < 0:
        raise (
            ScenarioError("nobody knows")
            if wanted < -1
            else Unavailable("no such process is there")
        )
    found = Found(42)
    results.told(found, "found", output, lambda _out, one: click.echo(f"{one}"), as_json=as_json)
    return found.answer == wanted


def test_programs_get_json_and_people_what_is_made_for_them(tmp_path: Path) -> None:
    done = CliRunner().invoke(program, ["--output", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["Found(answer=42)", f"written: {tmp_path}/found.json"]
    done = CliRunner().invoke(program, ["--output", str(tmp_path), "--json"])
    assert (done.exit_code, done.stderr) == (0, f"written: {tmp_path}/found.json\n")
    assert json.loads(done.stdout) == {"answer": 42}
    assert json.loads((tmp_path / "found.json").read_text()) == {"answer": 42}


@pytest.mark.parametrize(
    ("wanted", "text"),
    [(7, ""), (-1, "Error: no such process is there\n"), (-2, "Error: nobody knows\n")],
)
def test_what_was_not_reached_is_exit_code_1(tmp_path: Path, wanted: int, text: str) -> None:
    done = CliRunner().invoke(program, ["--output", str(tmp_path), f"--wanted={wanted}"])
    assert (done.exit_code, done.stderr) == (1, text)


def test_an_experiment_is_successful_if_its_targets_are_reached_and_nothing_is_lost() -> None:
    with results.measured() as machine:
        pass
    one = results.Counts(
        sent=1, received=1, lost=0, duplicated=0, reordered=0, foreign=0, subscribers=1, streams=1
    )
    other = msgspec.structs.replace(one, lost=1)
    goal = results.Target(text="most", measured=1.0, goal=1.0)
    for counts, targets, reached in (
        ([one], [goal], True),
        ([], [], True),
        ([one, other], [goal], False),
        ([one], [goal, msgspec.structs.replace(goal, measured=1.1)], False),
    ):
        found = results.Measured(machine=machine, targets=targets, counts=counts)
        assert found.reached is reached


def test_the_options_stand_behind_those_of_the_program() -> None:
    text = CliRunner().invoke(program, ["--help"]).stdout
    assert text.index("--wanted") < text.index("--output") < text.index("--json")
    assert "Directory for the answer." in text


class Plan(msgspec.Struct):
    most: Annotated[int, Meta(ge=1, le=9, description="How many.")] = 3
    share_of: Annotated[float, Meta(ge=0, description="Which part.")] = 0.5
    policy: Annotated[str, Meta(description="Who decides.")] = "known"
    hidden: int = 7


@click.command()
@results.planned(Plan)
@click.option("--naive", is_flag=True)
@results.scenario()
def planned(plan: Plan, naive: bool, output: Path, as_json: bool) -> bool:
    del output, as_json
    click.echo(f"{plan} {naive}")
    return True


def test_the_options_of_a_program_are_what_its_plan_describes() -> None:
    text = CliRunner().invoke(planned, ["--help"]).stdout
    order = [text.index(each) for each in ("--most", "--share-of", "--policy", "--naive", "--json")]
    assert order == sorted(order)
    assert "[default: 3; 1<=x<=9]" in text
    assert "--hidden" not in text
    told = CliRunner().invoke(planned, ["--most", "4", "--share-of", "2"])
    assert told.stdout == f"{Plan(most=4, share_of=2.0)} False\n"
    assert CliRunner().invoke(planned, ["--most", "10"]).exit_code == 2
