"""Scenarios of `simulation/` as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def played(name: str, *arguments: str, output: Path, seconds: float = 280.0) -> dict[str, Any]:
    """Run a scenario to its end, within so many seconds, and give what it says to programs."""
    program = f"roq.simulation.experiments.{name}"
    argv = [sys.executable, "-m", program, "--json", "--output", str(output)]
    done = subprocess.run([*argv, *arguments], capture_output=True, timeout=seconds, check=False)
    assert done.stdout, done.stderr.decode()
    document: dict[str, Any] = json.loads(done.stdout)
    (written,) = output.glob(f"{name}*.json")
    assert json.loads(written.read_text()) == document
    return document


def nothing_wrong(counts: dict[str, int]) -> bool:
    wrong = counts["lost"] + counts["duplicated"] + counts["reordered"] + counts["foreign"]
    return counts["sent"] == counts["received"] > 0 and not wrong
