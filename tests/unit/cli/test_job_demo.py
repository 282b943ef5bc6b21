"""The demo of jobs finds its console by what that says, and leaves nothing that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import roq.testing
from roq.cli import job_demo
from roq.cli.job_demo import _url


def test_a_console_that_serves_is_found_among_its_lines() -> None:
    assert _url("") is None
    assert _url("ready\n") is None
    said = 'INFO begun\nready {"url":"http://127.0.0.1:7/"}\nINFO serving\n'
    assert _url(said) == "http://127.0.0.1:7/"


def test_what_it_has_started_ends_when_it_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    code = (
        "import sys, types\n"
        "from pathlib import Path\n"
        "from roq.cli import job_demo\n"
        "job_demo.sys = types.SimpleNamespace(executable=sys.argv[1])\n"
        "with job_demo._started(Path(sys.argv[1]).parent, 'worker') as child:\n"
        "    print(child.pid, flush=True)\n"
        "    child.wait(600)"
    )
    words = [sys.executable, "-c", code, str(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while child.name() != "sleep":  # until then it is on its way there
            assert child.is_running()
        parent.kill()
    gone, _ = psutil.wait_procs([child], timeout=10)
    if not gone:
        child.kill()
    assert gone


@pytest.mark.parametrize("done", [0, 7])
def test_one_that_is_interrupted_before_anything_was_run_says_so(
    monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    class Course:
        def __init__(self, *_: Any) -> None: ...

        def run(self, _seconds: float | None) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            return done

    monkeypatch.setattr(
        roq.testing, "cluster", lambda: nullcontext(SimpleNamespace(address="127.0.0.1:1"))
    )
    monkeypatch.setattr(job_demo, "_Course", Course)
    for variable in ("ROQ_JOBS", "ROQ_CLUSTER"):
        monkeypatch.setenv(variable, "")
    ended = CliRunner().invoke(job_demo.job_demo)
    assert ended.exit_code == (0 if done else 130)
    assert ended.stderr.endswith(
        "nothing of the demo is left.\n" if done else
        "Stopping …\nError: it was interrupted before a job was complete\n"
    )  # fmt: skip
