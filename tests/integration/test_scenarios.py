"""The scenarios, at a small scale."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import family, gone, read_line
from scenarios import nothing_wrong, played

from roq.simulation.experiments import moves

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_publishers_move_and_no_subscriber_notices(tmp_path: Path) -> None:
    outcome = played("moves", "--count", "12", "--publishers", "4", output=tmp_path)
    assert outcome["moves"] >= 12
    assert nothing_wrong(*outcome["counts"])
    assert outcome["during"]["calls"] > 0
    assert outcome["between"]["calls"] > 0


def test_the_naive_hand_off_goes_through_the_same_harness() -> None:
    plan = moves.Plan(count=10, publishers=2, subscribers=1, exchanges=2, rate=200.0)
    found = moves.run_naively(plan)
    assert found.moves == 10
    assert found.counts.sent > 0
    assert found.counts.foreign == found.counts.duplicated == 0


def test_an_interrupted_scenario_leaves_nothing_behind(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "roq.simulation.experiments.elastic", "--output", str(tmp_path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as running:
        for line in iter(lambda: read_line(running.stdout), b""):
            if b"light load" in line:
                break
        processes = family(running.pid)
        assert len(processes) > 10
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=40)
        assert running.returncode == 1
        assert gone(processes)
