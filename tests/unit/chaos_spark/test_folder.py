"""What a run has started and written is gone after it, also when it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from commands import gone

from roq.simulation.experiments.chaos_spark.folder import folders, marked, run_folder
from roq.simulation.real.waiting import until

SLEEPER = [sys.executable, "-S", "-c", "import signal; print('up', flush=True); signal.pause()"]
RUN = f"""
import subprocess, sys
from roq.simulation.experiments.chaos_spark.folder import run_folder
with run_folder() as folder:
    (folder / "file").write_text("")
    subprocess.run({SLEEPER!r}, start_new_session=True)
"""


def mine(pid: int) -> list[Path]:
    return [path for path in folders() if f"-{pid}-" in path.name]


def test_nothing_is_left_after_the_block() -> None:
    with run_folder() as folder:
        assert str(folder) == os.environ["ROQ_CHAOS_SPARK"]
        with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert [each.pid for each in marked(folder)] == [process.pid]
            process.kill()
    assert not folder.exists()
    assert "ROQ_CHAOS_SPARK" not in os.environ


def test_nothing_is_left_of_a_run_that_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, start_new_session=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"up\n"
        (folder,) = mine(run.pid)
        (sleeper,) = marked(folder)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert until(lambda: not folder.exists(), 20.0)
        assert gone([sleeper], 20.0)
