"""One live run, from the request to the folder: `run(request, show)`.

    Spark and cluster start -> probe -> queues -> tasks are ready -> load -> rest arrives
        -> traces collected -> figures, series, verdicts

Whatever happens on the way, everything that was started ends, and `run.json` says how it ended.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import roq
from roq.errors import ConfigError, RoQError
from roq.local.settings import HOSTS_MAX
from roq.runtime.addresses import parse_addresses
from roq.runtime.signals import SignalEvent
from roq.simulation.lab.archive.document import (
    PhaseTime,
    Run,
    RunKind,
    RunState,
    Series,
)
from roq.simulation.lab.archive.folder import make, new_id, write_run, write_series
from roq.simulation.lab.archive.life import this_process
from roq.simulation.lab.archive.verdicts import judge
from roq.simulation.lab.live import faults
from roq.simulation.lab.live.clocks import Clock, anchor, sentence
from roq.simulation.lab.live.conductor import Conductor
from roq.simulation.lab.live.driver import Driver
from roq.simulation.lab.live.environment import Environment
from roq.simulation.lab.live.interrupts import Aside, Interrupted, check, interrupts
from roq.simulation.lab.live.plan import plan
from roq.simulation.lab.live.request import LiveRequest
from roq.simulation.lab.live.setting import LiveFailed, Queues, Setting
from roq.simulation.lab.live.show import Show, Silent
from roq.simulation.lab.live.tasks import ONCE, Tasks
from roq.simulation.lab.live.tracing import Tracing
from roq.simulation.lab.live.verdict import Counts, TaskTally, count, figures
from roq.simulation.lab.masters import master_for, settings_for
from roq.simulation.lab.traces.collect import check_reach
from roq.simulation.lab.traces.grid import width
from roq.simulation.lab.traces.place import Place
from roq.simulation.real.results import Machine, measured
from roq.simulation.scenario.offered import offered
from roq.simulation.scenario.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TRACE_SLOTS: Final = 2
"""Slots beside the tasks, for the query that keeps the traces."""


def run(
    request: LiveRequest,
    show: Show | None = None,
    *,
    session: SparkSession | None = None,
    stop: SignalEvent | None = None,
) -> Path:
    """Run a scenario.

    Ctrl-C and SIGTERM end it in order, if this is the main thread; so does `stop`. The folder then
    says `interrupted`.

    Args:
        request: what is asked.
        show: shows how it goes on.
        session: of Spark, to be used and left; None: one of its own.
        stop: ends the run when it is set.

    Returns:
        The folder of the run.

    Raises:
        ConfigError: the scenario or the request cannot be; nothing was started.
        RoQError: it has failed; `run.json` says so as well, if it had begun.
    """
    scenario = request.scenario.scaled(request.scale)
    made = plan(scenario, tasks=request.tasks, where=request.where)
    faults.check(scenario, own=not request.cluster, where=request.where)
    if not request.cluster and scenario.hosts > HOSTS_MAX:
        raise ConfigError(
            f"{request.where or scenario.name}: hosts: a cluster of the run's own has at most "
            f"{HOSTS_MAX} hosts, not {scenario.hosts}: use --cluster"
        )
    slots = len(made.shares) + (TRACE_SLOTS if request.traces else 0)
    master = request.master if session is not None else master_for(request.master, slots)
    settings_for(master, request.spark, ONCE, cores=os.cpu_count() or 1)  # refuses what cannot be
    if request.cluster:
        # No user is to wait for Spark to hear that.
        roq.connect(parse_addresses(request.cluster)).close()
    folder = make(request.out, new_id(scenario.name, RunKind.LIVE))
    now, window = anchor(), float(width(made.seconds))

    setting = Setting(
        request=msgspec.structs.replace(request, scenario=scenario, master=master),
        plan=made,
        folder=folder,
        anchor=now,
        clock=Clock(now.wall_us - now.monotonic_us),
        window=window,
        show=show or Silent(),
        stop=stop or SignalEvent(),
    )
    return LiveRun(setting, session).play()


class LiveRun:
    """One run that has a folder.

    Args:
        setting: what its parts share.
        session: of Spark; None: one of its own.
    """

    def __init__(self, setting: Setting, session: SparkSession | None) -> None:
        self._setting = setting
        self._show = setting.show
        self._spark = Tasks(session)
        self._remarks = list(setting.plan.remarks)
        self._driver: Driver | None = None
        self._series: Series | None = None

    @property
    def _scenario(self) -> Scenario:
        return self._setting.request.scenario

    def play(self) -> Path:
        """All of it; gives the folder."""
        folder = self._setting.folder
        with measured() as machine:
            document = self._document(machine)
            write_run(folder, document)
            try:
                with interrupts(self._setting.stop, self._told_to_stop):
                    document = self._play(document)
            except Interrupted:
                document = self._ended(document, RunState.INTERRUPTED)
            except BaseException as error:
                document = self._ended(document, RunState.FAILED, str(error) or repr(error))
                write_run(folder, document)
                if isinstance(error, RoQError):
                    raise LiveFailed(f"{error}\n(see {folder})") from None
                raise
        # What the machine did meanwhile is known by now.
        write_run(folder, msgspec.structs.replace(document, machine=machine))
        return folder

    def _play(self, document: Run) -> Run:
        setting = self._setting
        with ExitStack() as stack:
            around = Environment(setting, self._spark, stack)
            cluster = around.start()
            around.look_at_executors(cluster)
            queues = around.make_queues(cluster)
            driver = Driver(cluster, queues.messages, setting.plan, setting.run, setting.clock)
            self._driver = stack.enter_context(driver)
            tracing = self._trace(stack, cluster, queues)
            conductor = Conductor(
                setting, self._spark, cluster, queues, around.own, driver, tracing, stack
            )
            try:
                found = self._judged(document, conductor.play(), tracing, RunState.COMPLETE)
            except Interrupted:
                if tracing is not None:
                    tracing.hurry()
                found = self._judged(document, conductor.end(), tracing, RunState.INTERRUPTED)
            document.machine.busy_percent = conductor.busy_percent
            self._show.step("everything ends")
        return msgspec.structs.replace(found, remarks=[*found.remarks, *around.remarks])

    def _trace(self, stack: ExitStack, cluster: roq.Cluster, queues: Queues) -> Tracing | None:
        if not queues.traces:
            return None
        setting = self._setting
        place = self._place()
        tracing = Tracing(cluster, queues, place, setting.run, setting.clock)
        stack.callback(tracing.close)
        self._show.step("traces are kept from now on")
        spark, tasks = self._spark.spark, len(setting.plan.shares)
        Aside(lambda: check_reach(spark, place, tasks), "place").wait()
        check(setting.stop)
        Aside(lambda: tracing.start(spark), "traces").wait()
        check(self._setting.stop)
        return tracing

    def _place(self) -> Place:
        """Of the traces."""
        setting = self._setting
        return Place(setting.request.traces_at or str(setting.folder), setting.run)

    def _told_to_stop(self) -> None:
        self._show.step("it is to end: a moment, so that nothing is left behind")

    # --- documents --------------------------------------------------------------------------------

    def _document(self, machine: Machine) -> Run:
        setting, request = self._setting, self._setting.request
        return Run(
            id=setting.run,
            kind=RunKind.LIVE,
            state=RunState.RUNNING,
            process=this_process(),
            scenario=self._scenario,
            time_scale=request.scale,
            seed=request.seed,
            settings={
                "master": request.master,
                **{f"conf {name}": value for name, value in request.spark.conf.items()},
                "tasks": len(setting.plan.shares),
                "stage": "plain" if request.plain else "barrier",
                "cluster": request.cluster or "its own",
                "traces": self._place().uri if request.traces else "not kept",
                "window_seconds": setting.window,
            },
            versions=_versions(),
            machine=machine,
        )

    def _ended(self, document: Run, state: RunState, error: str = "") -> Run:
        """What there is of a run that did not go to its end."""
        seconds = self._elapsed()
        return msgspec.structs.replace(
            document,
            state=state,
            error=error,
            process=None,
            began_us=self._driver.begin_us if self._driver is not None else 0,
            seconds=seconds,
            phases=self._phases(seconds),
            remarks=self._remarks,
        )

    def _judged(
        self, document: Run, tallies: list[TaskTally], tracing: Tracing | None, state: RunState
    ) -> Run:
        """The figures, from tallies and traces, and the verdicts."""
        document = self._ended(document, state)
        driver = self._driver
        if not tallies or driver is None:
            return document
        seconds = document.seconds
        counts = count(self._setting.plan, tallies)
        wanted = offered(self._scenario, 0.0, seconds).messages
        exact = figures(counts, tallies, seconds=seconds, offered=wanted)
        found: dict[str, float] = {}
        document = msgspec.structs.replace(
            document, clock=sentence(driver.hosts, driver.clock_error), figures=found | exact
        )
        if tracing is not None:
            self._show.step("what the traces say is worked out")
            traced, self._series = self._summarised(tracing, document)
            found = traced
            self._remarks += tracing.remarks(traced, exact)
        self._remarks += _remarks(counts)
        if self._series is not None:
            write_series(self._setting.folder, self._series)
        if self._setting.stop.is_set():
            document = msgspec.structs.replace(document, state=RunState.INTERRUPTED)
        all_figures = found | exact
        return msgspec.structs.replace(
            document,
            figures=all_figures,
            verdicts=judge(self._scenario.expect, all_figures),
            remarks=self._remarks,
        )

    def _summarised(
        self, tracing: Tracing, document: Run
    ) -> tuple[dict[str, float], Series | None]:
        def hurry() -> None:
            tracing.hurry()
            self._spark.cancel()

        work = Aside(lambda: tracing.summarise(self._spark.spark, document), "sum")
        stopped = document.state is RunState.INTERRUPTED
        return work.wait(None if stopped else self._setting.stop, hurry)

    def _elapsed(self) -> float:
        if self._driver is None or not self._driver.begin_us:
            return 0.0
        return min(self._setting.plan.seconds, max(0.0, self._driver.elapsed))

    def _phases(self, seconds: float) -> list[PhaseTime]:
        return [
            PhaseTime(name=phase.name, begins=begin, ends=min(seconds, begin + phase.seconds))
            for begin, phase in self._scenario.timed()
            if begin < seconds
        ]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("roq", "pyspark", "pyzmq"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _remarks(counts: Counts) -> list[str]:
    found = [f"{each}." for each in counts.wrong]
    if counts.unsent:
        found.append(f"{counts.unsent} messages were due and could not be sent in time.")
    if counts.unjudged:
        names = ", ".join(counts.unjudged)
        found.append(
            "In force later than planned, and owed only what follows their first messages: "
            f"{names}."
        )
    return found
