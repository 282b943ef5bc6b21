"""`--cluster` before the verb and after it, and numbers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from roq.cli import client
from roq.cli.commands import cli

HERE = "127.0.0.1:5000"


class Asked(Exception):
    pass


@pytest.mark.parametrize(
    ("arguments", "variable", "address"),
    [
        (["queue", "list"], None, HERE),
        (["queue", "list", "--cluster", "a:1"], None, "a:1"),
        (["queue", "--cluster", "a:1", "list"], None, "a:1"),
        (["--cluster", "a:1", "queue", "list"], None, "a:1"),
        (["--cluster", "a:1", "queue", "list", "--cluster", "b:2"], None, "b:2"),
        (["--cluster", "a:1", "queue", "--cluster", "b:2", "list"], None, "b:2"),
        (["queue", "list"], "c:3", "c:3"),
        (["--cluster", "a:1", "queue", "list"], "c:3", "a:1"),
        (["--cluster", "a:1", "top", "orders"], None, "a:1"),
        (["--cluster", "a:1", "host", "list"], None, "a:1"),
        (["rules", "--cluster", "a:1", "show", "orders"], None, "a:1"),
        (["exchange", "--cluster", "a:1", "list", "orders"], None, "a:1"),
    ],
)
def test_the_address_nearest_to_the_verb_counts(
    arguments: list[str], variable: str | None, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(given: str, **_: object) -> None:
        raise Asked(given)

    monkeypatch.setattr(client.roq, "connect", connect)
    done = CliRunner().invoke(cli, arguments, env={"ROQ_CLUSTER": variable})
    assert isinstance(done.exception, Asked), done.output
    assert done.exception.args == (address,)


@pytest.mark.parametrize("verb", ["up", "bench"])
def test_commands_that_ask_no_cluster_do_not_swallow_it(verb: str) -> None:
    done = CliRunner().invoke(cli, ["--cluster", "a:1", verb])
    assert done.exit_code == 2
    assert "omit --cluster" in done.output


def test_what_is_no_address_is_a_usage_error_before_the_verb_too() -> None:
    done = CliRunner().invoke(cli, ["--cluster", "a:x", "queue", "list"])
    assert done.exit_code == 2
    assert "no valid port" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["request", "send", "work", "a.b", "--wait", "nan"],
        ["queue", "list", "--timeout", "nan"],
        ["pub", "work", "--delay", "nan"],
    ],
)
def test_what_is_no_number_is_refused_where_it_is_given(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert "'nan' is no number" in done.stderr


@pytest.mark.parametrize("command", [["pub"], ["jobs", "schedule", "set"]])
def test_a_number_without_bounds_shows_none(command: list[str]) -> None:
    shown = CliRunner().invoke(cli, [*command, "--help"]).stdout
    assert "SECONDS" in shown or "--ttl" in shown
    assert "None]" not in shown
