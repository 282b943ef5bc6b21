"""An error of RoQ is one line, a line on what to do, and a code to end with."""

from __future__ import annotations

import io

import pytest

from roq.cli.failures import BENCH, Failed, daemon_failed, failed, text_of, wanted
from roq.errors import (
    ConfigError,
    GroupNotFound,
    InvalidName,
    QueueNotFound,
    RoQError,
    Unavailable,
)
from roq.runtime import exits


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable("x"), 1),
        (InvalidName("x"), 2),
        (ConfigError("x"), 2),
        (RoQError("x"), 1),
    ],
)
def test_a_command_ends_with_1_or_2(error: RoQError, code: int) -> None:
    assert failed(error).exit_code == code


def test_a_daemon_ends_with_78_for_a_configuration_and_69_for_what_is_away() -> None:
    assert daemon_failed(ConfigError("port 5000 is in use")).exit_code == 78
    assert daemon_failed(Unavailable("no Java")).exit_code == 69


def test_an_error_without_a_text_says_what_its_class_stands_for() -> None:
    assert failed(QueueNotFound()).message == "No queue of this name exists."


def test_an_error_that_says_what_to_do_gets_no_second_hint() -> None:
    assert failed(Unavailable("start it with `roq up`")).hint == ""


def test_the_kind_of_an_error_says_what_helps() -> None:
    assert "roq group list" in failed(GroupNotFound("no group g")).hint
    assert "roq health" in failed(Unavailable("nobody answers")).hint
    assert failed(Unavailable("database jobs is locked")).hint == ""
    assert text_of(RoQError(" so it is \n")) == "so it is"


def test_a_failure_is_shown_in_two_lines() -> None:
    shown = io.StringIO()
    Failed("no queue x", hint="make one").show(shown)
    assert shown.getvalue() == "Error: no queue x\n  make one\n"


def test_what_an_extra_brings_is_named_where_it_is_not_installed() -> None:
    assert wanted("json").loads("1") == 1
    with pytest.raises(Failed, match="rounds need what is not installed here: no_such_peer") as met:
        wanted("no_such_peer", "rounds", BENCH)
    assert (met.value.exit_code, met.value.hint) == (exits.UNAVAILABLE, f"Install it with {BENCH}.")
