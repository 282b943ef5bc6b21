"""What is sent to executors that have no RoQ, and what is said when nothing was sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roq.errors import ConfigError
from roq.simulation.lab.shipping import missing, packed


def test_tasks_of_runs_and_forecasts_can_be_imported_from_the_zip(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import roq.simulation.lab.live.load as load, roq.simulation.forecast.cell\n"
        "assert 'roq_packages.zip' in load.__file__ and 'roq_packages.zip' in roq.__file__"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "…\nModuleNotFoundError: No module named 'simulation'\n\tat org.apache…",
        'ModuleNotFoundError: No module named "simulation"',
        "… ModuleNotFoundError: No module named \\'simulation\\' …",
    ],
)
def test_the_package_that_is_missing_is_named(text: str) -> None:
    found = missing(RuntimeError(text))
    assert isinstance(found, ConfigError)
    assert str(found).startswith("executors cannot import 'simulation': install")


def test_other_errors_are_something_else() -> None:
    assert missing(RuntimeError("ValueError: No module named x")) is None
