"""One process of a cluster: ready line, end, last words, and dying with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from roq.local.part import Part, guarded
from roq.runtime.reactor import Reactor

READY = "import os, sys, signal; os.write(int(sys.argv[1]), b'{\"a\": 1}\\n'); signal.pause()"


class Stage:
    """A reactor, and what a part has told."""

    def __init__(self, folder: Path) -> None:
        self.reactor = Reactor()
        self.folder = folder
        self.told: list[str] = []

    def part(self, code: str) -> Part:
        return Part(
            self.reactor,
            "part",
            [sys.executable, "-c", code, "{ready_fd}"],
            log_path=self.folder / "part.log",
            on_ready=self._ready,
            on_end=self._end,
        )

    def _ready(self, _part: Part) -> None:
        self.told.append("ready")
        self.reactor.stop()

    def _end(self, _part: Part) -> None:
        self.told.append("end")
        self.reactor.stop()

    def run(self) -> None:
        self.reactor._stopping = False
        late = self.reactor.call_later(20, lambda: pytest.fail("nothing was told"))
        self.reactor.run()
        late.cancel()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.reactor.close()


def test_a_part_says_when_it_is_ready_and_is_seen_to_end(stage: Stage) -> None:
    part = stage.part(READY)
    stage.run()
    assert part.ready == {"a": 1}
    assert part.running
    part.terminate()
    stage.run()
    assert stage.told == ["ready", "end"]
    assert part.code == -signal.SIGTERM
    assert part.end_text() == "was ended by SIGTERM"


def test_a_part_that_ends_early_leaves_its_last_words(stage: Stage) -> None:
    part = stage.part("import sys; print('no ZooKeeper here', file=sys.stderr); sys.exit(69)")
    stage.run()
    assert stage.told == ["end"]
    assert part.ready is None
    assert part.code == 69
    assert part.end_text() == "ended with exit code 69"
    assert part.last_words() == "no ZooKeeper here"


def test_the_last_words_are_those_of_this_run(stage: Stage) -> None:
    (stage.folder / "part.log").write_text("of an earlier run\n")
    part = stage.part("print('now')")
    stage.run()
    assert part.last_words() == "now"


def test_a_ready_line_that_is_no_json_counts_as_ready(stage: Stage) -> None:
    part = stage.part(
        "import os, signal, sys; os.write(int(sys.argv[1]), b'up\\n'); signal.pause()"
    )
    stage.run()
    assert part.ready == {}
    part.terminate()
    stage.run()
    assert part.code == -signal.SIGTERM


def test_killing_takes_the_children_along(stage: Stage) -> None:
    part = stage.part(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "os.write(int(sys.argv[1]), b'{\"child\": %d}\\n' % child.pid); child.wait()"
    )
    stage.run()
    assert part.ready is not None
    child = psutil.Process(int(str(part.ready["child"])))
    part.kill()
    stage.run()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_guarded_program_ends_when_its_parent_is_killed() -> None:
    code = (
        "import subprocess, sys\n"
        "from roq.local.part import guarded\n"
        "words = guarded([sys.executable, '-c', "
        "'import signal; print(1, flush=True); signal.pause()'])\n"
        "child = subprocess.Popen(words, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_guarded_program_does_not_start_without_its_parent() -> None:
    words = guarded([sys.executable, "-c", "print('alive')"])
    words[words.index(str(os.getpid()))] = "1"
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
