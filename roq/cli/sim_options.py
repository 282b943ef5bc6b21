"""Options that several commands of `roq sim` have, and how a command gets many of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

Function = Callable[..., None]
Option = Callable[[Function], Function]

SCALE: Final[Option] = click.option(
    "--scale", type=click.FloatRange(0, 1_000, min_open=True), default=1.0,
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


def with_options(*options: Option) -> Option:
    """Give a command all of these, in this order."""

    def decorated(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated
