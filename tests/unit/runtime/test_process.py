import os
import signal
import sys

from roq.runtime.process import spawn
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
