"""Parts of a micro-batch are published once, by whichever task is first."""

from __future__ import annotations

from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from roq.errors import ConfigError  # noqa: E402 - after the check that Spark is there
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
