"""`roq sim sweep`: the model with every combination of some values, with many seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from roq.cli.failures import INTERRUPTED, wanted
from roq.cli.interrupts import ends_quietly
from roq.cli.output import note, print_table
from roq.cli.sim_run import OUT, SCALE, SPARK, Option, model_sizes, spark_wish, with_options

if TYPE_CHECKING:
    from roq.simulation.forecast.results import Row
    from roq.simulation.forecast.sweep import Swept

OPTIONS: Final[tuple[Option, ...]] = (
    click.option("--vary", multiple=True, metavar="NAME=V1,V2,…",
                 help="A rule, a parameter or a threshold (module.NAME) that is varied; several: "
                 "all combinations."),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                 help="One that is the same in all runs."),
    click.option("--seeds", type=click.IntRange(1, 100_000), default=10, show_default=True,
                 help="Runs of each combination."),
    click.option("--metric", "metrics", multiple=True,
                 help="Figures in the table and the heat-maps, instead of the usual ones."),
    SCALE,
    *model_sizes(),
    OUT,
    click.option("--results-at", default="", metavar="URI",
                 help="Where the table of all runs is kept, in a folder of its own: a path, "
                 "hdfs://…, s3a://…; else in the folder of the sweep."),
    click.option("--local", is_flag=True, help="Processes of this machine, without Spark."),
    click.option("--workers", type=click.IntRange(0, 256), default=0,
                 help="With --local: how many; 0: one for each core."),
    *SPARK,
)  # fmt: skip


@click.command()
@click.argument("scenarios", nargs=-1, required=True)
@with_options(*OPTIONS)
def sweep(
    vary: Sequence[str], settings: Sequence[str], metrics: Sequence[str], local: bool, **given: Any
) -> None:
    """Play scenarios on the model with every combination of some values, with many seeds.

    SCENARIOS are names out of `roq sim list`, files of your own, or `cluster`. Ctrl-C ends it; what
    is complete by then is written.

    \b
    Example:
      roq sim sweep ramp --local --vary cooldown_seconds=2,10,30 --seeds 20
      roq sim sweep cluster --vary known.OVERLOAD=1.05,1.3 --master 'local[*]'
    """
    orders = wanted("roq.simulation.forecast.order")
    order = orders.SweepOrder(
        vary=dict(map(orders.values, vary)),
        settings=dict(map(orders.setting, settings)),
        metrics=tuple(metrics) or wanted("roq.simulation.forecast.outcome").METRICS,
        spark=not local,
        wish=spark_wish(given),
        **given,
    )
    found: Swept | None = None
    with ends_quietly(), wanted("roq.simulation.real.bar").bar("tasks") as progress:
        found = wanted("roq.simulation.forecast.sweep").conduct(order, progress)
    if found is not None:
        show_sweep(found)
    if found is None or found.runs < found.wanted:
        raise SystemExit(INTERRUPTED)


def show_sweep(found: Swept) -> None:
    """Print its table, and where it is."""
    _show(found.table)
    note(f"{found.runs} of {found.wanted} runs in {found.took:.1f} s; written: {found.folder}")


def _show(rows: Sequence[Row]) -> None:
    columns = [name if isinstance(each, str) else f"{name}#" for name, each in rows[0].items()]
    print_table(columns, [[_cell(each) for each in row.values()] for row in rows], "no run")


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.3f}"
