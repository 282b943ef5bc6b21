"""The demo of jobs finds its console by what that says, and leaves nothing that it has started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

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
