"""Ctrl-C ends every command without a word, also while its modules are being loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys

module = sys.argv.pop(1)

class Interrupted:
    "Ctrl-C comes when this module is about to be loaded."

    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
from roq.cli.main import main

main()
"""
AT_ONCE = -signal.SIGINT
IN_ORDER = 130


def interrupted(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    # Whoever runs the tests in the background of a shell hands on that Ctrl-C is ignored.
    usual = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program.write_text(usual + PROGRAM)
    return subprocess.run(
        [sys.executable, program, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("click", AT_ONCE),
        ("roq.cli.commands", AT_ONCE),
        ("roq.cli.queues", AT_ONCE),
        ("rich", AT_ONCE),
        ("roq.client.cluster", IN_ORDER),
    ],
)
def test_ctrl_c_ends_a_command_without_a_word_whatever_is_being_loaded(
    tmp_path: Path, module: str, code: int
) -> None:
    found = interrupted(tmp_path, module, "queue", "list", "--cluster", "127.0.0.1:1")
    assert (found.returncode, found.stdout, found.stderr) == (code, "", "")


def test_a_command_that_ignores_ctrl_c_goes_on_doing_so(tmp_path: Path) -> None:
    """A shell starts what runs in the background like that."""
    program = tmp_path / "program.py"
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    program.write_text(ignored + PROGRAM)
    found = subprocess.run(
        [sys.executable, program, "roq.cli.commands", "--version"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout.startswith("roq")) == (0, True)


def test_an_error_while_loading_is_not_hidden(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    broken = "import sys; sys.modules['roq.cli.queues'] = None\n"
    program.write_text(broken + PROGRAM)
    found = subprocess.run(
        [sys.executable, program, "-", "queue", "list"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert found.returncode == 1
    assert "ModuleNotFoundError" in found.stderr
