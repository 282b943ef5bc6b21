"""The run of the tests itself: a worker that stands still ends no run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
CONFTEST = f"""
import os, sys, time
sys.path.insert(0, {str(SUPPORT)!r})
import pytest
from stuck_workers import FilesOnce, StuckWorkers

def pytest_configure(config):
    if config.getvalue("dist") != "no":
        config.pluginmanager.register(StuckWorkers(8.0, again={{again}}))

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return FilesOnce(config, log)

def pytest_runtest_logfinish(nodeid):
    if {{between}} and "PYTEST_XDIST_WORKER" in os.environ and "first" in nodeid and new("between"):
        time.sleep(600)

def new(name):
    try:
        open(os.path.join({{folder!r}}, name), "x").close()
    except FileExistsError:
        return False
    return True
"""
TESTS = """
import os, signal
from conftest import new

def test_first():
    pass

def test_second():
    if {within} and new("within"):
        os.kill(os.getpid(), signal.SIGSTOP)

def test_third():
    pass
"""


Done = subprocess.CompletedProcess[str]


def run(folder: Path, *, within: bool, between: bool, again: bool) -> Done:
    conftest = CONFTEST.format(again=again, between=between, folder=str(folder))
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_some.py").write_text(TESTS.format(within=within))
    (folder / "test_other.py").write_text("def test_of_another_file(): pass\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -n 2 --dist loadfile -rA\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("between", [False, True])
def test_what_one_that_stands_still_has_not_done_is_done_by_others(
    tmp_path: Path, between: bool
) -> None:
    done = run(tmp_path, within=not between, between=between, again=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rerun" in done.stdout
    assert {f"PASSED test_some.py::test_{each}" for each in ("first", "second", "third")} <= set(
        done.stdout.splitlines()
    )
    assert "Fatal Python error: Aborted" in done.stderr, "it says where its threads were"


def test_without_a_second_run_it_fails(tmp_path: Path) -> None:
    done = run(tmp_path, within=True, between=False, again=False)
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "stood still for 8 s" in done.stdout
