"""A worker publishes every line in order, or receives until its input ends, and says what."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roq.demo import worker as module
from roq.demo.corpus import Share, shares
from roq.demo.report import Calm, Progress, Ready, Report, WorkerFinished
from roq.demo.worker import Job, Tally, publish, subscribe

LINES = [b"%d\n" % number for number in range(7)]


class PaperQueue:
    """Cluster, publisher and subscriber in one."""

    id = b"\x01" * 16

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.lists: list[int] = []
        self.flushed: list[int] = []
        self.received: Any = iter(())
        self.closed = threading.Event()

    def __enter__(self) -> PaperQueue:
        return self

    def __exit__(self, *_: object) -> None: ...

    def publisher(self, _queue: str) -> PaperQueue:
        return self

    def subscriber(self, _queue: str) -> PaperQueue:
        return self

    def publish(self, line: bytes, topic: str) -> None:
        self.published.append((topic, line))

    def publish_many(self, lines: list[bytes], topic: str) -> None:
        self.lists.append(len(lines))
        self.published += [(topic, each) for each in lines]

    def flush(self, timeout: float) -> None:
        assert timeout > 0
        self.flushed.append(len(self.published))

    def batches(self) -> Any:
        return self.received

    def close(self) -> None:
        self.closed.set()

    def stats(self) -> Any:
        return SimpleNamespace(counts=SimpleNamespace(lost=3, duplicates=4))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> PaperQueue:
    paper = PaperQueue()
    monkeypatch.setattr(module.roq, "connect", lambda _: paper)
    monkeypatch.setattr(module, "CALM_SECONDS", 0.0)
    return paper


@pytest.fixture
def share(tmp_path: Path) -> Share:
    (tmp_path / "a.py").write_bytes(b"".join(LINES[:2]))
    (tmp_path / "b.py").write_bytes(b"".join(LINES[2:]))
    (found,) = shares(tmp_path, 1)
    return found


def told(
    share: Share, said: str, calm: int, monkeypatch: pytest.MonkeyPatch
) -> list[Report]:  # fmt: skip
    monkeypatch.setattr(module.sys, "stdin", io.StringIO(said))
    reports: list[Report] = []
    publish(Job(address="h:1", queue="q", share=share, calm=calm), share, reports.append)
    return [each for each in reports if not isinstance(each, Progress)]


@pytest.mark.parametrize(("calm", "lists"), [(0, [2, 5]), (2, [5]), (4, [3]), (99, [])])
def test_the_first_lines_go_one_by_one_and_the_others_file_by_file(
    calm: int, lists: list[int], queue: PaperQueue, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, quiet, finished = told(share, "go\ngo\n", calm, monkeypatch)
    assert (ready, quiet) == (Ready(), Calm())
    assert [line for _, line in queue.published] == LINES
    assert queue.lists == lists
    assert queue.flushed == [min(calm, 7), 7]
    assert isinstance(finished, WorkerFinished)
    (stream,) = finished.streams
    assert (stream.publisher, stream.messages) == (queue.id.hex(), 7)
    assert stream.bytes == sum(map(len, LINES))
    assert stream.sha256 == hashlib.sha256(b"".join(LINES)).hexdigest()


@pytest.mark.parametrize(("said", "published"), [("", 0), ("go\n", 3)])
def test_a_publisher_without_a_demo_ends(
    said: str, published: int, queue: PaperQueue, share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = told(share, said, 3, monkeypatch)
    assert len(queue.published) == published
    assert not any(isinstance(each, WorkerFinished) for each in reports)


def test_a_subscriber_receives_until_its_input_ends_and_tells_calm_and_full_apart(
    queue: PaperQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    full = threading.Event()
    restarted: list[bool] = []

    class Watched(Tally):
        def restart(self) -> None:
            super().restart()
            restarted.append(True)

        def tell(self) -> None:
            super().tell()
            if restarted:
                full.set()

    def batches() -> Iterator[Any]:
        made = {"topic": "t", "publisher": b"\x02" * 16, "timestamp": time.time()}
        yield SimpleNamespace(payloads=LINES[:3], **made)
        os.write(writing, b"go\n")
        assert full.wait(20)
        yield SimpleNamespace(payloads=LINES[3:], **made)
        os.close(writing)
        assert queue.closed.wait(20)

    reports: list[Report] = []
    queue.received = batches()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(module, "Tally", Watched)
        monkeypatch.setattr(module.sys, "stdin", stdin)
        subscribe(Job(address="h:1", queue="q"), reports.append)
    assert reports[0] == Ready()
    finished = reports[-1]
    assert isinstance(finished, WorkerFinished)
    (stream,) = finished.streams
    assert (stream.publisher, stream.topic, stream.messages) == ("02" * 16, "t", 7)
    assert stream.sha256 == hashlib.sha256(b"".join(LINES)).hexdigest()
    assert sum(finished.calm_latency.values()) == 3
    assert sum(finished.latency.values()) == 4
    assert (finished.lost, finished.duplicates) == (3, 4)


def test_progress_is_told_a_few_times_a_second_and_streams_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    said: list[Report] = []
    tally = Tally(said.append)
    for topic in ("b", "a", "b"):
        tally.add("p", topic, b"xy", 2)
        tally.tell()
    assert said == [Progress(messages=2, bytes=2)]
    now += module.PROGRESS_SECONDS
    tally.tell()
    assert said[1:] == [Progress(messages=6, bytes=6)]
    assert [(each.topic, each.messages, each.bytes) for each in tally.streams()] == [
        ("a", 2, 2), ("b", 4, 4),
    ]  # fmt: skip


def test_the_first_message_is_that_of_full_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 2.0, 3.0, 4.0])
    monkeypatch.setattr(module.time, "time", lambda: next(clock))
    tally = Tally(lambda _: None)
    tally.add("p", "t", b"x", 1)
    tally.add("p", "t", b"x", 1)
    assert (tally.first, tally.last) == (1.0, 2.0)
    tally.restart()
    tally.add("p", "t", b"x", 1)
    tally.add("p", "t", b"x", 1)
    assert (tally.first, tally.last) == (3.0, 4.0)
