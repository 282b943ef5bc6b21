"""Every command teaches, and errors are one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from roq.cli.commands import COMMANDS, Commands, cli
from roq.errors import QueueNotFound, Unavailable


def all_commands(group: click.Group = cli, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield before + name, command
        if isinstance(command, click.Group):
            yield from all_commands(command, f"{before}{name} ")


COMMAND_LIST = list(all_commands())


@pytest.mark.parametrize(("name", "command"), COMMAND_LIST, ids=[name for name, _ in COMMAND_LIST])
def test_every_command_has_help_with_an_example(name: str, command: click.Command) -> None:
    result = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert result.exit_code == 0, result.output
    assert command.help
    example = result.output.partition("Example:")[2]
    assert f"roq {name}" in example, "the help has no example of the command itself"


@pytest.mark.parametrize("name", [name for name, _ in COMMAND_LIST])
def test_the_help_fits_into_eighty_columns(name: str) -> None:
    result = CliRunner().invoke(cli, [*name.split(), "--help"], terminal_width=80)
    assert [line for line in result.output.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(("name", "command"), COMMAND_LIST, ids=[name for name, _ in COMMAND_LIST])
def test_every_option_says_what_it_does(name: str, command: click.Command) -> None:
    del name
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_help_of_roq_names_all_commands_and_completion() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(f"  {name} " in result.output for name in COMMANDS)
    assert "_ROQ_COMPLETE" in result.output


def test_no_arguments_show_the_help() -> None:
    result = CliRunner().invoke(cli, [])
    assert "Usage: " in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli, ["qeue", "list"])
    assert result.exit_code == 2
    assert "No such command" in result.stderr


def group_that_raises(error: Exception) -> click.Group:
    @click.command()
    def broken() -> None:
        raise error

    class One(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            del ctx, cmd_name
            return broken

    return One("roq", params=[click.Option(["--debug"], is_flag=True)])


def test_an_error_of_roq_is_a_line_and_a_hint_without_a_traceback() -> None:
    group = group_that_raises(QueueNotFound("queue orders does not exist"))
    result = CliRunner().invoke(group, ["broken"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "Error: queue orders does not exist"
    assert "roq queue list" in result.stderr
    assert "Traceback" not in result.output


def test_debug_shows_the_error_itself() -> None:
    group = group_that_raises(Unavailable("nobody"))
    result = CliRunner().invoke(group, ["--debug", "broken"])
    assert isinstance(result.exception, Unavailable)
