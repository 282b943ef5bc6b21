"""How far a query is stands in its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roq.errors import ConfigError
from roq.model import LogId
from roq.simulation.experiments.chaos_spark.progress import (
    NONE,
    Progress,
    covers,
    progress,
    reached,
)
from roq.spark.offsets import Offsets


def written(checkpoint: Path, *, offsets: int, commits: int) -> None:
    document = Offsets("q", {LogId(1, 7): 10 * commits}).document()
    for folder, newest in (("offsets", offsets), ("commits", commits)):
        (checkpoint / folder).mkdir(parents=True)
        for number in range(newest + 1):
            text = f"v1\n{{}}\n{json.dumps(document)}"
            (checkpoint / folder / str(number)).write_text(text)
            (checkpoint / folder / f".{number}.crc").write_text("")


def test_a_query_that_has_not_begun_has_no_micro_batch(tmp_path: Path) -> None:
    assert progress(tmp_path) == Progress(NONE, NONE, publishing=False)
    assert reached(tmp_path, "q") == {}


def test_what_is_planned_and_not_committed_is_under_way(tmp_path: Path) -> None:
    written(tmp_path, offsets=12, commits=11)
    assert progress(tmp_path).phase == "reading"
    batches = tmp_path / "roq" / "batches"
    batches.mkdir(parents=True)
    (batches / "12.json").write_text("[]")
    assert progress(tmp_path).phase == "publishing"
    (batches / "12.done").write_text("")
    assert progress(tmp_path) == Progress(12, 11, publishing=False)
    (tmp_path / "commits" / "12").write_text("")
    assert progress(tmp_path).phase == "between"


def test_how_far_the_logs_are_read_is_what_is_committed(tmp_path: Path) -> None:
    written(tmp_path, offsets=4, commits=3)
    read = reached(tmp_path, "q")
    assert read == {LogId(1, 7): 30}
    assert covers(read, Offsets("q", {LogId(1, 7): 30}))
    assert not covers(read, Offsets("q", {LogId(1, 7): 31}))
    assert not covers(read, Offsets("q", {LogId(1, 7): 30, LogId(2, 7): 1}))
    with pytest.raises(ConfigError, match="another queue"):
        reached(tmp_path, "other")
