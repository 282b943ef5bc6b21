import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roq.benchmarks.processes import (
    BenchmarkError,
    Neighbours,
    Program,
    cpu_seconds,
    rss_bytes,
)

ECHO = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)"


def program(tmp_path: Path, code: str) -> Program:
    return Program([sys.executable, "-c", code], tmp_path / "log")


def test_a_program_answers_line_by_line_and_ends_with_its_input(tmp_path: Path) -> None:
    child = program(tmp_path, ECHO)
    child.write_line(b"ab")
    assert child.read_line(10) == b"abab"
    child.finish()
    assert not child.alive()


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    child = program(tmp_path, "raise SystemExit('no such thing')")
    with pytest.raises(BenchmarkError, match=r"code 1.*no such thing"):
        child.read_line(10)
    child.stop()


def test_silence_is_an_error_after_a_while(tmp_path: Path) -> None:
    child = program(tmp_path, ECHO)
    with pytest.raises(BenchmarkError, match="no answer"):
        child.read_line(0.01)
    child.stop()
    assert not child.alive()


def test_cost_of_a_process_is_known_until_it_has_gone(tmp_path: Path) -> None:
    before = cpu_seconds(os.getpid())
    sum(range(100_000))
    assert cpu_seconds(os.getpid()) > before > 0
    assert rss_bytes(os.getpid()) > 1_000_000
    child = program(tmp_path, ECHO)
    child.stop()
    assert cpu_seconds(child.pid) == 0.0
    assert rss_bytes(child.pid) == 0


def burning(pids: list[int]) -> list[float]:
    return [cpu_seconds(pid) for pid in pids]


def test_burners_burn_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    with Neighbours(2, 0, tmp_path) as burners:
        pids = burners.pids
        before = burning(pids)
        deadline = time.monotonic() + 30
        while any(now <= then + 0.02 for now, then in zip(burning(pids), before, strict=True)):
            assert time.monotonic() < deadline, "they do not use the processor"
    assert len(pids) == 2
    assert burning(pids) == [0.0, 0.0]


def wake_ups(pid: int) -> int:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[2]) for task in tasks)


def test_idle_servers_have_many_threads_that_wake_up_as_long_as_the_block_lasts(
    tmp_path: Path,
) -> None:
    with Neighbours(0, 2, tmp_path) as servers:
        pids = servers.pids
        before = [wake_ups(pid) for pid in pids]
        assert all(len(list(Path(f"/proc/{pid}/task").iterdir())) > 30 for pid in pids)
        deadline = time.monotonic() + 30
        while any(wake_ups(pid) < 100 + then for pid, then in zip(pids, before, strict=True)):
            assert time.monotonic() < deadline, "they sleep"
    assert burning(pids) == [0.0, 0.0]


def test_a_program_ends_with_the_thread_that_has_started_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as starter:
        child = starter.submit(program, tmp_path, ECHO).result()
        child.write_line(b"ab")
        assert child.read_line(10) == b"abab"
    child.wait(30)
    assert not child.alive()
    child.stop()
