"""How a process that runs handlers is started."""

from __future__ import annotations

import sys

import msgspec

from roq.jobs.child_messages import ChildSetup, command, main_program


def test_it_is_started_with_the_path_of_its_instance() -> None:
    setup = ChildSetup(5, 6, 1, ["a"], {})
    program, *_, path, text = command(setup)
    assert program == sys.executable
    assert msgspec.json.decode(path) == sys.path
    assert msgspec.json.decode(text, type=ChildSetup) == setup


def test_of_the_main_program_it_is_told_where_it_is() -> None:
    assert all(name.startswith("init_main_from_") for name in main_program())
