"""`roq gcm` and `roq host`: what they are given goes to the daemon, its exit code to the shell."""

from __future__ import annotations

import importlib

import pytest
from click.testing import CliRunner, Result

from roq.cli.commands import cli


@pytest.fixture(params=["gcm", "host"])
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The arguments of each daemon that was run; it ends with 69."""
    ran: dict[str, list[str]] = {}

    def pretend(name: str, verb: str) -> None:
        def main(arguments: list[str]) -> int:
            ran[verb] = arguments
            return 69

        module = importlib.import_module(f"roq.{name}.__main__")
        monkeypatch.setattr(module, "main", main)

    pretend("gcm", "gcm")
    pretend("hcm", "host")
    return ran


def roq(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def test_options_reach_the_daemon_and_its_exit_code_comes_back(
    verb: str, started: dict[str, list[str]]
) -> None:
    assert roq(verb, "--config", "a.toml", "--ready-fd", "0").exit_code == 69
    assert started == {verb: ["--config", "a.toml", "--ready-fd", "0"]}


def test_what_is_not_given_is_not_said_to_the_daemon(
    verb: str, started: dict[str, list[str]]
) -> None:
    assert roq(verb).exit_code == 69
    assert started == {verb: []}


@pytest.mark.parametrize("wrong", [["--config", "."], ["--ready-fd", "-1"], ["--ready-fd", "x"]])
def test_what_no_daemon_can_use_is_wrong_usage(
    verb: str, wrong: list[str], started: dict[str, list[str]]
) -> None:
    assert roq(verb, *wrong).exit_code == 2
    assert started == {}
