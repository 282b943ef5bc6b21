"""`roq sim`: its commands, and the scenarios that there are."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from roq.cli.commands import cli


def roq(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["sim", *map(str, arguments)], catch_exceptions=False)


def test_every_command_has_a_help_of_its_own() -> None:
    names = ("list", "show", "run", "report", "compare", "sweep", "export")
    listed = roq("--help").output
    for name in names:
        assert f"  {name} " in listed
        assert "Options:" in roq(name, "--help").output


def test_scenarios_are_listed_and_shown() -> None:
    names = [each["name"] for each in json.loads(roq("list", "--json").output)]
    assert {"short", "ramp", "eqs-2011"} <= set(names)
    for name in names:
        assert name in roq("list").output
        shown = roq("show", name)
        assert shown.exit_code == 0
        assert "EXPECTED" in shown.output
        assert json.loads(roq("show", name, "--json").output)["name"] == name


def test_no_scenario_steers_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text('title: "a\\e[2J\\u202eb"\nphases: [{name: a, seconds: 5}]\n')
    shown = roq("show", path)
    assert shown.exit_code == 0
    assert "a\ufffd[2J\ufffdb" in shown.output


def test_a_scenario_with_a_mistake_is_told_with_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: mine\nphases:\n  - name: a\n    seconds: -1\n")
    result = roq("show", path)
    assert result.exit_code != 0
    assert f"{path}:4: phases[0].seconds" in result.output
