"""A queue grows with its load, at a small scale."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import nothing_wrong, played

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_queue_grows_with_its_load(tmp_path: Path) -> None:
    outcome = played(
        "elastic", "--seconds", "20", "--publishers", "4", "--exchanges", "2", output=tmp_path
    )
    assert outcome["exchanges_most"] >= 2
    assert outcome["moves"] >= 1
    assert nothing_wrong(*outcome["counts"])
    assert (tmp_path / "elastic.png").stat().st_size > 10_000
