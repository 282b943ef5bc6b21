"""Lines in."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import roq
from roq.cli import messages
from roq.cli.commands import cli
from roq.cli.messages import parse_start, read_lines


def test_a_line_from_a_pipe_comes_as_soon_as_it_is_complete() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file, os.fdopen(write, "wb", buffering=0) as pipe:
        lines = read_lines(file)
        pipe.write(b"one\ntwo\nthr")
        assert next(lines) == ([b"one", b"two"], 11)
        pipe.write(b"ee\n")
        assert next(lines) == ([b"three"], 3)
        pipe.write(b"end")
        pipe.close()
        assert next(lines) == ([b"end"], 3)
        assert next(lines, None) is None


@given(st.binary(max_size=300), st.integers(1, 20))
def test_lines_are_what_stands_between_the_line_ends(data: bytes, chunk: int) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(read, "rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_READ_BYTES", chunk)
        parts = list(read_lines(file))
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [line for lines, _ in parts for line in lines] == expected


def test_what_was_not_acknowledged_is_not_called_published(
    use: Callable[[MagicMock], MagicMock], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    words = ["pub", "orders", str(lines)]
    cluster = use(MagicMock())
    cluster.__enter__.return_value = cluster
    publisher = cluster.publisher.return_value.__enter__.return_value
    assert "Published 2 messages" in CliRunner().invoke(cli, words).stderr
    publisher.flush.side_effect = roq.DeliveryError("one could not be delivered", 1)
    publisher.stats.return_value.acked_messages = 1
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == 1
    assert "Published" not in told.stderr
    assert "Took 2 messages for orders in " in told.stderr
    assert "; 1 are acknowledged by now." in told.stderr


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["pub", "orders", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "No such file" in result.stderr


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("120", 120),
        ("x1=5, x2=7", {"x1": 5, "x2": 7}),
        ("2026-11-21T08:30", datetime(2026, 11, 21, 8, 30, tzinfo=UTC)),
        ("2026-11-21T08:30+00:00", datetime(2026, 11, 21, 8, 30, tzinfo=UTC)),
    ],
)
def test_where_to_begin_is_a_word_an_offset_or_a_time(text: str, start: object) -> None:
    assert parse_start(text) == start


def test_an_offset_of_an_exchange_that_there_is_none_of_is_said(
    use: Callable[[MagicMock], MagicMock],
) -> None:
    cluster = use(MagicMock())
    cluster.__enter__.return_value = cluster
    exchanges = [MagicMock(), MagicMock()]
    for number, each in enumerate(exchanges, start=1):
        each.name = f"x{number}"
    cluster.describe.return_value.exchanges = exchanges
    told = CliRunner().invoke(cli, ["sub", "orders", "--from", "x1=4,x99=3"])
    assert told.exit_code == 0
    assert "Queue orders has no x99 now; it has x1, x2." in told.stderr
    assert "has no" not in CliRunner().invoke(cli, ["sub", "orders", "--from", "x2=4"]).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["sub", "orders", "--count", "0"],
        ["sub", "orders", "--below-floor", "newest"],
        ["sub", "orders", "--from", "yesterday"],
        ["sub"],
        ["queue", "create"],
        ["queue", "create", "orders", "--limit", "rings=1"],
        ["queue", "create", "orders", "--limit", "ring_bytes"],
        ["queue", "list", "--cluster", "here:x"],
        ["up", "--hosts", "0"],
        ["up", "--port-base", "65535"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_end_with_2_and_say_why(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert result.stdout == ""
