"""Standard output that cannot be written: one line and an exit code, whatever the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROQ = f"{sys.executable} -m roq"
FULL = "Error: standard output cannot be written: No space left on device\n"
CLOSED = "Error: standard output cannot be written: Bad file descriptor\n"
MUCH = """
import sys, click
from roq.cli import commands, main
@click.command()
def much():
    {body}
commands.cli = much
main.main()
"""


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", line],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def played(folder: Path, body: str, into: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(MUCH.format(body=body))
    return shell(f"{sys.executable} {program} {into}")


@pytest.mark.parametrize("command", ["sim list", "--version", "queue create --help"])
@pytest.mark.parametrize(("into", "text"), [(">/dev/full", FULL), (">&-", CLOSED)])
def test_an_output_that_is_full_or_closed_is_one_line(command: str, into: str, text: str) -> None:
    found = shell(f"{ROQ} {command} {into}")
    assert (found.returncode, found.stdout, found.stderr) == (1, "", text)


@pytest.mark.parametrize(
    "body",
    [
        "sys.stdout.write('x')",
        "sys.stdout.write('x' * 1_000_000)",
        "sys.stdout.buffer.write(b'x' * 1_000_000)",
        "sys.stdout.write('x'); raise SystemExit(0)",
    ],
)
def test_it_is_noticed_however_it_is_written(tmp_path: Path, body: str) -> None:
    found = played(tmp_path, body, ">/dev/full")
    assert (found.returncode, found.stderr) == (1, FULL)


def test_a_command_that_says_nothing_needs_no_output(tmp_path: Path) -> None:
    found = played(tmp_path, "pass", ">&-")
    assert (found.returncode, found.stderr) == (0, "")


def test_a_reader_that_has_gone_is_no_reason_for_a_word() -> None:
    found = shell(f"(sleep 0.1; {ROQ} sim list; echo $? >&2) | true")
    assert found.stderr == "1\n"


def test_other_errors_of_the_system_are_not_taken_for_it(tmp_path: Path) -> None:
    found = played(tmp_path, "raise OSError(28, 'a disk of ours')", ">/dev/full")
    assert found.returncode == 1
    assert "Traceback" in found.stderr
    assert "standard output" not in found.stderr


def test_what_is_said_arrives_as_it_is() -> None:
    found = shell(f"{ROQ} --version")
    assert found.returncode == 0
    assert found.stdout.startswith("roq ")
    assert found.stderr == ""
