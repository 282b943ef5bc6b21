"""The examples for Spark run as they are, in the session that is there."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spark_batch", "messages published"),
        ("spark_stream", "1500 readings in"),
        ("spark_pipeline", "found queue, quick, quiet, question"),
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
    runpy.run_path(str(FOLDER / f"{name}.py"))
    assert text in capsys.readouterr().out.splitlines()[-1]


def test_they_are_cut_into_cells() -> None:
    for path in FOLDER.glob("spark_*.py"):
        assert path.read_text().count("\n# %% ") >= 3, path.name
