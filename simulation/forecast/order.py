"""What people ask for: one run, or many; typed, and checked before anything is played."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roq.errors import ConfigError
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.grid import Value, value, varied
from roq.simulation.forecast.outcome import METRICS
from roq.simulation.lab.archive.folder import RUNS
from roq.simulation.lab.masters import SparkWish
from roq.simulation.scenario import reading
from roq.simulation.scenario.scenario import Scenario

CLUSTER_NAME: Final = "cluster"
CLUSTER: Final = Path(__file__).with_name("cluster.yaml")
"""The scenario called `cluster`: a hundred hosts, to be made larger by an order."""
CLUSTER_SETTINGS: Final[dict[str, Value]] = {"spread": 0.5}
"""Its publishers are not alike; those of other scenarios bring what these say."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a run and a sweep have in common.

    Attributes:
        scale: durations of scenarios are multiplied by this; rates stay.
        hosts: 0: as many as the scenario says.
        queues: that share the load.
        publishers: at the peak, in the proportions of the scenario; 0: as the scenario says.
        cells: parts of the cluster that know nothing of each other.
        settings: rules, parameters and thresholds by name; see `grid.varied`.
        workers: processes that share the work; 0: one for each core.
        out: folder in which the folder of the run is made.
    """

    scale: Annotated[float, Meta(gt=0, le=1_000)] = 1.0
    hosts: Annotated[int, Meta(ge=0, le=100_000)] = 0
    queues: Annotated[int, Meta(ge=1, le=100_000)] = 1
    publishers: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    cells: Annotated[int, Meta(ge=1, le=100_000)] = 1
    settings: dict[str, Value] = {}
    workers: Annotated[int, Meta(ge=0, le=256)] = 1
    out: Path = RUNS


class RunOrder(Order, frozen=True, kw_only=True):
    """One run.

    Attributes:
        scenario: the name of one that comes with RoQ, a file, or `cluster`.
        seed: of everything drawn.
    """

    scenario: str
    seed: int = 1


class SweepOrder(Order, frozen=True, kw_only=True):
    """Many runs: every scenario with every combination of values and every seed.

    Attributes:
        scenarios: as of a run.
        seeds: runs of each combination, with the seeds 1 to this.
        vary: name → values, names as in `settings`.
        metrics: figures in the table and the heat-maps.
        spark: on Spark; else in processes of this machine.
        master: of the Spark cluster.
        wish: what is asked of Spark beside that.
        ship: send RoQ's own code to the executors.
        results_at: folder (path or URI) below which the table of all runs is kept; empty: the
            folder of the sweep.
    """

    scenarios: Annotated[list[str], Meta(min_length=1)]
    seeds: Annotated[int, Meta(ge=1, le=100_000)] = 10
    vary: dict[str, list[Value]] = {}
    metrics: tuple[str, ...] = METRICS
    spark: bool = True
    master: str = "local[*]"
    wish: SparkWish = SparkWish()
    ship: bool = False
    results_at: str = ""


def case_of(order: Order, name: str) -> Case:
    """The run that is ordered, with the first seed.

    Args:
        order: what is asked for.
        name: of the scenario.

    Raises:
        ConfigError: there is no such scenario, or something in it or in the order cannot be.
    """
    case = Case(scenario=scenario_of(name).scaled(order.scale))
    usual = CLUSTER_SETTINGS if name == CLUSTER_NAME else {}
    sizes: dict[str, Value] = {
        "queues": order.queues,
        "hosts": order.hosts or case.scenario.hosts,
        "cells": order.cells,
    }
    if order.publishers:
        sizes["publishers"] = order.publishers
    return varied(case, {**usual, **sizes, **order.settings})


def scenario_of(name: str) -> Scenario:
    """A scenario by its name, its file, or `cluster`.

    Raises:
        ScenarioError: there is none, or it cannot be read.
    """
    return reading.read(CLUSTER if name == CLUSTER_NAME else reading.find(name))


def setting(text: str) -> tuple[str, Value]:
    """What `NAME=VALUE` says.

    Raises:
        ConfigError: it is not of that form.
    """
    name, sign, given = text.partition("=")
    if not name or not sign or not given:
        raise ConfigError(f"{text!r} is not of the form NAME=VALUE")
    return name, value(given)


def values(text: str) -> tuple[str, list[Value]]:
    """What `NAME=VALUE,VALUE,…` says.

    Raises:
        ConfigError: it is not of that form.
    """
    name, sign, given = text.partition("=")
    found = [value(each) for each in given.split(",") if each]
    if not name or not sign or not found:
        raise ConfigError(f"{text!r} is not of the form NAME=VALUE,VALUE,…")
    return name, found
