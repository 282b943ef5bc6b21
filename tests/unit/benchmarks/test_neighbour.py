"""Programs beside a measurement end with whoever has started them."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.benchmarks import neighbour
from roq.benchmarks.processes import PYTHON, Program


@pytest.mark.parametrize("kind", [neighbour.BURN, neighbour.IDLE])
def test_it_ends_with_its_input_as_when_its_parent_is_killed(kind: str, tmp_path: Path) -> None:
    program = Program([*PYTHON, neighbour.__name__, kind], tmp_path / "log")
    assert program.read_line(30) == b"ready"
    program.finish()
    assert not program.alive()
