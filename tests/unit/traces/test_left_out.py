"""What is too much to be looked at is counted."""

from __future__ import annotations

from roq.simulation.lab.traces.summary import remarks


def test_what_was_left_out_is_remarked() -> None:
    assert remarks({"limits_left_out": 0.0, "files_left_out": 0.0}) == []
    limits, files = remarks({"limits_left_out": 3.0, "files_left_out": 7.0})
    assert ": 3. " in limits
    assert ": 7." in files
