"""The demo, with a part of the library."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from commands import family, gone, read_line, roq, started, until

pytestmark = pytest.mark.integration
LONG = "200000"
"""Lines: more than can be through before somebody interferes."""


def test_every_byte_arrives_at_both_subscribers() -> None:
    done = roq("demo", "--lines", "20000")
    out = done.stdout.decode()
    assert done.returncode == 0, (out, done.stderr)
    assert "every byte arrived at each of them, once and in order" in out
    assert out.count("✔ equal") == 8
    assert "✘" not in out
    assert "MB/s" in out
    assert "p99.9" in out


def test_an_interrupted_demo_leaves_nothing_behind() -> None:
    with started("demo", "--lines", LONG) as demo:
        for line in iter(lambda: read_line(demo.stdout), b""):
            if b"line by line" in line:
                break
        processes = family(demo.pid)
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
        assert demo.returncode == 130
        assert gone(processes)


def test_a_worker_that_dies_is_named() -> None:
    with started("demo", "--lines", LONG) as demo:
        workers: dict[str, psutil.Process] = {}

        def found() -> bool:
            for process in family(demo.pid):
                with suppress(psutil.NoSuchProcess):
                    arguments = process.cmdline()
                    if "roq.demo.worker" in arguments:
                        workers[Path(arguments[-1]).stem] = process
            return len(workers) == 4

        assert until(found)
        processes = family(demo.pid)
        workers["publisher-1"].kill()
        _, err = demo.communicate(timeout=60)
        assert demo.returncode == 1
        assert b"publisher 1 has ended" in err
        assert gone(processes)


@pytest.mark.long
def test_the_demo_of_jobs_runs_them_and_leaves_nothing_behind() -> None:
    with started("jobs", "demo", "--workers", "1") as demo:
        said = []
        for line in iter(lambda: read_line(demo.stdout), b""):
            said.append(line.decode())
            if " complete" in said[-1]:
                break
        assert re.match(r"console at http://127\.0\.0\.1:\d+/jobs$", said[0])
        processes = family(demo.pid)
        assert len(processes) > 4, "a cluster, a worker and a console"
        demo.send_signal(signal.SIGTERM)
        _, err = demo.communicate(timeout=120)
        assert demo.returncode == 0, err
        assert b"nothing of the demo is left" in err
        assert gone(processes)
