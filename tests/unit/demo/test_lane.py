"""A lane takes in what its worker says, in pieces as they come, and ends it whatever it does."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from roq.demo import lane as module
from roq.demo.corpus import Share
from roq.demo.lane import Lane
from roq.demo.report import Calm, Progress, Ready, StreamDigest, WorkerFinished, encode
from roq.demo.worker import Job

STREAMS = [
    StreamDigest(publisher="p", topic=topic, messages=3, bytes=7, sha256="") for topic in "ab"
]


class PaperReactor:
    def __init__(self) -> None:
        self.watched: dict[Any, Callable[[], None]] = {}

    def add(self, file: Any, readable: Callable[[], None]) -> None:
        self.watched[file] = readable

    def remove(self, file: Any) -> None:
        del self.watched[file]


class Stdin(io.BytesIO):
    """Keeps what was written; breaks when the process has ended."""

    broken = False
    written = b""

    def write(self, data: Any) -> int:
        if self.broken:
            raise BrokenPipeError
        self.written += data
        return len(data)


class PaperProcess:
    """A worker whose output the test writes."""

    made: list[PaperProcess]

    def __init__(self, argv: list[str], **_: Any) -> None:
        self.argv = argv
        out, self._into = os.pipe()
        self.stdout, self.stdin = os.fdopen(out, "rb"), Stdin()
        self.status: int | None = None
        self.killed = self.waited = 0
        self.made.append(self)

    def says(self, data: bytes) -> None:
        os.write(self._into, data)

    def ends(self) -> None:
        if self._into >= 0:
            os.close(self._into)
            self._into = -1

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.killed += 1
        self.status = -9

    def wait(self) -> None:
        self.waited += 1


class Scene:
    """A lane, its worker, and what it has told."""

    def __init__(self, folder: Path, share: Share | None = None) -> None:
        self.reactor = PaperReactor()
        self.told: list[Any] = []
        self.ended: list[Lane] = []
        self.lane = Lane(
            cast("Any", self.reactor), "subscriber 1", Job(address="h:1", queue="q", share=share),
            total=6, folder=folder, on_report=lambda _, report: self.told.append(report),
            on_end=self.ended.append,
        )  # fmt: skip
        self.process = PaperProcess.made[-1]

    def says(self, *pieces: bytes) -> None:
        for each in pieces:
            self.process.says(each)
            self.reactor.watched[self.process.stdout]()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(PaperProcess, "made", [], raising=False)
    monkeypatch.setattr(module.subprocess, "Popen", PaperProcess)
    made = Scene(tmp_path)
    yield made
    for each in PaperProcess.made:
        each.ends()
        each.stdout.close()


def test_a_worker_is_told_its_job_by_a_file(scene: Scene, tmp_path: Path) -> None:
    path = Path(scene.process.argv[-1])
    assert path.parent == tmp_path
    assert msgspec.json.decode(path.read_bytes(), type=Job) == Job(address="h:1", queue="q")
    assert scene.lane.log_path.is_file()
    assert not scene.lane.publishes
    assert Scene(tmp_path, Share([])).lane.publishes


def test_reports_are_taken_in_as_they_come_in_pieces(scene: Scene) -> None:
    ready, lane = encode(Ready()), scene.lane
    scene.says(ready[:5])
    assert not lane.ready
    scene.says(ready[5:] + encode(Progress(messages=4, bytes=9)) + encode(Calm()))
    assert (lane.ready, lane.calm, lane.messages, lane.bytes) == (True, True, 4, 9)
    assert scene.told == [Ready(), Calm()], "progress is looked at, and not told"
    assert lane.finished is None
    finished = WorkerFinished(streams=STREAMS, first=1.0, last=2.0)
    scene.says(encode(finished))
    assert (lane.finished, lane.messages, lane.bytes) == (finished, 6, 14)
    assert scene.told[-1] == finished


def test_that_nothing_is_there_to_be_read_is_no_end(scene: Scene) -> None:
    scene.reactor.watched[scene.process.stdout]()
    assert scene.ended == []


def test_the_end_of_its_output_is_told_once(scene: Scene) -> None:
    scene.process.ends()
    scene.reactor.watched[scene.process.stdout]()
    assert scene.ended == [scene.lane]
    assert scene.reactor.watched == {}
    scene.lane.close()


def test_it_is_told_to_go_on_and_to_finish(scene: Scene) -> None:
    scene.lane.go()
    scene.lane.go()
    assert (scene.process.stdin.written, scene.process.stdin.closed) == (b"go\ngo\n", False)
    scene.lane.end()
    scene.lane.end()
    assert scene.process.stdin.closed


def test_telling_one_that_has_ended_is_no_error(scene: Scene) -> None:
    scene.process.stdin.broken = True
    scene.lane.go()
    scene.process.stdin.close()
    scene.lane.go()


@pytest.mark.parametrize(("status", "killed"), [(None, 1), (0, 0)])
def test_closing_ends_the_process_if_it_runs_and_gives_everything_back(
    status: int | None, killed: int, scene: Scene
) -> None:
    scene.process.status = status
    scene.lane.close()
    scene.lane.close()
    assert scene.process.killed == killed
    assert scene.process.waited >= 1
    assert scene.reactor.watched == {}
    assert (scene.process.stdin.closed, scene.process.stdout.closed) == (True, True)
