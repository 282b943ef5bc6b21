"""Driver, executor, task and exchange are killed while two queries run, and exchanges come and go.

A master and two workers, which do not see the driver's folder (where it can be hidden); tasks
publish. `make chaos-spark` kills sixty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scenarios import played

from roq.simulation.experiments.chaos_spark import folder as run_folders
from roq.simulation.experiments.chaos_spark.standalone import can_hide

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.faults, pytest.mark.long]

SEED = os.environ.get("ROQ_CHAOS_SEED", "1")


@pytest.mark.timeout(920)  # a busy machine takes long to start Java, and it is started often
def test_log_and_sinks_hold_the_same_messages_after_four_kills(tmp_path: Path) -> None:
    order = ("--tasks", "--seed", SEED, "--kills", "4")
    outcome = played("chaos_spark", *order, output=tmp_path, seconds=900)
    assert outcome["violations"] == []
    assert outcome["apart"] == can_hide()
    assert {kill["kind"] for kill in outcome["kills"]} == {
        "driver", "executor", "worker", "exchange",
    }  # fmt: skip
    assert [each["comes"] for each in outcome["scalings"]] == [True, False, True]
    tally = outcome["tally"]
    assert 0 < tally["sent"] == tally["logged"] == tally["filed"] + tally["unfiled"]
    assert tally["sent"] == tally["received"] + tally["unreceived"]
    assert tally["batches"] > tally["micro_batches"], "several tasks publish a micro-batch"
    assert run_folders.sweep() == [], "nothing is left behind; another run may be under way"
