"""How a process that runs handlers is started."""

from __future__ import annotations

import sys

import msgspec
import pytest

from roq.jobs.child_messages import (
    ChildReport,
    ChildSetup,
    EndSaid,
    PlaceSaid,
    command,
    main_program,
)
from roq.jobs.states import RunEnd


def test_it_is_started_with_the_path_of_its_instance() -> None:
    setup = ChildSetup(5, 6, 1, ["a"], {})
    program, *_, path, text = command(setup)
    assert program == sys.executable
    assert msgspec.json.decode(path) == sys.path
    assert msgspec.json.decode(text, type=ChildSetup) == setup


def test_of_the_main_program_it_is_told_where_it_is() -> None:
    assert all(name.startswith("init_main_from_") for name in main_program())


@pytest.mark.parametrize("place", [-1, 2**63])
def test_a_place_that_cannot_be_is_refused(place: int) -> None:
    for report in (PlaceSaid((1, 2), place), EndSaid((1, 2), RunEnd.DONE, place)):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=ChildReport)
