"""Runs whose process was killed are told from those that go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from runs import run_of

from roq.simulation.lab.archive.document import Process, Run, RunState
from roq.simulation.lab.archive.folder import RUN_FILE, make, read_run, settle, write_run
from roq.simulation.lab.archive.life import gone, this_process


def running(parent: Path, name: str, process: Process | None) -> Path:
    folder = make(parent, name)
    run = msgspec.structs.replace(run_of(name), state=RunState.RUNNING, process=process)
    write_run(folder, run)
    return folder


def written(folder: Path) -> Run:
    return msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=Run)


def test_a_process_is_gone_when_it_is_not_there_or_another_has_its_number() -> None:
    here = this_process()
    assert here.pid == os.getpid()
    assert not gone(here)
    assert gone(msgspec.structs.replace(here, start=here.start + 1))
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert gone(msgspec.structs.replace(here, pid=child.pid))


@pytest.mark.parametrize("place", ["", "another machine"])
def test_of_another_machine_nobody_here_knows(place: str) -> None:
    assert not gone(msgspec.structs.replace(this_process(), place=place, start=-1))


def test_a_run_whose_process_is_gone_is_read_as_abandoned(tmp_path: Path) -> None:
    lost = msgspec.structs.replace(this_process(), start=-1)
    run = read_run(running(tmp_path, "a", lost))
    assert (run.state, run.error) == (
        RunState.ABANDONED, f"the process that ran it ({lost.pid}) was killed",
    )  # fmt: skip
    for name, process in (("b", this_process()), ("c", None)):
        assert read_run(running(tmp_path, name, process)).state is RunState.RUNNING


def test_an_abandoned_run_is_written_down_once(tmp_path: Path) -> None:
    lost = msgspec.structs.replace(this_process(), start=-1)
    folder = running(tmp_path, "a", lost)
    running(tmp_path, "b", this_process())
    (make(tmp_path, "c") / RUN_FILE).write_text("no run")
    assert [run.id for run in settle(tmp_path)] == ["a"]
    assert (written(folder).state, written(folder).process) == (RunState.ABANDONED, None)
    assert read_run(folder) == written(folder)
    assert settle(tmp_path) == []
    assert settle(tmp_path / "none") == []
