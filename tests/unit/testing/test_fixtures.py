"""The fixture that other projects use: one cluster for all their tests, stopped after the last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from roq.testing import fixtures

OURS = Path(__file__).resolve().parents[3]
PLUGIN = """
pytest_plugins = ["roq.testing.fixtures"]

import contextlib
from roq.testing import fixtures

@contextlib.contextmanager
def cluster(hosts):
    print(f"started with {hosts}")
    yield "a cluster"
    print("stopped")

fixtures.cluster = cluster
"""
TESTS = """
def test_one(roq_cluster):
    assert roq_cluster == "a cluster"

def test_two(roq_cluster):
    print("used again")
"""


def test_a_project_that_names_the_plugin_has_one_cluster_with_two_hosts_for_all_its_tests(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", tmp_path],
        env={"PYTHONPATH": str(OURS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [done.stdout.count(each) for each in ("started with 2", "used again", "stopped")] == [
        1, 1, 1,
    ]  # fmt: skip
    assert done.stdout.index("used again") < done.stdout.index("stopped")


def test_the_lines_that_the_module_shows_are_those_that_a_project_writes() -> None:
    text = fixtures.__doc__ or ""
    assert 'pytest_plugins = ["roq.testing.fixtures"]' in text
    assert "def test_something(roq_cluster):" in text
