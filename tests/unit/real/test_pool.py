"""Processes of a pool end with their parent, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from waiting import eventually

PROGRAM = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from roq.simulation.real.pool import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_a_process_of_a_pool_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            worker = int(program.stdout.readline())
            assert psutil.pid_exists(worker)
        finally:
            os.kill(program.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(worker), "it waits for tasks for ever")
