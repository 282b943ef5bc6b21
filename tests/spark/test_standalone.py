"""Live runs on a standalone Spark cluster whose workers do not see the driver's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roq.simulation.experiments.chaos_spark.standalone import Standalone, can_hide
from roq.simulation.lab.archive.document import RunState
from roq.simulation.lab.archive.folder import read_run, read_series, runs, write_run
from roq.simulation.lab.traces.place import place_of
from roq.testing.running import RunningCluster

pytestmark = [
    pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1_800),
    pytest.mark.skipif(not can_hide(), reason="a folder cannot be hidden from workers here"),
]  # fmt: skip

TINY = """
title: A tiny one
phases:
  - name: load
    seconds: 6
    publishers: [{count: 4, rate: 50, size: 100}]
    subscribers: [{count: 2}]
expect:
  - {what: lost, op: "==", value: 0}
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    (tmp_path / "runs").mkdir()
    (tmp_path / "tiny.yaml").write_text(TINY)
    with Standalone(
        tmp_path, cores=2, memory="1g", workers=2, hidden=tmp_path / "runs"
    ) as standalone:
        yield standalone


def roq_sim(standalone: Standalone, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "roq", "sim", *arguments], capture_output=True, text=True,
        timeout=800, check=False,
        env={**os.environ, "SPARK_HOME": str(standalone.home), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip


def test_a_run_on_two_workers_is_evaluated_where_its_traces_are(
    standalone: Standalone, roq_cluster: RunningCluster, tmp_path: Path
) -> None:
    out, shared = tmp_path / "runs", tmp_path / "shared"
    order = (
        "run", tmp_path / "tiny.yaml", "--cluster", roq_cluster.address, "--out", out,
        "--master", standalone.master, "--tasks", "2", "--executors", "2", "--executor-cores", "2",
        "--executor-memory", "512m", "--conf", "spark.driver.memory=512m",
        "--conf", "spark.sql.shuffle.partitions=3",
    )  # fmt: skip
    refused = roq_sim(standalone, *order)
    assert refused.returncode != 0
    assert "executors do not share this place with the driver" in refused.stderr
    (folder,) = runs(out)
    assert read_run(folder).state is RunState.FAILED
    assert not read_run(folder).began_us, "the load has not begun"

    done = roq_sim(standalone, *order, "--traces-at", shared)
    assert done.returncode == 0, done.stderr[-3_000:]
    folder = runs(out)[-1]
    run, series = read_run(folder), read_series(folder)
    place = place_of(run)
    assert place is not None
    assert place.uri == f"file://{shared}/run={run.id}"
    assert (run.figures["lost"], run.figures["traces_missing"]) == (0, 0)
    assert run.figures["traces"] > 20
    assert not [remark for remark in run.remarks if "traces" in remark], run.remarks
    assert series.windows[2].latency is not None
    assert len(list(shared.rglob("*"))) < 200

    # As if the driver had been killed under load: what the tasks have counted is gone with it.
    lost = msgspec.structs.replace(
        run, state=RunState.ABANDONED, figures={}, began_us=0, seconds=0.0, remarks=[]
    )
    write_run(folder, lost)
    (folder / "series.json").unlink()
    again = roq_sim(standalone, "report", folder, "--evaluate")
    assert again.returncode == 0, again.stderr[-3_000:]
    found = read_run(folder)
    assert found.began_us == pytest.approx(run.began_us, abs=200_000)
    for name in ("sent", "received", "exchanges_most", "traces"):
        assert found.figures[name] == run.figures[name]
    assert found.figures["latency_p99_ms"] == pytest.approx(run.figures["latency_p99_ms"], rel=0.05)
    assert len(read_series(folder).windows) == len(series.windows)
