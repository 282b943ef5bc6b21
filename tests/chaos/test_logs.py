"""What stands in the logs of a run is read once, and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.simulation.experiments.chaos.logs import LogWatch

LEADS = "2026-01-01T00:00:00.000Z INFO    gcm: leading, epoch 7\n"
RUNS = "2026-01-01T00:00:00.000Z INFO    host: q.x1 runs, epoch 65537, pid 12\n"


class Logs:
    """Logs of two processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.words = LogWatch(folder)
        (folder / "node").mkdir()

    def write(self, name: str, text: str) -> list[str]:
        """Somebody writes this; what is wrong with it."""
        with (self.folder / f"{name}.log").open("a") as file:
            file.write(text)
        return self.words.look()


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_usual_words_are_right(logs: Logs) -> None:
    assert logs.write("gcm-1", LEADS) == []
    assert logs.write("gcm-1", LEADS) == []  # it found its leadership again
    assert logs.write("gcm-2", LEADS.replace("epoch 7", "epoch 8")) == []
    assert logs.write("hcm-1", RUNS) == []
    assert logs.write("hcm-1", RUNS.replace("runs", "goes on")) == []
    assert logs.write("hcm-2", RUNS.replace("65537", "65538")) == []


def test_two_that_lead_under_one_epoch_are_found(logs: Logs) -> None:
    logs.write("gcm-1", LEADS)
    assert logs.write("gcm-2", LEADS) == ["gcm-2 leads under epoch 7, as gcm-1 did"]


def test_two_processes_of_a_child_with_one_epoch_are_found(logs: Logs) -> None:
    logs.write("hcm-1", RUNS)
    assert "q.x1 runs as 13" in logs.write("hcm-1", RUNS.replace("12", "13"))[0]
    assert "(hcm-2)" in logs.write("hcm-2", RUNS)[0]


def test_an_error_and_a_child_that_fell_are_found_once(logs: Logs) -> None:
    assert logs.write("node/q.x1", "Traceback (most recent call last):\n  File") == [
        "node/q.x1 has raised an error: its log tells"
    ]
    assert logs.write("node/q.x1", " somewhere\n") == []
    fell = "WARNING host: q.x1: ended by signal 11; its log ends with: …; starting again in 0 s\n"
    assert logs.write("hcm-1", fell) == ["hcm-1: a child has ended by signal 11"]
    assert logs.write("hcm-1", fell.replace("11", "9")) == []


def test_half_a_line_waits_for_its_other_half(logs: Logs) -> None:
    logs.write("gcm-1", LEADS)
    assert logs.write("gcm-2", LEADS[:40]) == []
    assert logs.write("gcm-2", LEADS[40:]) == ["gcm-2 leads under epoch 7, as gcm-1 did"]


def test_a_log_that_is_begun_anew_is_read_from_its_beginning(logs: Logs) -> None:
    logs.write("gcm-1", LEADS)
    logs.write("gcm-2", LEADS.replace("epoch 7", "epoch 8") * 2)
    (logs.folder / "gcm-2.log").write_text("")
    assert logs.words.look() == []
    assert logs.write("gcm-2", LEADS) == ["gcm-2 leads under epoch 7, as gcm-1 did"]
