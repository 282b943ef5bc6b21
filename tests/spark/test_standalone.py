"""A standalone Spark cluster: a live run whose workers do not see the driver's folder, and tasks
that die and hang while they publish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import roq
from roq.simulation.experiments.chaos_spark.folder import SHORT_LIVED
from roq.simulation.experiments.chaos_spark.standalone import Standalone, can_hide
from roq.simulation.lab.archive.document import RunState
from roq.simulation.lab.archive.folder import read_run, read_series, runs, write_run
from roq.simulation.lab.traces.place import place_of
from roq.testing.running import RunningCluster

pytestmark = [
    pytest.mark.integration, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1_800),
]  # fmt: skip

FAULTY = Path(__file__).with_name("faulty_sink.py")
ROWS = 4_000

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("standalone")
    (made / "runs").mkdir()
    (made / "tiny.yaml").write_text(TINY)
    return made


@pytest.fixture(scope="module")
def standalone(folder: Path) -> Iterator[Standalone]:
    hidden = folder / "runs" if can_hide() else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED)
        with Standalone(folder, cores=2, memory="1g", workers=2, hidden=hidden) as standalone:
            yield standalone


def roq_sim(standalone: Standalone, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "roq", "sim", *arguments], capture_output=True, text=True,
        timeout=800, check=False,
        env={**os.environ, "SPARK_HOME": str(standalone.home), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip


@pytest.mark.skipif(not can_hide(), reason="a folder cannot be hidden from workers here")
def test_a_run_on_two_workers_is_evaluated_where_its_traces_are(
    standalone: Standalone, roq_cluster: RunningCluster, folder: Path
) -> None:
    out, shared = folder / "runs", folder / "shared"
    order = (
        "run", folder / "tiny.yaml", "--cluster", roq_cluster.address, "--out", out,
        "--master", standalone.master, "--tasks", "2", "--executors", "2", "--executor-cores", "2",
        "--executor-memory", "512m", "--conf", "spark.driver.memory=512m",
        "--conf", "spark.sql.shuffle.partitions=3",
    )  # fmt: skip
    refused = roq_sim(standalone, *order)
    assert refused.returncode != 0
    assert "executors do not share this place with the driver" in refused.stderr
    (failed,) = runs(out)
    assert read_run(failed).state is RunState.FAILED
    assert not read_run(failed).began_us, "the load has not begun"

    done = roq_sim(standalone, *order, "--traces-at", shared)
    assert done.returncode == 0, done.stderr[-3_000:]
    made = runs(out)[-1]
    run, series = read_run(made), read_series(made)
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
    write_run(made, lost)
    (made / "series.json").unlink()
    again = roq_sim(standalone, "report", made, "--evaluate")
    assert again.returncode == 0, again.stderr[-3_000:]
    found = read_run(made)
    assert found.began_us == pytest.approx(run.began_us, abs=200_000)
    for name in ("sent", "received", "exchanges_most", "traces"):
        assert found.figures[name] == run.figures[name]
    assert found.figures["latency_p99_ms"] == pytest.approx(run.figures["latency_p99_ms"], rel=0.05)
    assert len(read_series(made).windows) == len(series.windows)


def test_tasks_that_die_hang_or_run_twice_publish_each_row_once(
    standalone: Standalone,
    roq_cluster: RunningCluster,
    cluster: roq.Cluster,
    new_queue: Callable[..., str],
    tmp_path: Path,
) -> None:
    queue = new_queue(exchanges_max=2)
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps({
            "master": standalone.master, "home": str(standalone.home), "rows": ROWS,
            "cluster": roq_cluster.address, "queue": queue,
            "stagingLocation": str(tmp_path / "staging"),
            "warehouse": str(tmp_path / "warehouse"),
        })
    )  # fmt: skip
    with cluster.subscriber(queue) as subscriber:
        done = subprocess.run(
            [sys.executable, FAULTY, job], capture_output=True, text=True, timeout=500,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3_000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"published": ROWS}
        messages = []
        while len(messages) < ROWS:
            message = subscriber.receive(timeout=60)
            assert message is not None, f"only {len(messages)} messages came"
            messages.append(message)
        assert subscriber.receive(timeout=0.3) is None
        counts = subscriber.stats().counts
    assert sorted(int(message.payload) for message in messages) == list(range(ROWS))
    by_topic: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        by_topic[message.topic].append(int(message.payload))
    assert all(found == sorted(found) for found in by_topic.values())
    assert counts.duplicates >= 2 * (ROWS // 8)  # what died and what hung had published half
    assert counts.lost == 0
