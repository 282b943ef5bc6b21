"""What the collector reads out of checkpoints and errors of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'roq-cluster[spark]'")

from py4j.protocol import Py4JNetworkError

from roq.simulation.lab.traces.collect import Collector, committed, reason
from roq.simulation.lab.traces.place import CHECKPOINT, Place, TracesError

IN_THE_DRIVER = """An exception was raised by the Python Proxy. Return Message: Traceback (last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
OSError: no space left

=== Streaming Query ===
Identifier: traces of a-run [id = 4206f050]
Current Available Offsets: {}
"""
IN_A_TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due
to stage failure: Task 0 in stage 3.0 failed 1 times: org.apache.spark.api.python.PythonException:
  File "source.py", line 280, in _read
roq.errors.Unavailable: exchange x1 does not answer

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
Driver stacktrace: SQLSTATE: XXKST
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (IN_THE_DRIVER, "no space left"),
        (IN_A_TASK, "exchange x1 does not answer"),
        ("the moon is full\nand the night is long", "the moon is full"),
        ("", "without a reason"),
    ],
)
def test_of_an_error_the_innermost_reason_is_told(text: str, found: str) -> None:
    assert reason(text) == found


def checkpoint_in(folder: Path) -> tuple[Place, Path]:
    checkpoint = folder / "run=a-run" / CHECKPOINT
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    return Place(str(folder), "a-run"), checkpoint


def test_only_what_is_committed_counts(tmp_path: Path) -> None:
    place, checkpoint = checkpoint_in(tmp_path)
    assert committed(place) is None
    for number in range(12):
        lines = ["v1", "{}", json.dumps({"logs": {"1:1": number}})]
        (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
        (checkpoint / "offsets" / f".{number}.crc").write_bytes(b"")
    assert committed(place) is None
    for number in (0, 1, 9, 10):
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    assert committed(place) == {"logs": {"1:1": 10}}


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    place, checkpoint = checkpoint_in(tmp_path)
    for folder in ("offsets", "commits"):
        (checkpoint / folder / "3").write_text("v1\n{}")
    with pytest.raises(TracesError, match=str(checkpoint)):
        committed(place)


def test_it_can_be_stopped_when_spark_is_gone(tmp_path: Path) -> None:
    def gone() -> None:
        raise Py4JNetworkError("connection refused")

    nothing: Any = None
    collector = Collector(nothing, "127.0.0.1:1", "a-traces", Place(str(tmp_path), "r"), "r")
    collector._query = SimpleNamespace(exception=gone, stop=gone)  # type: ignore[assignment]
    collector.stop()
    assert "connection refused" in collector.failure
    collector.stop()
