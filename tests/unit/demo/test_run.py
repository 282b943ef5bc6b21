"""The demo goes from phase to phase as its workers tell, and ends early with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.demo import run as module
from roq.demo.corpus import Share, Source
from roq.demo.latency import Histogram
from roq.demo.report import Ready, StreamDigest, WorkerFinished
from roq.demo.run import CHECK_SECONDS, QUEUE, STALL_SECONDS, Demo, Phase
from roq.errors import QueueExists
from roq.local.launcher import StartFailed
from roq.local.plan import Addresses

SHARES = [
    Share([Source(f"{name}.py", "t", lines, 10 * lines)]) for name, lines in (("a", 6), ("b", 2))
]
ADDRESSES = Addresses(
    client="h:1", management="", broadcast="", registry="", hosts=["h1", "h2"], managers=[]
)


class PaperReactor:
    """A clock, and timers that are due when it is moved on."""

    def __init__(self) -> None:
        self.time, self.stopped = 100.0, 0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._due.append((self.time + seconds, call))

    def stop(self) -> None:
        self.stopped += 1

    def wait(self, seconds: float = CHECK_SECONDS) -> None:
        self.time += seconds
        due, self._due = self._due, []
        for _, call in due:
            call()


class PaperLauncher:
    def __init__(self, _reactor: Any, settings: Any, **calls: Any) -> None:
        self.settings, self.calls = settings, calls
        self.folder = SimpleNamespace(make=lambda _: Path())
        self.stopped = 0

    def start(self) -> None: ...

    def stop(self, stopped: Callable[[], None]) -> None:
        self.stopped += 1
        stopped()


class PaperLane:
    folder: Path

    def __init__(
        self, _reactor: Any, name: str, job: Any, *, total: int, folder: Path, on_report: Any,
        on_end: Any,
    ) -> None:  # fmt: skip
        self.name, self.job, self.total = name, job, total
        self.publishes = job.share is not None
        self.ready = self.calm = False
        self.messages = self.bytes = 0
        self.finished: WorkerFinished | None = None
        self.told: list[str] = []
        self.log_path = self.folder / name
        self.log_path.write_text("")
        self._report, self._end = on_report, on_end

    def says(self, **now: Any) -> None:
        vars(self).update(now)
        self._report(self, Ready())

    def ends(self) -> None:
        self._end(self)

    def go(self) -> None:
        self.told.append("go")

    def end(self) -> None:
        self.told.append("end")

    def close(self) -> None:
        self.told.append("close")


class PaperCluster:
    trouble: Exception | None = None

    def __init__(self) -> None:
        self.made: list[Any] = []

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def create_queue(self, name: str, **given: Any) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.made.append((name, given["host"], given["durability"], given["limits"]))

    def add_exchange(self, name: str, host: str) -> None:
        self.made.append((name, host))

    def exchanges(self, _name: str) -> list[Any]:
        return [SimpleNamespace(name=f"x{n}", host=host) for n, host in enumerate(("h1", "h2"), 1)]


class Scene:
    """A demo whose workers say what the test lets them say."""

    def __init__(self) -> None:
        self.reactor = PaperReactor()
        self.cluster = PaperCluster()
        self.demo = Demo(cast("Any", self.reactor), SHARES, subscribers=2, hosts=2, calm=3)
        self.launcher: Any = self.demo._launcher
        self.demo.start()

    @property
    def lanes(self) -> list[Any]:
        return cast("list[Any]", self.demo.lanes)

    def begin(self) -> None:
        self.launcher.calls["on_ready"](ADDRESSES)

    def calm(self) -> None:
        self.begin()
        for lane in self.lanes:
            lane.says(ready=True)

    def full(self) -> None:
        self.calm()
        for lane in self.lanes:
            # Three lines of the first share, and both of the second one.
            lane.says(**({"calm": True} if lane.publishes else {"messages": 5, "bytes": 50}))
        self.reactor.wait()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(PaperLane, "folder", tmp_path, raising=False)
    monkeypatch.setattr(module, "Lane", PaperLane)
    monkeypatch.setattr(module, "Launcher", PaperLauncher)
    made = Scene()
    monkeypatch.setattr(module.roq, "connect", lambda _: made.cluster)
    return made


def stream(publisher: str, messages: int, digest: str = "d") -> StreamDigest:
    return StreamDigest(
        publisher=publisher, topic="t", messages=messages, bytes=10 * messages, sha256=digest
    )


def test_a_queue_with_an_exchange_on_each_host_and_a_lane_for_each_worker(scene: Scene) -> None:
    scene.begin()
    assert scene.cluster.made == [
        (QUEUE, "h1", "none", {"exchanges_max": 1}), (QUEUE, "h2"),
    ]  # fmt: skip
    assert scene.demo.exchanges == ["x1 on h1", "x2 on h2"]
    assert [(lane.name, lane.total) for lane in scene.lanes] == [
        ("publisher 1", 6), ("publisher 2", 2), ("subscriber 1", 8), ("subscriber 2", 8),
    ]  # fmt: skip
    assert [lane.job.share for lane in scene.lanes] == [*SHARES, None, None]
    assert {(lane.job.address, lane.job.queue, lane.job.calm) for lane in scene.lanes} == {
        ("h:1", QUEUE, 3)
    }
    assert scene.launcher.settings.hosts == 2
    assert scene.demo.phase is Phase.CONNECTING


def test_nobody_publishes_before_everybody_is_ready(scene: Scene) -> None:
    scene.begin()
    *first, last = scene.lanes
    for lane in first:
        lane.says(ready=True)
    assert scene.demo.phase is Phase.CONNECTING
    last.says(ready=True)
    assert scene.demo.phase is Phase.CALM
    assert [lane.told for lane in scene.lanes] == [["go"], ["go"], [], []]


def test_full_speed_begins_when_every_single_line_has_arrived(scene: Scene) -> None:
    scene.calm()
    publishers, subscribers = scene.lanes[:2], scene.lanes[2:]
    for lane in publishers:
        lane.says(calm=True)
    for lane, messages in zip(subscribers, (5, 4), strict=True):
        lane.says(messages=messages)
    scene.reactor.wait()
    assert scene.demo.phase is Phase.CALM
    subscribers[1].says(messages=5)
    scene.reactor.wait()
    assert scene.demo.phase is Phase.RUNNING
    assert [lane.told for lane in scene.lanes] == [["go"] * 2] * 2 + [["go"]] * 2


def test_what_was_measured_at_full_speed_is_the_outcome(scene: Scene) -> None:
    scene.full()
    publishers, subscribers = scene.lanes[:2], scene.lanes[2:]
    for lane, messages, first in zip(publishers, (6, 2), (3.0, 2.0), strict=True):
        lane.says(
            finished=WorkerFinished(streams=[stream(lane.name, messages)], first=first, last=4.0)
        )
    scene.reactor.wait()
    assert scene.demo.phase is Phase.RUNNING, "not everything has arrived"
    for lane in subscribers:
        lane.says(messages=8)
    scene.reactor.wait()
    assert scene.demo.phase is Phase.CHECKING
    assert [lane.told[-1] for lane in scene.lanes] == ["go", "go", "end", "end"]
    slow = Histogram()
    slow.add(0.5, 4)
    for lane, last in zip(subscribers, (12.0, 10.0), strict=True):
        lane.says(
            finished=WorkerFinished(
                streams=[stream("publisher 1", 6), stream("publisher 2", 2)], first=2.0, last=last,
                latency=slow.counts(), lost=1, duplicates=2,
            )
        )  # fmt: skip
    found = scene.demo.outcome
    assert found is not None
    assert (found.messages, found.bytes, found.subscribers) == (8 - 5, 80 - 50, 2)
    assert found.seconds == 12.0 - 2.0
    assert (len(found.calm), len(found.full), found.lost, found.duplicates) == (0, 8, 2, 4)
    assert found.verdict.equal
    assert scene.demo.phase is Phase.DONE
    assert {lane.told[-1] for lane in scene.lanes} == {"close"}
    assert (scene.launcher.stopped, scene.reactor.stopped) == (1, 1)
    scene.demo.stop()
    assert scene.demo.phase is Phase.DONE


@pytest.mark.parametrize("phase", [Phase.CALM, Phase.RUNNING])
def test_when_nothing_moves_any_more_it_ends_with_what_workers_have_logged(
    phase: Phase, scene: Scene
) -> None:
    scene.calm() if phase is Phase.CALM else scene.full()
    scene.lanes[0].log_path.write_text("something is wrong\n")
    scene.reactor.wait(STALL_SECONDS - 1)
    assert scene.demo.phase is phase
    scene.lanes[3].messages += 1
    scene.reactor.wait(2)
    scene.reactor.wait(STALL_SECONDS - 1)
    assert scene.demo.phase is phase, "something has moved"
    scene.reactor.wait(2)
    assert scene.demo.phase is Phase.FAILED
    assert str(scene.demo.failure) == "nothing has moved for 20 s\nsomething is wrong"
    assert scene.reactor.stopped == 1


def test_a_worker_that_ends_too_early_is_named_with_its_own_log(scene: Scene) -> None:
    scene.calm()
    scene.lanes[0].log_path.write_text("of another one")
    scene.lanes[1].log_path.write_text("KeyError: 7")
    scene.lanes[1].ends()
    assert str(scene.demo.failure) == "publisher 2 has ended\nKeyError: 7"
    scene.lanes[2].ends()
    assert "publisher 2" in str(scene.demo.failure), "the first one is the reason"


def test_a_worker_that_has_finished_may_end(scene: Scene) -> None:
    scene.full()
    scene.lanes[0].says(finished=WorkerFinished(streams=[], first=1.0, last=2.0))
    scene.lanes[0].ends()
    assert scene.demo.phase is Phase.RUNNING


def test_a_part_of_the_cluster_that_ends_or_does_not_start_ends_the_demo(scene: Scene) -> None:
    part = SimpleNamespace(name="gcm", end_text=lambda: "was killed", last_words=lambda: "no more")
    scene.launcher.calls["on_part_ended"](part)
    assert str(scene.demo.failure) == "gcm was killed: no more"
    other = Scene()
    failed = StartFailed("no Java", 69)
    other.launcher.calls["on_failed"](failed)
    assert (other.demo.failure, other.demo.phase) == (failed, Phase.FAILED)
    assert (other.launcher.stopped, other.reactor.stopped) == (0, 1), "nothing of it runs"


def test_a_queue_that_cannot_be_made_ends_the_demo(scene: Scene) -> None:
    scene.cluster.trouble = QueueExists("there is one")
    scene.begin()
    assert (scene.demo.phase, scene.demo.failure) == (Phase.FAILED, scene.cluster.trouble)
    assert scene.lanes == []


def test_who_stops_it_gets_no_outcome_and_no_failure(scene: Scene) -> None:
    scene.calm()
    scene.demo.stop()
    assert (scene.demo.outcome, scene.demo.failure) == (None, None)
    assert scene.demo.total == 8
    assert scene.launcher.stopped == 1
