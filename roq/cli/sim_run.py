"""`roq sim run`: play a scenario, live or on a model, and show what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.core import ParameterSource

from roq.cli.failures import INTERRUPTED, REFUSED, Failed, wanted
from roq.cli.interrupts import ends_quietly
from roq.cli.options import Number
from roq.cli.output import console, note
from roq.cli.sim_report import made, open_option

if TYPE_CHECKING:
    from roq.simulation.lab.archive.document import Run
    from roq.simulation.scenario.scenario import Scenario
from collections.abc import Callable

# Options that several commands of `roq sim` have, and how a command gets many of them.

Function = Callable[..., None]
Option = Callable[[Function], Function]

SCALE: Final[Option] = click.option(
    "--scale", type=Number(0, 1_000, min_open=True), default=1.0,
    show_default=True, help="Durations times this; rates stay.",
)  # fmt: skip
OUT: Final[Option] = click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False),
    default=Path("simulation/runs"), show_default=True, help="A folder is made in there.",
)  # fmt: skip


def model_sizes(only: str = "") -> tuple[Option, ...]:
    """How large the model is.

    Args:
        only: stands before each help text: for whom the options are, if not for everybody.
    """
    return (
        click.option("--hosts", type=click.IntRange(0, 100_000), default=0,
                     help=f"{only}0: as many as the scenario says."),
        click.option("--queues", type=click.IntRange(1, 100_000), default=1, show_default=True,
                     help=f"{only}That share the load."),
        click.option("--publishers", type=click.IntRange(0, 10_000_000), default=0,
                     help=f"{only}At the peak; 0: as the scenario says."),
        click.option("--cells", type=click.IntRange(1, 100_000), default=1, show_default=True,
                     help=f"{only}Parts of the cluster that know nothing of each other."),
    )  # fmt: skip


SPARK: Final[tuple[Option, ...]] = (
    click.option("--master", default="local[*]", show_default=True,
                 help="Of Spark: local[*], spark://host:7077, yarn, k8s://https://host:6443."),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Spark's configuration."),
    click.option("--executors", type=click.IntRange(0, 100_000), default=0,
                 help="Of Spark, how many; 0: as the cluster gives them."),
    click.option("--executor-cores", type=click.IntRange(0, 10_000), default=0,
                 help="Of each executor; 0: as Spark has it."),
    click.option("--executor-memory", default="", metavar="SIZE",
                 help="Of each executor, as Spark writes it: 2g."),
    click.option("--ship", is_flag=True, help="Send RoQ's own code to the executors."),
)  # fmt: skip


def spark_wish(given: dict[str, Any]) -> object:
    """What these options ask of Spark, taken out of what was given."""
    masters = wanted("roq.simulation.lab.masters")
    return masters.SparkWish(
        conf=masters.told(given.pop("conf")),
        **{name: given.pop(name) for name in ("executors", "executor_cores", "executor_memory")},
    )


def with_options(*options: Option) -> Option:
    """Give a command all of these, in this order."""

    def decorated(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


LIVE_ONLY: Final = (
    "cluster", "master", "tasks", "traces", "traces_at", "trace_exchanges", "plain", "ship",
)  # fmt: skip
SPARK_ONLY: Final = ("conf", "executors", "executor_cores", "executor_memory")
MODEL_ONLY: Final = ("hosts", "queues", "publishers", "cells", "workers")
OPTIONS: Final[tuple[Option, ...]] = (
    click.option("--model", is_flag=True, help="Play it on the model instead of a real cluster."),
    SCALE,
    click.option("--seed", type=int, default=1, show_default=True, help="Of everything drawn."),
    click.option("--repeat", type=click.IntRange(1, 1_000), default=1, show_default=True,
                 help="So many runs, with seeds one after the other, to be compared."),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
                 help="A rule of the queue; with --model also a parameter or a threshold."),
    OUT,
    click.option("--cluster", default="", metavar="ADDRESS",
                 help="Live: a cluster that runs; else the run starts one of its own."),
    click.option("--tasks", type=click.IntRange(0, 1_000), default=0,
                 help="Live: tasks that share the load; 0: as many as it needs."),
    click.option("--traces/--no-traces", default=True, show_default=True,
                 help="Live: keep what monitors and clients say as a table."),
    click.option("--traces-at", default="", metavar="URI",
                 help="Live: where that table is, in reach of all executors (hdfs://…, s3a://…, a "
                 "mounted folder); else the folder of the run."),
    click.option("--trace-exchanges", type=click.IntRange(1, 64), default=2, show_default=True,
                 help="Live: exchanges of the queue that traces go through."),
    click.option("--plain", is_flag=True,
                 help="Live: plain stages, where barriers cannot be (dynamic allocation)."),
    *SPARK,
    *model_sizes("Model: "),
    click.option("--workers", type=click.IntRange(0, 256), default=1, show_default=True,
                 help="Model: processes that share the cells; 0: one for each core."),
    click.option("--json", "as_json", is_flag=True, help="run.json on one line, for programs."),
    open_option,
)  # fmt: skip


@click.command()
@click.argument("scenario")
@with_options(*OPTIONS)
def run(
    scenario: str, model: bool, seed: int, repeat: int, as_json: bool,
    open_page: bool, **given: Any,
) -> None:  # fmt: skip
    """Run a scenario: a name out of `roq sim list`, a file of your own, or `cluster` (model).

    Ends with 0 if everything came out as the scenario expects, with 1 if not, and with 130 if it
    was interrupted. Ctrl-C ends it in order; what was traced by then is kept.

    \b
    Example:
      roq sim run short --open            # on a cluster of its own, half a minute
      roq sim run ramp --cluster 10.0.0.1:5000 --master spark://10.0.0.9:7077
      roq sim run ramp --cluster … --master yarn --traces-at hdfs://…
      roq sim run eqs-2011 --scale 0.1              # eighteen minutes in two
      roq sim run cluster --model --queues 20  # 100 hosts for an hour
    """
    _check_kind(click.get_current_context(), model=model)
    play = _model if model else _live
    good = True
    for number in range(repeat):
        if repeat > 1:
            note(f"run {number + 1} of {repeat}")
        folder = play(scenario, seed + number, given)
        done = made(folder, as_json=as_json, everything=False, open_page=open_page)
        if done.state == "interrupted":
            raise SystemExit(INTERRUPTED)
        good = good and _fulfilled(done)
    if not good:
        raise SystemExit(REFUSED)


def _check_kind(context: click.Context, *, model: bool) -> None:
    """Refuse options that mean nothing for this kind of run."""
    for name in (*LIVE_ONLY, *SPARK_ONLY) if model else MODEL_ONLY:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            kind = "a live run" if model else "a model (--model)"
            raise click.UsageError(f"--{name.replace('_', '-')} is for {kind}")


def _live(name: str, seed: int, given: dict[str, Any]) -> Path:
    reading = wanted("roq.simulation.scenario.reading")
    request = wanted("roq.simulation.lab.live.request")
    runs = wanted("roq.simulation.lab.live.run")
    path = reading.find(name)
    scenario = _with_rules(reading.read(path), given["settings"])
    wish = request.LiveRequest(
        scenario=scenario, where=str(path), seed=seed, scale=given["scale"], out=given["out"],
        spark=spark_wish(dict(given)),
        **{option: given[option] for option in LIVE_ONLY},
    )  # fmt: skip
    for each in wanted("roq.simulation.lab.archive.folder").settle(given["out"]):
        note(f"{each.id} was abandoned: {each.error}{_left(each)}")
    with wanted("roq.simulation.lab.live.show").show(console(error=True), scenario.title) as show:
        folder: Path = runs.run(wish, show)
    return folder


def _left(run: Run) -> str:
    """What an abandoned run has left where others are, too."""
    cluster = run.settings.get("cluster", "its own")
    return "" if cluster == "its own" else f"; its queues, {run.id}…, are still in {cluster}"


def _with_rules(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    if not settings:
        return scenario
    rules = dict(map(wanted("roq.simulation.forecast.order").setting, settings))
    known = wanted("roq.simulation.forecast.case").RULES
    for name in rules:
        if name not in known:
            raise Failed(f"there is no rule {name!r}; there are {', '.join(sorted(known))}")
    queue = msgspec.structs.replace(scenario.queue, rules={**scenario.queue.rules, **rules})
    return msgspec.structs.replace(scenario, queue=queue)


def _model(name: str, seed: int, given: dict[str, Any]) -> Path:
    orders = wanted("roq.simulation.forecast.order")
    order = orders.RunOrder(
        scenario=name, seed=seed, scale=given["scale"], out=given["out"],
        settings=dict(map(orders.setting, given["settings"])),
        **{option: given[option] for option in MODEL_ONLY},
    )  # fmt: skip
    with ends_quietly(), wanted("roq.simulation.real.bar").bar("cells") as progress:
        folder: Path = wanted("roq.simulation.forecast.run").run(order, progress)
        return folder
    raise SystemExit(INTERRUPTED)


def _fulfilled(run: Run) -> bool:
    good: bool = wanted("roq.simulation.lab.archive.verdicts").fulfilled(run.verdicts, run.kind)
    return good
