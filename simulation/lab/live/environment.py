"""What a live run needs around it: a Spark session, a cluster, and the queues in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import roq
from roq.client.admin.views import ScalingRules
from roq.errors import ConfigError, QueueExists, RoQError
from roq.runtime.addresses import parse_addresses
from roq.simulation.lab.live import faults
from roq.simulation.lab.live.interrupts import Aside, check
from roq.simulation.lab.live.setting import Queues, Setting
from roq.simulation.lab.live.tasks import Tasks
from roq.simulation.scenario.settings import queue_rules
from roq.testing import cluster as own_cluster
from roq.testing.running import RunningCluster

QUEUE_SECONDS: Final = 30.0


class Environment:
    """Made step by step; all of it ends with the stack.

    Args:
        setting: of the run.
        spark: not started yet.
        stack: see above.

    Attributes:
        own: the cluster, if the run has started it.
        remarks: what could not be cleared away, in sentences.
    """

    def __init__(self, setting: Setting, spark: Tasks, stack: ExitStack) -> None:
        self.own: RunningCluster | None = None
        self.remarks: list[str] = []
        self._setting = setting
        self._spark = spark
        self._stack = stack
        self._show = setting.show
        self._ship: Path | None = None

    def start(self) -> roq.Cluster:
        """Start Spark and the cluster, side by side; gives a connection.

        Raises:
            Interrupted: the run is to end.
            RoQError: one of them does not start, or cannot be reached.
        """
        request = self._setting.request
        if request.ship:
            folder = TemporaryDirectory(prefix="roq-ship-")
            self._ship = Path(self._stack.enter_context(folder))
        self._stack.callback(self._spark.stop)
        works: list[Aside[None]] = [Aside(self._start_spark, "spark")]
        if request.cluster:
            self._show.step("Spark starts")
        else:
            hosts = request.scenario.hosts
            self._show.step(f"Spark and a cluster of {_count(hosts, 'host')} start")
            works.append(Aside(self._start_cluster, "cluster"))
        errors = []
        for each in works:
            try:
                each.wait()
            except BaseException as error:  # noqa: BLE001 - the other one is waited for as well
                errors.append(error)
        if errors:
            raise errors[0]
        check(self._setting.stop)
        given = parse_addresses(request.cluster) if self.own is None else self.own.managers
        cluster = roq.connect(given, timeout=QUEUE_SECONDS)
        return self._stack.enter_context(contextlib.closing(cluster))

    def look_at_executors(self, cluster: roq.Cluster) -> None:
        """Make sure that load can come from them.

        Raises:
            Interrupted: the run is to end.
            RoQError: it cannot; says why.
        """
        tasks = len(self._setting.plan.shares)
        self._show.step(f"{_count(tasks, 'task')} look whether the cluster is in reach")
        slots = tasks + bool(self._setting.request.traces)
        self._aside(lambda: self._spark.wait_for_slots(slots))
        machines: list[str] = []
        addresses = cluster.addresses
        self._aside(
            lambda: machines.extend(each.machine for each in self._spark.probe(tasks, addresses))
        )
        if self.own is not None and set(machines) - {self._setting.anchor.machine}:
            raise ConfigError(
                "executors run on other machines, but a cluster that the run starts itself is only "
                "reached from this one: start one with `roq up`, and give it by --cluster"
            )

    def make_queues(self, cluster: roq.Cluster) -> Queues:
        """The queue under load, and those beside it.

        Raises:
            Interrupted: the run is to end.
            RoQError: the cluster refuses.
        """
        name = self._setting.run
        traces = f"{name}-traces" if self._setting.request.traces else ""
        queues = Queues(name, f"{name}-messages", traces)
        self._show.step(f"queue {name} is made")
        self._aside(lambda: self._make_queues(cluster, queues))
        return queues

    # --- the work ---------------------------------------------------------------------------------

    def _start_spark(self) -> None:
        setting = self._setting
        request = setting.request
        self._spark.start(request.master, setting.folder / "spark.log", self._ship, request.spark)

    def _start_cluster(self) -> None:
        scenario = self._setting.request.scenario
        self.own = self._stack.enter_context(
            own_cluster(
                scenario.hosts,
                managers=faults.managers(scenario.faults),
                registry="zookeeper",
                zookeepers=faults.zookeepers(scenario.faults),
                # What a fault kills is started again, as `roq up` or systemd would.
                restart=bool(scenario.faults),
            )
        )

    def _make_queues(self, cluster: roq.Cluster, queues: Queues) -> None:
        scenario = self._setting.request.scenario
        self._make_queue(cluster, queues.load, scenario.queue.limits)
        for _ in range(scenario.queue.exchanges - 1):
            cluster.add_exchange(queues.load)
        rules = queue_rules(scenario)
        if rules is not None:
            cluster.set_rules(queues.load, rules)
        self._make_queue(cluster, queues.messages, {"exchanges_max": 1})
        if queues.traces:
            many = self._setting.request.trace_exchanges
            self._make_queue(cluster, queues.traces, {"exchanges_max": many})
            for _ in range(many - 1):
                cluster.add_exchange(queues.traces)
            fixed = ScalingRules(name=queues.traces, exchanges_min=many, exchanges_max=many)
            cluster.set_rules(queues.traces, fixed)

    def _make_queue(self, cluster: roq.Cluster, name: str, limits: dict[str, int]) -> None:
        ours = True
        try:
            cluster.create_queue(name, durability="none", limits=limits, timeout=QUEUE_SECONDS)
        except QueueExists:
            ours = False
            raise
        finally:
            # One that is half made goes as well; with a cluster of one's own all of them end.
            if ours and self.own is None:
                self._stack.callback(partial(self._remove_queue, cluster, name))

    def _remove_queue(self, cluster: roq.Cluster, name: str) -> None:
        try:
            if cluster.queue_exists(name):
                cluster.remove_queue(name, timeout=QUEUE_SECONDS)
        except RoQError as error:
            self.remarks.append(f"Queue {name} could not be removed: {error}")

    def _aside(self, work: Callable[[], object]) -> None:
        """Something that takes a while; when the run is to end, it does afterwards."""
        Aside(work, "environment").wait()
        check(self._setting.stop)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
