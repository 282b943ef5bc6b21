"""Tables, numbers and JSON."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from roq.cli.output import (
    print_fields,
    print_json,
    print_listing,
    print_memory,
    print_table,
    rate_text,
    visible,
)
from roq.client.admin.views import Listing
from roq.protocol.public_answers import FromMemory, QueueSummary


def test_a_table_into_a_pipe_is_plain_and_nothing_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "x" * 300
    print_table(("NAME", "COUNT#"), [(long, 1_234_567), ("b", 2)], "nothing")
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "COUNT"]
    assert first.split() == [long, "1,234,567"]
    assert second.endswith("2")


def test_one_long_value_does_not_make_other_lines_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "WHY"), [("a", "-"), ("b", "x" * 300)], "nothing")
    print_fields([("State", "running"), ("Reason", "x" * 300)])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[:2] == ["NAME  WHY", "a     -"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch, width: int) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def shown(terminal: Terminal) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()


def test_a_line_that_is_too_long_for_a_terminal_has_no_blanks_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = terminal_of(monkeypatch, 30)
    rows = [("a" * 15, "b" * 15, "c" * 15), ("a", "b", ""), ("a", "b", "c")]
    print_table(("NAME", "HOST", "WHY"), rows, "")
    assert shown(terminal) == [
        "NAME             HOST             WHY",
        "aaaaaaaaaaaaaaa  bbbbbbbbbbbbbbb  ccccccccccccccc",
        "a                b                -",
        "a                b                c",
    ]


@pytest.mark.parametrize(
    ("width", "head", "lines"),
    [
        (58, "│ NAME │ REASON                       │ STATE   │  COUNT │", 5),
        (50, "│ NAME │ REASON               │ STATE   │  COUNT │", 6),
        (45, "NAME  REASON                  STATE     COUNT", 3),
        (30, "NAME  REASON                        STATE     COUNT", 2),
    ],
)
def test_a_table_on_a_narrow_terminal_breaks_no_word_of_its_short_columns(
    monkeypatch: pytest.MonkeyPatch, width: int, head: str, lines: int
) -> None:
    terminal = terminal_of(monkeypatch, width)
    rows = [("a", "nobody has taken it, and why", "running", 12_345)]
    print_table(("NAME", "REASON", "STATE", "COUNT#"), rows, "")
    printed = shown(terminal)
    found = [line.rstrip() for line in printed]
    assert (head in found, len(found)) == (True, lines), printed
    assert any("running" in line for line in found)
    assert any("12,345" in line for line in found)


def test_an_empty_table_says_so_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [], "No queue yet.")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "No queue yet.\n"


def test_missing_values_and_flags_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("a", ""), ("b", None), ("c", True)])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", "-"],
        ["b", "-"],
        ["c", "yes"],
    ]


def test_markup_in_a_value_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [("[red]x[/red]",)], "")
    assert "[red]x[/red]" in capsys.readouterr().out


def test_json_is_one_line_of_the_same_names(capsys: pytest.CaptureFixture[str]) -> None:
    row = QueueSummary(
        name="orders", host="h", state="running", running=True, exchanges=1, durability="none"
    )
    print_json([row])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)[0]["Name"] == "orders"


def test_a_rate_over_no_time_is_unknown() -> None:
    assert rate_text(10, 0.0) == "-"
    assert rate_text(10_000, 2.0) == "5,000"


def test_what_is_told_from_memory_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    row = QueueSummary(
        name="orders", host="h", state="running", running=True, exchanges=1, durability="none"
    )
    memory = FromMemory(seconds=12, reason="ZooKeeper cannot be reached")
    print_listing(Listing([row], None))
    print_memory(None)
    (document,) = json.loads(capsys.readouterr().out)
    assert "from_memory" not in document
    print_listing(Listing([row], memory))
    (document,) = json.loads(capsys.readouterr().out)
    assert document["from_memory"] == {"seconds": 12, "reason": "ZooKeeper cannot be reached"}
    print_listing(Listing([], memory))
    captured = capsys.readouterr()
    assert (json.loads(captured.out), "from memory" in captured.err) == ([], True)
    print_memory(memory)
    assert capsys.readouterr().out.startswith("told from memory for 12 s")


def test_what_others_have_written_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07\x9b2J\u202e\udcff"
    print_table(("NAME",), [(hostile,)], "")
    print_fields([("name", hostile)])
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert shown.count("owned") == 2
    print_json([hostile, "ü"])
    printed = capsys.readouterr().out.rstrip("\n")
    assert (printed.isprintable(), json.loads(printed)) == (True, [hostile, "ü"])
    assert visible("a\n\tb\x1b", "\n") == "a\n\\tb\\x1b"
