"""Parts of a micro-batch are published once, by whichever task is first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql import DataFrame  # noqa: E402 - after the check that Spark is there
from pyspark.sql.types import StructType  # noqa: E402

from roq.errors import ConfigError  # noqa: E402
from roq.spark import task_sink  # noqa: E402
from roq.spark.options import WriteOptions, write_options  # noqa: E402
from roq.spark.sink import NotPublished, publisher_id  # noqa: E402
from roq.spark.staging import Attempt, Staging  # noqa: E402
from roq.spark.task_sink import Publishing, TaskSink  # noqa: E402

GIVEN = {"cluster": "a:1", "queue": "q", "stagingLocation": "/never-made"}
DECIDED = [Attempt("one", 1), Attempt("two", 2), Attempt("three", 3)]


class Calls:
    """Stands in for `publish`: notes what was asked, and fails while `failing`."""

    def __init__(self) -> None:
        self.made: list[tuple[str, bytes]] = []
        self.failing = False
        self.meanwhile: list[int] = []
        """Parts that another task has published when this one fails."""

    def __call__(
        self, staging: Staging, attempts: list[Attempt], _options: WriteOptions, identity: bytes
    ) -> None:
        ((name, _),) = [(each.name, each.rows) for each in attempts]
        self.made.append((name, identity))
        if self.failing:
            for part in self.meanwhile:
                staging.finish_part(4, part)
            raise NotPublished("queue 'q': another publisher has this id")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(task_sink, "publish", made)
    return made


def publishing(tmp_path: Path, **options: str) -> Publishing:
    given = {**GIVEN, "stagingLocation": str(tmp_path), **options}
    return Publishing(write_options(given, streaming=True, tasks=True), 4, "writer", DECIDED)


def parts(*numbers: int) -> list[object]:
    return [pa.RecordBatch.from_pydict({"part": list(numbers)})]


def test_each_part_has_a_publisher_that_is_the_same_each_time(tmp_path: Path, calls: Calls) -> None:
    (told,) = publishing(tmp_path).run(parts(0, 2))
    assert told.column(0).to_pylist() == [0, 2]
    assert calls.made == [
        ("one", publisher_id("writer", 4, 0)), ("three", publisher_id("writer", 4, 2))
    ]  # fmt: skip
    names = {publisher_id("writer", 4, part) for part in (None, 0, 1, 2)}
    assert len(names) == 4


def test_a_part_that_was_published_is_not_published_again(tmp_path: Path, calls: Calls) -> None:
    list(publishing(tmp_path).run(parts(1)))
    list(publishing(tmp_path).run(parts(0, 1)))
    assert [name for name, _ in calls.made] == ["two", "one"]


def test_a_task_that_another_one_has_cut_off_leaves_the_part_to_it(
    tmp_path: Path, calls: Calls
) -> None:
    calls.failing, calls.meanwhile = True, [1]
    assert len(list(publishing(tmp_path).run(parts(1)))) == 1
    assert len(calls.made) == 1


def test_a_part_that_nobody_publishes_fails_its_task(tmp_path: Path, calls: Calls) -> None:
    calls.failing = True
    task = publishing(tmp_path, flushSeconds="0.1", timeoutSeconds="0.1")
    with pytest.raises(NotPublished):
        list(task.run(parts(1)))
    assert not Staging(str(tmp_path)).part_done(4, 1)


def test_what_tells_of_parts_goes_with_the_micro_batch(tmp_path: Path, calls: Calls) -> None:
    list(publishing(tmp_path).run(parts(0, 1, 2)))
    staging = Staging(str(tmp_path))
    staging.finish(4, [], len(DECIDED))
    assert [path.name for path in (tmp_path / "batches").iterdir()] == ["4.done"]
    assert len(calls.made) == 3
    # A copy of a task that comes late finds nothing to do, and leaves nothing behind.
    list(publishing(tmp_path).run(parts(2)))
    staging.finish_part(4, 2)
    assert [path.name for path in (tmp_path / "batches").iterdir()] == ["4.done"]
    assert len(calls.made) == 3


class Rows:
    """Stands in for a DataFrame; `mapInArrow` runs in this process, `stages` times at most."""

    def __init__(self, stages: int = 0) -> None:
        self.stages = stages
        self.sparkSession = self
        self.columns = ["payload"]
        self.schema = StructType().add("payload", "string")
        self._task: Callable[[list[Any]], Iterator[Any]] | None = None
        self._given: list[object] = []

    def range(self, first: int, end: int, step: int, tasks: int) -> Rows:
        assert (first, step, tasks) == (0, 1, end)
        made = Rows(stages=1)
        made._given = [pa.RecordBatch.from_pydict({"id": [part]}) for part in range(end)]
        return made

    def toDF(self, name: str) -> Rows:  # noqa: N802 - as Spark calls it
        assert name == "part"
        return self

    def mapInArrow(self, task: object, _schema: str) -> Rows:  # noqa: N802
        assert self.stages, "the rows were staged once more"
        self.stages -= 1
        self._task = cast("Callable[[list[Any]], Iterator[Any]]", task)
        return self

    def collect(self) -> list[dict[str, object]]:
        given = self._given or [pa.RecordBatch.from_pydict({"payload": [str(n)]}) for n in range(3)]
        assert self._task is not None
        # Each batch is a partition.
        return [row for one in given for told in self._task([one]) for row in told.to_pylist()]


@pytest.fixture
def sink(tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> TaskSink:
    assert calls.made == []
    monkeypatch.setattr(task_sink, "check", lambda _options: None)
    return TaskSink(**{**GIVEN, "stagingLocation": str(tmp_path)}, writerId="writer")


def micro_batch(stages: int = 0) -> DataFrame:
    return cast("DataFrame", Rows(stages))


def test_a_driver_that_dies_before_it_has_decided_stages_once_more(
    tmp_path: Path, sink: TaskSink, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "decide", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sink(micro_batch(stages=1), 4)
    lost = {path.stem for path in (tmp_path / "attempts").iterdir()}
    assert len(lost) == 3
    sink(micro_batch(stages=1), 4)
    assert len(calls.made) == 3
    assert lost.isdisjoint(name for name, _ in calls.made)
    assert {path.stem for path in (tmp_path / "attempts").iterdir()} == lost, "until it is swept"


def test_a_driver_that_dies_after_it_has_decided_publishes_what_was_decided(
    sink: TaskSink, calls: Calls
) -> None:
    calls.failing, calls.meanwhile = True, [0]  # part 0 is published, part 1 is not
    sink._options = replace(sink._options, flush=0.1, timeout=0.1)
    with pytest.raises(NotPublished):
        sink(micro_batch(stages=1), 4)
    before = list(calls.made)
    calls.failing = False
    sink(micro_batch(), 4)
    assert calls.made[len(before)] == before[1]
    assert [identity for _, identity in calls.made[len(before) :]] == [
        publisher_id("writer", 4, part) for part in (1, 2)
    ]


def test_a_driver_that_dies_before_it_is_finished_publishes_nothing_again(
    tmp_path: Path, sink: TaskSink, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sink(micro_batch(stages=1), 4)
    assert len(calls.made) == 3
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "_delete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sink(micro_batch(), 4)  # it is noted as done, but not tidied up
    sink(micro_batch(), 4)
    assert len(calls.made) == 3
    assert list((tmp_path / "attempts").iterdir()) == []
    left = sorted(path.name for path in (tmp_path / "batches").iterdir())
    assert left == ["4.done", "4.json"]


def test_a_micro_batch_that_is_repeated_or_empty_publishes_nothing(
    sink: TaskSink, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink(micro_batch(stages=1), 4)
    sink(micro_batch(), 4)
    assert len(calls.made) == 3
    monkeypatch.setattr(task_sink, "_stage", lambda *_: [])
    sink(micro_batch(), 5)
    sink(micro_batch(), 5)
    assert len(calls.made) == 3


def test_a_query_cannot_change_who_publishes(tmp_path: Path) -> None:
    by_driver, by_tasks = Staging(str(tmp_path / "driver")), Staging(str(tmp_path / "tasks"))
    by_driver.writer("q1")
    by_tasks.writer("q1", tasks=True)
    assert by_tasks.writer("q1", tasks=True)
    with pytest.raises(ConfigError, match="whose driver publishes"):
        by_driver.writer("q1", tasks=True)
    with pytest.raises(ConfigError, match="whose tasks publish"):
        by_tasks.writer("q1")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"orderBy": "payload"}, "orderBy: key or topic"),
        ({"publishTasks": "4"}, "without orderBy"),
        ({"publishTasks": "0", "orderBy": "key"}, "publishTasks: a number from 1"),
        ({"checkpointLocation": "/c"}, "unknown option"),
        ({"stagingLocation": ""}, "stagingLocation is missing"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        TaskSink(**{**GIVEN, **options})
