"""What stands in the way of the jobs of today, and what is made of what was measured."""

from __future__ import annotations

import io
from pathlib import Path

from job_lab import Lab
from rich.console import Console
from sqlalchemy import inspect

from roq.benchmarks import backlog
from roq.benchmarks.backlog import BACKLOG, EMPTY, HELD, WAITING, BacklogResults, ConsoleCost, fill
from roq.benchmarks.job_times import JobTimes
from roq.benchmarks.results import environment
from roq.jobs.schema import JOB
from roq.jobs.states import JobStatus
from roq.jobs.views import JobFilter


def test_so_many_wait_and_are_done_as_if_they_had_been_submitted(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "jobs.db"), durable=False)
    fill(lab.jobs, 300, "Done")
    lab.check()
    told = {(each.type, each.status): each.number for each in lab.jobs.operate.counts()}
    assert told == {(WAITING, JobStatus.CREATED): 300, ("Done", JobStatus.COMPLETE): 300}
    names = {each["name"] for each in inspect(lab.jobs.engine).get_indexes("job")}
    assert names >= {each.name for each in JOB.indexes}
    mine = lab.instance(WAITING)
    assert [run.id for run in lab.claim(mine, 2, WAITING)] == [1, 2]
    assert len(lab.jobs.operate.jobs(JobFilter(types=("Done",)), most=1000)) == 300
    lab.close()


def test_each_is_compared_with_the_empty_one_of_its_rounds() -> None:
    results = BacklogResults(
        environment=environment(), rounds=2, number=5, held_seconds=601.2,
        rates={EMPTY: [100.0, 200.0, 400.0, 800.0], BACKLOG: [90.0, 180.0], HELD: [200.0, 400.0]},
        times=JobTimes(begin_ms=3.0, begin_p99_ms=9.0, used_percent=97.0,
                       handed_over_seconds=1.0, elsewhere_seconds=16.0),
        console=ConsoleCost(pages={"/a": 5.0, "/b": 70.0}, first={"/a": 6.0, "/b": 80.0},
                            browsers=50, core_percent=4.5),
    )  # fmt: skip
    told = dict(backlog.comparisons(results))
    assert told["backlog by empty"].startswith("0.90 ")
    assert told["backlog_and_transaction by empty"].startswith("0.50 ")
    assert told["the transaction was open, s"] == "601"
    assert told["slowest page of the console, ms"] == "70, wanted ≤ 200"
    assert told["50 open browsers, % of a core"] == "4.5, wanted ≤ 10"
    assert told["backlog: limits used, %"] == "97.0, wanted ≥ 95"
    text = io.StringIO()
    backlog.show(results, Console(file=text, width=200))
    assert "/b: 70 ms, at first 80 ms" in text.getvalue()
