"""The run of the tests itself: a worker that stands still ends no run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"
CONFTEST = f"""
import os, sys, time
from contextlib import suppress
sys.path.insert(0, {str(SUPPORT)!r})
import pytest
import stuck_workers

FOLDER = {{folder!r}}

class StuckWorkers(stuck_workers.StuckWorkers):
    def is_overdue(self, node, step):
        # Not by time, which a busy machine takes: those that are to stand still say so.
        pid = stuck_workers.pid_of(node)
        told = os.path.join(FOLDER, f"{{{{pid}}}} stands still")
        if not os.path.exists(told):
            return False
        with suppress(OSError), open(f"/proc/{{{{pid}}}}/stat") as stat:
            if step and stat.read().rpartition(")")[2].split()[0] not in "TZX":
                return False  # it is ending
        # The pipe tells the end of those that no child keeps it open for.
        return step < 2 or os.path.exists(os.path.join(FOLDER, f"{{{{pid}}}} has a child"))

    def pytest_sessionfinish(self):
        super().pytest_sessionfinish()
        new("over")

def pytest_configure(config):
    config.pluginmanager.register(stuck_workers.LimitOfEachRun())
    if config.getvalue("dist") != "no":
        config.pluginmanager.register(StuckWorkers(8.0, again={{again}}))

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return stuck_workers.FilesOnce(config, log)

def pytest_runtest_logfinish(nodeid):
    in_worker = "PYTEST_XDIST_WORKER" in os.environ
    if in_worker and "between.py::test_first" in nodeid and new("between"):
        stand_still()
        time.sleep(600)

def stand_still():
    new(f"{{{{os.getpid()}}}} stands still")

def leave_a_child():
    if not os.fork():
        for _ in range(15_000):  # it keeps the worker's pipe for longer than `run` waits
            if os.path.exists(os.path.join(FOLDER, "over")):
                break
            time.sleep(0.01)
        os._exit(0)
    new(f"{{{{os.getpid()}}}} has a child")
    stand_still()
    os._exit(0)

def new(name):
    try:
        open(os.path.join(FOLDER, name), "x").close()
    except FileExistsError:
        return False
    return True
"""
STOPPED = "stand_still(); os.kill(os.getpid(), signal.SIGSTOP)"
TESTS = """
import os, signal
from conftest import leave_a_child, new, stand_still

def test_first():
    pass

def test_second():
    if new({name!r}):
        {fault}

def test_third():
    pass
"""
WHERE = {"stopped": STOPPED, "between": "pass", "gone": "leave_a_child()"}


def run(folder: Path, *files: str, again: bool) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.format(again=again, folder=str(folder)))
    for name in files:
        text = TESTS.format(name=name + "'s second", fault=WHERE[name])
        (folder / f"test_{name}.py").write_text(text)
    options = f"-n {len(files)} --dist loadfile -rA -p no:hypothesispytest -p no:cacheprovider"
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
    # Nothing of the run that this is part of: who hands out the tests there is no worker of ours.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=own,
    )  # fmt: skip


def test_what_those_that_stand_still_have_not_done_is_done_by_others(tmp_path: Path) -> None:
    done = run(tmp_path, *WHERE, again=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 3 rerun" in done.stdout
    lines = done.stdout.splitlines()
    for name in WHERE:
        for each in ("first", "second", "third"):
            assert f"PASSED test_{name}.py::test_{each}" in lines
    assert "Fatal Python error: Aborted" in done.stderr, "it says where its threads were"


def test_without_a_second_run_it_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "stopped", again=False)
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "stood still for 8 s" in done.stdout


def test_a_second_run_has_the_limit_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(again=True, folder=str(tmp_path)))
    (tmp_path / "test_slow.py").write_text(
        "import time, pytest\nfrom conftest import new\n"
        "@pytest.mark.flaky(reruns=1)\n"
        "def test_it():\n    assert not new('first')\n    time.sleep(60)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 2\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "1 failed, 1 rerun" in done.stdout
    assert "Timeout (>2.0s)" in done.stdout
