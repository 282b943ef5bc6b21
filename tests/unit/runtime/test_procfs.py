import os
import subprocess
import sys

from roq.runtime import procfs


def test_this_process_runs_and_is_started_once() -> None:
    one = procfs.sample(os.getpid())
    assert one is not None
    assert one.state == "R"
    while True:
        two = procfs.sample(os.getpid())
        assert two is not None
        assert two.start == one.start
        if two.ran_ns > one.ran_ns:
            break


def test_a_process_that_has_ended_says_so_until_it_is_taken_away() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = procfs.sample(process.pid)
    assert found is not None
    assert found.state in procfs.ENDED
    process.wait()
    assert procfs.sample(process.pid) is None
    assert procfs.arguments(process.pid) is None


def test_the_command_line_is_told_word_by_word() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "two words", ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()  # only then it is the other program for sure
        assert procfs.arguments(process.pid) == [sys.executable, "-c", code, "two words", ""]
    finally:
        process.communicate()


def test_a_start_of_the_machine_has_a_name() -> None:
    assert procfs.boot_id() == procfs.boot_id()
