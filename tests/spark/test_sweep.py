"""A sweep of the model on Spark: the same figures as without, and files that others can read."""

from __future__ import annotations

import pytest
from forecasts import case, rate_of, scenario

from roq.errors import ConfigError
from roq.simulation.forecast.order import SweepOrder
from roq.simulation.forecast.outcome import METRICS
from roq.simulation.forecast.results import Results, Row
from roq.simulation.forecast.sweep import Sweep, conduct, run
from roq.simulation.forecast.table import table, write
from roq.simulation.forecast.work import Here, Spark

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]


def sweep() -> Sweep:
    played = case(scenario(rate_of(2.2, 12), seconds=60.0), queues=2)
    return Sweep(
        cases=[played],
        vary={"policy": ["balanced", "static"], "known.OVERLOAD": [1.1, 1.6]},
        seeds=[1, 2],
    )


def test_a_sweep_on_spark_gives_what_this_process_gives(spark, tmp_path) -> None:
    told: list[tuple[int, int]] = []
    workers = Spark(spark.sparkContext)
    names = {"scenario": [sweep().cases[0].scenario.name], **sweep().vary}
    vary = {f"vary_{name}": values for name, values in names.items()}
    with Results(tmp_path / "runs", vary) as kept:
        run(sweep(), workers, lambda done, total: told.append((done, total)), kept.add)
    alone: list[Row] = []
    run(sweep(), Here(), lambda done, total: None, alone.append)
    rows = spark.read.parquet(kept.uri)
    assert {"vary_policy", "vary_known.OVERLOAD", "overload_minutes"} <= set(rows.columns)
    same = [name for name in alone[0] if name != "cpu_seconds"]
    kinds = (sorted(repr([row[name] for name in same]) for row in each)
             for each in (rows.collect(), alone))  # fmt: skip
    assert next(kinds) == next(kinds), "also what is no number"
    assert told == [(number, 8) for number in range(1, 9)]

    found = kept.combinations(METRICS)
    written = write(found, METRICS, tmp_path)
    assert any(path.suffix == ".png" and path.stat().st_size > 1_000 for path in written)
    still = [row for row in table(found, METRICS) if row["policy"] == "static"]
    assert all(row["moves"] == 0 for row in still)


def test_a_sweep_that_is_ordered_uses_the_session_that_is_there(spark, tmp_path) -> None:
    order = SweepOrder(
        scenarios=["ramp"], scale=0.3, seeds=2, vary={"cooldown_seconds": [2, 10]}, out=tmp_path,
        ship=True,
    )  # fmt: skip
    found = conduct(order)
    assert (found.runs, len(found.table)) == (4, 2)
    assert spark.range(3).count() == 3, "the session goes on"


def test_who_interrupts_a_sweep_on_spark_gets_what_is_complete(spark) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    rows: list[Row] = []
    run(sweep(), Spark(spark.sparkContext), interrupt, rows.append)
    assert len(rows) == 2
    assert spark.range(3).count() == 3


def test_a_run_that_cannot_be_played_ends_the_sweep_with_its_reason(spark) -> None:
    played = case(scenario(1.0, hosts=1), queues=3, host_slots=2)
    wanted = Sweep(cases=[played], vary={}, seeds=[1])
    with pytest.raises(ConfigError, match="do not fit"):
        run(wanted, Spark(spark.sparkContext), lambda done, total: None, lambda row: None)
