import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from roq.runtime import procfs
from roq.runtime.process import Adopted, spawn
from roq.runtime.reactor import Reactor

LIVE = "import signal; print('up', flush=True); signal.pause()"
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True)\nwhile True: signal.pause()"
)


def wait_for_line(path, text: str) -> None:
    reactor = Reactor()

    def look() -> None:
        if text in path.read_text():
            reactor.stop()
        else:
            reactor.call_later(0.01, look)

    reactor.call_later(20, reactor.stop)
    look()
    reactor.run()
    reactor.close()
    assert text in path.read_text()


def test_output_goes_to_the_log_and_the_exit_code_is_known(tmp_path) -> None:
    log = tmp_path / "log"
    child = spawn([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], log_path=log)
    assert child.wait(20) == 3
    child.close()
    assert log.read_text() == "hello\n"


def test_the_end_of_a_child_wakes_a_reactor(tmp_path) -> None:
    child = spawn([sys.executable, "-c", LIVE], log_path=tmp_path / "log")
    reactor = Reactor()
    reactor.add(child, reactor.stop)
    reactor.call_soon(child.kill)
    reactor.run()
    assert child.poll() == -signal.SIGKILL
    reactor.remove(child)
    child.close()
    reactor.close()


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(tmp_path) -> None:
    child = spawn([sys.executable, "-c", DEAF], log_path=tmp_path / "log")
    wait_for_line(tmp_path / "log", "up")
    assert child.stop(grace=0.1) == -signal.SIGKILL
    child.close()


def test_a_child_has_its_own_session(tmp_path) -> None:
    child = spawn([sys.executable, "-c", LIVE], log_path=tmp_path / "log")
    wait_for_line(tmp_path / "log", "up")
    assert os.getsid(child.pid) == child.pid
    assert child.stop() == -signal.SIGTERM
    child.close()
    child.close()


# --- adopted --------------------------------------------------------------------------------------


class Foreign:
    """A process that is not our child: its parent has ended."""

    def __init__(self, code: str, folder: Path) -> None:
        report = folder / "pid"
        parent = (
            "import subprocess, sys, pathlib;"
            f"p = subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True,"
            f" stdout=open({str(folder / 'log')!r}, 'w'));"
            f"pathlib.Path({str(report)!r}).write_text(str(p.pid))"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", parent], check=True)
        self.pid = int(report.read_text())
        found = procfs.sample(self.pid)
        assert found is not None
        self.start = found.start
        wait_for_line(folder / "log", "up")


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Foreign]:
    found = Foreign(DEAF, tmp_path)
    yield found
    with suppress(ProcessLookupError):
        os.kill(found.pid, signal.SIGKILL)


def test_an_adopted_process_is_watched_and_its_end_has_no_exit_code(foreign) -> None:
    adopted = Adopted(foreign.pid, foreign.start)
    assert adopted.status is None
    reactor = Reactor()
    reactor.add(adopted, reactor.stop)
    reactor.call_soon(adopted.kill)
    reactor.run()
    assert adopted.status == "ended (exit status unknown)"
    adopted.terminate()
    adopted.kill()
    reactor.remove(adopted)
    adopted.close()
    reactor.close()


def test_an_adopted_process_that_ignores_sigterm_is_killed_after_the_grace(foreign) -> None:
    adopted = Adopted(foreign.pid, foreign.start)
    adopted.stop(grace=0.1)
    assert adopted.status is not None
    adopted.close()


def test_who_has_the_pid_now_is_not_taken_for_who_had_it(foreign) -> None:
    with pytest.raises(ProcessLookupError):
        Adopted(foreign.pid, foreign.start - 1)
    found = procfs.sample(foreign.pid)
    assert found is not None
    assert found.start == foreign.start


def test_a_process_without_a_descriptor_to_watch_it_is_not_left_behind(
    tmp_path, monkeypatch
) -> None:
    pids = []

    def refuse(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OSError, match="Too many"):
        spawn([sys.executable, "-c", LIVE], log_path=tmp_path / "log")
    assert procfs.sample(pids[0]) is None
