"""Live runs: load from Spark tasks against a real cluster."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import roq
from roq.errors import ConfigError, Unavailable
from roq.runtime.signals import SignalEvent
from roq.simulation.lab.archive.document import EventKind, RunState
from roq.simulation.lab.archive.folder import read_run, read_series, runs
from roq.simulation.lab.live.request import LiveRequest
from roq.simulation.lab.live.run import run
from roq.simulation.lab.live.show import Picture, Silent
from roq.simulation.scenario.draws import Topics
from roq.simulation.scenario.rates import Ramp
from roq.simulation.scenario.scenario import (
    Expectation,
    Fault,
    Phase,
    PublisherGroup,
    Scenario,
    SubscriberGroup,
)
from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]


def scenario_of(seconds: float) -> Scenario:
    """One task does all of it: the session of the tests has two slots, and traces need one."""
    topics = Topics(names=["a.1", "a.2", "b"])
    return Scenario(
        name="tiny",
        title="A tiny one",
        phases=[
            Phase(
                name="first",
                seconds=seconds,
                publishers=[PublisherGroup(count=2, rate=60.0, size=100, topics=topics)],
                subscribers=[SubscriberGroup(count=1), SubscriberGroup(count=1, topic="a.")],
            ),
            Phase(
                name="second",
                seconds=seconds,
                publishers=[PublisherGroup(count=3, rate=Ramp(60, 20), size=100, topics=topics)],
            ),
        ],
        expect=[
            Expectation(what="lost", op="==", value=0),
            Expectation(what="doubled", op="==", value=0),
            Expectation(what="load_reached", op=">=", value=0.99),
        ],
    )


def request_of(scenario: Scenario, cluster: RunningCluster, out: Path) -> LiveRequest:
    return LiveRequest(scenario=scenario, cluster=cluster.address, tasks=1, out=out)


def test_a_run_sends_what_it_says_and_knows_what_became_of_it(
    spark: SparkSession, roq_cluster: RunningCluster, tmp_path: Path
) -> None:
    folder = run(request_of(scenario_of(3.0), roq_cluster, tmp_path), session=spark)

    found, series = read_run(folder), read_series(folder)
    assert (found.state, found.error) == (RunState.COMPLETE, "")
    figures = found.figures
    assert figures["sent"] == pytest.approx(2 * 180 + 3 * 120, abs=3)
    assert figures["sent"] < figures["received"] < 2 * figures["sent"]
    assert (figures["lost"], figures["doubled"], figures["reordered"]) == (0, 0, 0)
    assert [verdict.holds for verdict in found.verdicts] == [True, True, True]
    assert 0 < figures["latency_p50_ms"] <= figures["latency_p99_ms"] <= figures["latency_max_ms"]
    assert "one monotonic clock" in found.clock
    assert [phase.name for phase in found.phases] == ["first", "second"]
    assert figures["traces_missing"] == figures["traces_rejected"] == 0, found.remarks
    assert figures["documents_dropped"] == 0, "the tap has passed on what the queue has told"
    assert figures["exchanges_most"] >= 1
    assert figures["exchange_messages_in"] > 0
    assert not [remark for remark in found.remarks if "traces" in remark]
    assert len(series.windows) == 6
    assert sum(each.latency.count for each in series.windows if each.latency) == found.figures[
        "received"
    ]  # fmt: skip
    assert [event.text for event in series.events if event.kind is EventKind.PHASE] == [
        "first", "second",
    ]  # fmt: skip
    with roq_cluster.connect() as cluster:
        assert not [queue for queue in cluster.queues() if queue.name.startswith("tiny")]


class Stopping(Silent):
    """Ends the run when the load goes on."""

    def __init__(self, stop: threading.Event, seconds: float) -> None:
        self._stop = stop
        self._seconds = seconds

    def picture(self, picture: Picture) -> None:
        if picture.elapsed >= self._seconds:
            self._stop.set()


def test_a_run_that_is_interrupted_leaves_nothing_and_says_so(
    spark: SparkSession, roq_cluster: RunningCluster, tmp_path: Path
) -> None:
    stop = SignalEvent()
    request = request_of(scenario_of(100.0), roq_cluster, tmp_path)

    folder = run(request, Stopping(stop, 3.0), session=spark, stop=stop)

    found = read_run(folder)
    assert found.state is RunState.INTERRUPTED
    assert 3 <= found.seconds < 90
    assert found.figures["lost"] == 0
    assert found.figures["sent"] > 0
    assert read_series(folder).windows
    assert not spark.streams.active
    with roq_cluster.connect() as cluster:
        assert not [queue for queue in cluster.queues() if queue.name.startswith("tiny")]


def test_what_cannot_be_is_refused_before_anything_starts(
    roq_cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = scenario_of(1.0)
    monkeypatch.setattr(roq, "connect", partial(roq.connect, timeout=1.0))
    with pytest.raises(Unavailable, match="no configuration manager"):
        run(LiveRequest(scenario=scenario, cluster="127.0.0.1:1", out=tmp_path))
    with pytest.raises(ConfigError, match=r"master local\[2\] has fewer slots than the 4"):
        run(LiveRequest(scenario=scenario, master="local[2]", out=tmp_path))
    broken = Scenario(
        name="broken", title="", phases=scenario.phases,
        faults=[Fault(at=1.0, kind="kill", target="exchange")],
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"faults\[0\]: faults need a cluster that the run"):
        run(request_of(broken, roq_cluster, tmp_path))
    assert not runs(tmp_path)
