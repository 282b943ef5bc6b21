"""The examples for Spark run as they are, in the session that is there."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from traces import Story, exchange, move

from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

FOLDER = Path(__file__).parents[2] / "examples"


def some_traces(folder: Path) -> str:
    story = Story()
    for at in range(10):
        story.document(at, exchange(1, 100 * at))
        for client in ("subscriber-0", "subscriber-1"):
            story.client(client, at, [0.002] * 50 + [0.1 * at], messages=51)
    for _ in range(3):
        story.document(5.0, move("accepted"))
    story.messages.append(story.messages[-1])
    return story.write(folder / "a-run").uri


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spark_batch", "messages published"),
        ("spark_stream", "1500 readings in"),
        ("spark_pipeline", "found queue, quick, quiet, question"),
        ("spark_traces", "33 traces of 2 subscribers asked"),
    ],
)
def test_the_last_line_tells_that_all_of_it_worked(
    spark: SparkSession,
    roq_cluster: RunningCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
) -> None:
    monkeypatch.setenv("ROQ_CLUSTER", roq_cluster.address)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("ROQ_TRACES", some_traces(tmp_path))
    runpy.run_path(str(FOLDER / f"{name}.py"))
    assert text in capsys.readouterr().out.splitlines()[-1]


def test_they_are_cut_into_cells() -> None:
    for path in FOLDER.glob("spark_*.py"):
        assert path.read_text().count("\n# %% ") >= 3, path.name
