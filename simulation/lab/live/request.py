"""What is asked of a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from roq.simulation.lab.archive.folder import RUNS
from roq.simulation.lab.masters import SparkWish
from roq.simulation.scenario.scenario import Scenario


class LiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        scenario: as it was read.
        where: its file, for errors.
        scale: durations are multiplied by this.
        seed: of sizes and topics.
        cluster: addresses of configuration managers of a running cluster, separated by commas;
            empty: the run starts one of its own, and faults are possible.
        master: of Spark; a local one without a number of slots gets as many as are needed.
        spark: what is asked of Spark beside that.
        tasks: that share the load; 0: as many as it needs.
        out: where the folder of the run is made.
        traces: whether what monitors and clients say is kept as a table; without, figures come from
            the final tallies, and there is no series.
        traces_at: a folder (path or URI) for the table that the driver and all executors reach;
            empty: the folder of the run.
        trace_exchanges: that the queue of traces has.
        plain: plain stages instead of barrier ones (for dynamic allocation).
        ship: send RoQ's own code to the executors.
    """

    scenario: Scenario
    where: str = ""
    scale: Annotated[float, Meta(gt=0, le=1_000)] = 1.0
    seed: int = 1
    cluster: str = ""
    master: str = "local[*]"
    spark: SparkWish = SparkWish()
    tasks: Annotated[int, Meta(ge=0, le=1_000)] = 0
    out: Path = RUNS
    traces: bool = True
    traces_at: str = ""
    trace_exchanges: Annotated[int, Meta(ge=1, le=64)] = 2
    plain: bool = False
    ship: bool = False
