"""A process is told apart from another one that has got its pid."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roq.provider.process import identify, is_daemon, working_in
from roq.runtime.process import detach


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_is_itself_until_it_ends(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    assert identity.alive
    assert not identity.wait(0.0)
    identity.send(signal.SIGTERM)
    assert identity.wait(10.0)
    assert not identity.alive
    identity.send(signal.SIGTERM)
    assert identity.wait(0.0)


@pytest.mark.parametrize("change", [{"start": 1}, {"boot": "another"}])
def test_another_process_with_the_same_pid_is_left_alone(
    sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    other = msgspec.structs.replace(identity, **change)
    assert not other.alive
    other.send(signal.SIGKILL)
    assert other.wait(0.0)
    assert sleeper.poll() is None


def test_a_child_that_has_ended_is_reaped(tmp_path: Path) -> None:
    pid = detach(["/bin/sh", "-c", "exit 3"], log_path=tmp_path / "log", env={})
    identity = identify(pid)
    assert identity is None or identity.wait(10.0)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_a_detached_process_has_its_own_session_and_none_of_our_files(tmp_path: Path) -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd')))"
    read, write = os.pipe()
    os.set_inheritable(write, True)
    pid = detach([sys.executable, "-c", code], log_path=tmp_path / "log", env={})
    identity = identify(pid)
    assert identity is None or identity.wait(20.0)
    os.close(read)
    os.close(write)
    assert (tmp_path / "log").read_text() == "True ['0', '1', '2', '3']\n"


def test_nobody_has_the_pid_of_nobody() -> None:
    assert identify(2**22 + 1) is None


def test_only_processes_of_roq_are_found_by_their_files(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.touch()
    with subprocess.Popen(["tail", "-f", str(file)], stdout=subprocess.DEVNULL) as pager:
        assert working_in(tmp_path) == []
        pager.kill()


def test_a_command_line_says_whether_it_is_ours() -> None:
    assert is_daemon(["python", "-P", "-m", "roq.hcm", "--config", "f"])
    assert not is_daemon(["python", "-m", "pytest", "roq.hcm"])
    assert not is_daemon(["-m"])
    assert not is_daemon([])
