"""A reader or writer arrives as it was, or says that RoQ is missing where it arrives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import roq

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.types import StructType

from roq.spark.options import read_options, write_options
from roq.spark.sink import StreamWriter
from roq.spark.source import BatchReader, RoqDataSource, StreamReader
from roq.spark.task_sink import Publishing, TaskSink

GIVEN = {"cluster": "a:1", "queue": "q"}
ELSEWHERE = """
import sys
sys.modules["roq"] = None  # as if it were not installed
from pyspark import cloudpickle
cloudpickle.loads(sys.stdin.buffer.read())
"""


def shipped() -> list[object]:
    columns = StructType().add("payload", "binary")
    return [
        RoqDataSource(dict(GIVEN)),
        BatchReader(read_options(GIVEN, streaming=False)),
        StreamReader(read_options(GIVEN, streaming=True)),
        StreamWriter(write_options({**GIVEN, "stagingLocation": "/s"}, streaming=True), columns),
        TaskSink(**GIVEN, stagingLocation="/s"),
        Publishing(write_options({**GIVEN, "stagingLocation": "/s"}, streaming=True), 1, "w", []),
    ]


@pytest.mark.parametrize("index", range(6))
def test_it_arrives_as_it_was(index: int) -> None:
    sent = shipped()[index]
    got = cloudpickle.loads(cloudpickle.dumps(sent))
    assert type(got) is type(sent)
    assert got.__dict__ == sent.__dict__


@pytest.mark.parametrize("index", range(6))
def test_where_the_package_is_missing_the_last_line_says_so(index: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=cloudpickle.dumps(shipped()[index]),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("ImportError: the format roq needs the package roq on every executor")
    assert sys.executable in last


OTHER = """
import sys
import roq
roq.__version__ = "0.0.9"
from pyspark import cloudpickle
cloudpickle.loads(sys.stdin.buffer.read())
"""


def test_where_the_package_is_another_version_both_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER],
        input=cloudpickle.dumps(shipped()[1]),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert f"there it is 0.0.9, the driver has {roq.__version__}" in last
    assert sys.executable in last
