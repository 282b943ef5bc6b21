"""One live run, from the request to the folder: `run(request, show)`.

    Spark and cluster start -> probe -> queues -> tasks are ready -> load -> rest arrives
        -> traces collected -> figures, series, verdicts

Whatever happens on the way, everything that was started ends, and `run.json` says how it ended.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import roq
from roq.client.addresses import parse_addresses
from roq.errors import ConfigError, RoQError, Unavailable
from roq.local.settings import HOSTS_MAX
from roq.testing import cluster as own_cluster
from roq.testing.running import RunningCluster
from simulation.archive.document import (
    EventKind,
    PhaseTime,
    Run,
    RunKind,
    RunState,
    Series,
)
from simulation.archive.folder import make, new_id, write_run, write_series
from simulation.archive.verdicts import judge
from simulation.description.scenario import Scenario
from simulation.live import faults
from simulation.live.clocks import Anchor, Clock, anchor, monotonic_us, sentence
from simulation.live.driver import Driver, Herald
from simulation.live.faults import Faults
from simulation.live.glance import Glance, window_seconds
from simulation.live.interrupts import Aside, Interrupted, check, interrupts
from simulation.live.load import Job
from simulation.live.plan import Plan, offered_at, phases, plan, queue_rules
from simulation.live.request import LiveRequest
from simulation.live.show import Picture, Show, Silent
from simulation.live.tasks import Session, Stage, master_for
from simulation.live.tracing import Tracing
from simulation.live.verdict import Counts, TaskTally, count, figures
from simulation.scenario.results import Machine, measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roq.client.statistics import Statistics

READY_SECONDS: Final = 60.0
READY_EACH: Final = 0.1
"""Tasks have so long to get ready, and so much more for each client."""
ARRIVE_SECONDS: Final = 180.0
"""From the end of the load until all tasks have ended: overtime, flush, quiet."""
STOP_SECONDS: Final = 15.0
CANCEL_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.1
QUEUE_SECONDS: Final = 30.0
TRACE_SLOTS: Final = 2
"""Slots beside the tasks, for the query that keeps the traces."""
_TAG_BITS: Final = 32


class LiveFailed(RoQError):
    """A run has not gone to its end; the text says why, and the folder has what there is."""


def run(
    request: LiveRequest,
    show: Show | None = None,
    *,
    session: SparkSession | None = None,
    stop: threading.Event | None = None,
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
    if request.cluster:
        # Nobody is to wait for Spark to hear that.
        roq.connect(parse_addresses(request.cluster)).close()
    folder = make(request.out, new_id(scenario.name, RunKind.LIVE))
    asked = msgspec.structs.replace(request, scenario=scenario, master=master)
    return LiveRun(asked, made, folder, show or Silent(), session, stop).play()


class LiveRun:
    """One run that has a folder.

    Args:
        request: with the scenario as it is run.
        made: who does what.
        folder: for all that is kept.
        show: shows how it goes on.
        session: of Spark; None: one of its own.
        stop: ends it.
    """

    def __init__(
        self, request: LiveRequest, made: Plan, folder: Path, show: Show,
        session: SparkSession | None, stop: threading.Event | None,
    ) -> None:  # fmt: skip
        self._request = request
        self._plan = made
        self._folder = folder
        self._id = folder.name
        self._show = show
        self._spark = Session(session)
        self._stop = stop or threading.Event()
        self._anchor: Anchor = anchor()
        self._clock = Clock(self._anchor.wall_us - self._anchor.monotonic_us)
        self._window = window_seconds(made.seconds)
        self._glance = Glance(made, self._window)
        self._remarks = list(made.remarks)
        self._phase = ""
        self._own: RunningCluster | None = None
        self._driver: Driver | None = None
        self._series: Series | None = None

    @property
    def _scenario(self) -> Scenario:
        return self._request.scenario

    def play(self) -> Path:
        """All of it; gives the folder."""
        with measured() as machine:
            document = self._document(machine)
            write_run(self._folder, document)
            try:
                with interrupts(self._stop, self._told_to_stop):
                    document = self._play(document)
            except Interrupted:
                document = self._ended(document, RunState.INTERRUPTED)
            except BaseException as error:
                document = self._ended(document, RunState.FAILED, str(error) or repr(error))
                write_run(self._folder, document)
                if isinstance(error, RoQError):
                    raise LiveFailed(f"{error}\n(see {self._folder})") from None
                raise
        # The machine is measured by now.
        write_run(self._folder, msgspec.structs.replace(document, machine=machine))
        return self._folder

    def _play(self, document: Run) -> Run:
        with ExitStack() as stack:
            stack.callback(self._show.step, "everything has ended")
            cluster = self._start(stack)
            self._look_at_executors(cluster)
            queue = self._make_queues(stack, cluster)
            statistics = stack.enter_context(cluster.statistics(queue))
            self._driver = stack.enter_context(
                Driver(cluster, _words(queue), self._plan, self._id, self._clock)
            )
            tracing = self._trace(stack, cluster, queue)
            load = _Load(self, stack, cluster, queue, statistics, tracing)
            try:
                tallies = load.play()
            except Interrupted:
                tallies = load.end()
                stack.callback(self._show.step, "everything ends")
                return self._judged(document, tallies, None, RunState.INTERRUPTED)
            return self._judged(document, tallies, tracing, RunState.COMPLETE)

    # --- before the load --------------------------------------------------------------------------

    def _start(self, stack: ExitStack) -> roq.Cluster:
        """Spark and the cluster, side by side."""
        request, log = self._request, self._folder / "spark.log"
        ship = self._folder if request.ship else None
        stack.callback(self._spark.stop)
        works = [Aside(lambda: self._spark.start(request.master, log, ship), "spark")]
        if request.cluster:
            self._show.step("Spark starts")
            addresses = parse_addresses(request.cluster)
        else:
            self._show.step(f"Spark and a cluster of {self._scenario.hosts} hosts start")
            works.append(Aside(lambda: self._start_cluster(stack), "cluster"))
            addresses = []
        errors = []
        for each in works:
            try:
                each.wait()
            except BaseException as error:  # noqa: BLE001 - the other one is waited for as well
                errors.append(error)
        if errors:
            raise errors[0]
        check(self._stop)
        if self._own is not None:
            addresses = list(self._own.managers)
        cluster = roq.connect(addresses, timeout=QUEUE_SECONDS)
        return stack.enter_context(contextlib.closing(cluster))

    def _start_cluster(self, stack: ExitStack) -> None:
        wanted = self._scenario.faults
        self._own = stack.enter_context(
            own_cluster(
                self._scenario.hosts,
                managers=faults.managers(wanted),
                zookeepers=faults.zookeepers(wanted),
                # What a fault kills is started again, as `roq up` or systemd would.
                restart=bool(wanted),
            )
        )

    def _look_at_executors(self, cluster: roq.Cluster) -> None:
        tasks = len(self._plan.shares)
        self._show.step(f"{tasks} tasks look whether they reach the cluster")
        self._aside(lambda: self._spark.wait_for_slots(tasks), "slots")
        found: list[str] = []

        def look() -> None:
            found.extend(
                each.machine or each.host for each in self._spark.probe(tasks, cluster.addresses)
            )

        self._aside(look, "probe")
        if self._own is not None and set(found) - {self._anchor.machine, ""}:
            raise ConfigError(
                "executors run on other machines, but a cluster that the run starts itself is only "
                "reached from this one: start one with `roq up`, and give it by --cluster"
            )

    def _make_queues(self, stack: ExitStack, cluster: roq.Cluster) -> str:
        """The queue under load, and those beside it; gives the name of the first."""
        name, settings = self._id, self._scenario.queue
        beside = [_words(name)] + ([_traces(name)] if self._request.traces else [])
        self._show.step(f"queue {name} is made")

        def made() -> None:
            self._make_queue(stack, cluster, name, settings.limits)
            for _ in range(settings.exchanges - 1):
                cluster.add_exchange(name)
            rules = queue_rules(self._scenario)
            if rules is not None:
                cluster.set_rules(name, rules)
            for each in beside:
                self._make_queue(stack, cluster, each, {"exchanges_max": 1})

        self._aside(made, "queues")
        return name

    def _make_queue(
        self, stack: ExitStack, cluster: roq.Cluster, name: str, limits: dict[str, int]
    ) -> None:
        if self._own is None:  # else it ends with the cluster
            stack.callback(partial(self._remove_queue, cluster, name))
        cluster.create_queue(name, limits=limits, timeout=QUEUE_SECONDS)

    def _remove_queue(self, cluster: roq.Cluster, name: str) -> None:
        try:
            if cluster.queue_exists(name):
                cluster.remove_queue(name, timeout=QUEUE_SECONDS)
        except RoQError as error:
            self._remarks.append(f"Queue {name} could not be removed: {error}")

    def _trace(self, stack: ExitStack, cluster: roq.Cluster, queue: str) -> Tracing | None:
        if not self._request.traces:
            return None
        tracing = Tracing(cluster, queue, _traces(queue), self._folder, self._clock)
        stack.callback(tracing.close)
        self._show.step("traces are kept from now on")
        self._aside(lambda: tracing.start(self._spark.spark), "traces")
        return tracing

    def _aside(self, work: Callable[[], object], name: str) -> None:
        """Do something that takes a while; when the run is to end, it does afterwards."""
        Aside(work, name).wait()
        check(self._stop)

    def _told_to_stop(self) -> None:
        self._show.step("it is to end: a moment, so that nothing is left behind")

    # --- documents --------------------------------------------------------------------------------

    def _document(self, machine: Machine) -> Run:
        request = self._request
        return Run(
            id=self._id,
            kind=RunKind.LIVE,
            state=RunState.RUNNING,
            scenario=self._scenario,
            time_scale=request.scale,
            seed=request.seed,
            settings={
                "master": request.master,
                "tasks": len(self._plan.shares),
                "stage": "plain" if request.plain else "barrier",
                "cluster": request.cluster or "its own",
                "traces": "kept" if request.traces else "not kept",
                "window_seconds": self._window,
            },
            versions=_versions(),
            machine=machine,
        )

    def _ended(self, document: Run, state: RunState, error: str = "") -> Run:
        """What there is of a run that did not go to its end."""
        seconds = self._elapsed()
        if seconds and self._series is None:
            write_series(self._folder, self._glance.series(seconds))
        return msgspec.structs.replace(
            document,
            state=state,
            error=error,
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
        counts = count(self._plan, tallies)
        offered = offered_at(self._plan, 0.0, seconds) * seconds
        exact = figures(counts, tallies, seconds=seconds, offered=offered)
        found = self._glance.figures()
        document = msgspec.structs.replace(
            document, clock=sentence(driver.hosts, driver.clock_error), figures=found | exact
        )
        if tracing is not None:
            self._show.step("what the traces say is worked out")
            traced, self._series = self._summarised(tracing, document)
            found |= traced
            self._remarks += tracing.remarks(traced, exact)
        self._remarks += _remarks(counts)
        write_series(self._folder, self._series or self._glance.series(seconds))
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
        found: list[tuple[dict[str, float], Series | None]] = []
        Aside(lambda: found.append(tracing.summarise(self._spark.spark, document)), "sum").wait()
        return found[0]

    def _elapsed(self) -> float:
        if self._driver is None or not self._driver.begin_us:
            return 0.0
        return min(self._plan.seconds, max(0.0, self._driver.elapsed))

    def _phases(self, seconds: float) -> list[PhaseTime]:
        return [
            PhaseTime(name=phase.name, begins=begin, ends=min(seconds, begin + phase.seconds))
            for begin, phase in phases(self._scenario)
            if begin < seconds
        ]


class _Load:
    """The load of a run, from the first word to the tallies."""

    def __init__(
        self, owner: LiveRun, stack: ExitStack, cluster: roq.Cluster, queue: str,
        statistics: Statistics, tracing: Tracing | None,
    ) -> None:  # fmt: skip
        assert owner._driver is not None  # noqa: S101, SLF001 - one class in two parts
        self._owner = owner
        self._driver = owner._driver  # noqa: SLF001
        self._plan = owner._plan  # noqa: SLF001
        self._show = owner._show  # noqa: SLF001
        self._glance = owner._glance  # noqa: SLF001
        self._stack = stack
        self._cluster = cluster
        self._queue = queue
        self._statistics = statistics
        self._tracing = tracing
        self._stage: Stage | None = None
        self._phase = ""
        self._shown = 0
        self._herald = Herald(
            tracing.publisher if tracing is not None else None,
            owner._id,  # noqa: SLF001
            owner._clock,  # noqa: SLF001
        )

    def play(self) -> list[TaskTally]:
        """All of it; gives what the tasks have counted.

        Raises:
            Interrupted: the run is to end; `end` does that.
            LiveFailed: it cannot go on.
        """
        plan = self._plan
        clients = len(plan.publishers) + len(plan.subscribers)
        self._show.step(f"{len(plan.shares)} tasks get ready")
        self._stage = Stage(partial(self._work, self._jobs()))
        self._stack.callback(self._cancel)
        seconds = READY_SECONDS + READY_EACH * clients
        if not self._until(lambda: self._driver.ready == len(plan.shares), seconds):
            raise LiveFailed(self._not_ready(seconds))
        self._driver.begin()
        self._make_faults()
        over = plan.seconds + ARRIVE_SECONDS
        if not self._until(self._done, over):
            raise LiveFailed(f"not all tasks have ended {ARRIVE_SECONDS:g} s after the load")
        return self._tallies()

    def end(self) -> list[TaskTally]:
        """End it early; gives what the tasks have counted, if they still could."""
        if self._stage is None:
            return []
        with contextlib.suppress(RoQError):
            self._driver.stop()
        if not self._stage.join(STOP_SECONDS):
            self._cancel()
        if self._stage.error is not None or not self._driver.begin_us:
            return []
        with contextlib.suppress(RoQError):
            return self._tallies()
        return []

    def _work(self, jobs: list[bytes]) -> list[bytes]:
        owner = self._owner
        barrier = not owner._request.plain  # noqa: SLF001
        return owner._spark.work(jobs, barrier=barrier)  # noqa: SLF001

    def _jobs(self) -> list[bytes]:
        owner, plan = self._owner, self._plan
        tag = random.SystemRandom().getrandbits(_TAG_BITS)
        return [
            msgspec.msgpack.encode(
                Job(
                    run=owner._id,  # noqa: SLF001
                    task=number,
                    tag=tag,
                    addresses=self._cluster.addresses,
                    queue=self._queue,
                    words=_words(self._queue),
                    traces=_traces(self._queue) if self._tracing is not None else "",
                    share=share,
                    marks=plan.marks,
                    prefixes=plan.prefixes,
                    seed=owner._request.seed,  # noqa: SLF001
                    window_seconds=owner._window,  # noqa: SLF001
                    anchor=owner._anchor,  # noqa: SLF001
                )
            )
            for number, share in enumerate(plan.shares)
        ]

    def _make_faults(self) -> None:
        wanted, own = self._owner._scenario.faults, self._owner._own  # noqa: SLF001
        if wanted and own is not None:
            driver = self._driver
            self._stack.enter_context(
                Faults(
                    wanted, own, self._cluster, self._queue, lambda: driver.elapsed,
                    lambda text: self._happened(EventKind.FAULT, text),
                )
            )  # fmt: skip

    # --- under way --------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Look at everything until something holds; gives whether it does."""
        pause = threading.Event()
        left = int(seconds / LOOK_SECONDS)
        while not condition():
            check(self._owner._stop)  # noqa: SLF001
            self._look()
            if left <= 0:
                return False
            left -= 1
            pause.wait(LOOK_SECONDS)
        return True

    def _done(self) -> bool:
        """Whether the tasks have ended; tells them that nothing more comes."""
        assert self._stage is not None  # noqa: S101 - of `play`
        if self._driver.all_sent and not self._driver.finished:
            self._driver.finish()
            self._show.step("all is sent; the rest arrives")
        return self._stage.done

    def _look(self) -> None:
        """Take in what is new, and show it.

        Raises:
            RoQError: it cannot go on.
        """
        driver, glance = self._driver, self._glance
        driver.check()
        if driver.troubles:
            raise LiveFailed(driver.troubles[0])
        if self._stage is not None and self._stage.error is not None:
            raise self._stage.error
        now, monotonic = driver.elapsed, monotonic_us() / 1_000_000
        for when, document in self._statistics.waiting():
            glance.take(now - (monotonic - when), document)
        for at, counts in driver.latencies():
            glance.latency(at, counts)
        if driver.begin_us:
            self._enter_phase(now)
            self._show.picture(self._picture(now))

    def _enter_phase(self, now: float) -> None:
        names = [
            phase.name
            for begin, phase in phases(self._owner._scenario)  # noqa: SLF001
            if begin <= max(0.0, now)
        ]
        if names[-1] != self._phase and now >= 0:
            self._phase = names[-1]
            self._happened(EventKind.PHASE, self._phase)

    def _happened(self, kind: EventKind, text: str) -> None:
        at = self._driver.elapsed
        self._glance.event(at, kind, text)
        self._herald.tell(kind, text)
        self._show.happened(at, text)

    def _picture(self, now: float) -> Picture:
        sums, glance, driver = self._driver.sums(), self._glance, self._driver
        window = glance.latest()
        until = min(max(now, 0.001), self._plan.seconds)
        return Picture(
            phase=self._phase,
            elapsed=now,
            seconds=self._plan.seconds,
            sent=sums["sent"],
            due=offered_at(self._plan, 0.0, until) * until,
            received=sums["received"],
            failed=sums["failed"],
            late=sums["late"],
            messages_in=window.messages_in,
            bytes_in=window.bytes_in,
            messages_out=window.messages_out,
            exchanges=glance.exchanges,
            moves=glance.moves,
            moving=glance.moving,
            p99=driver.recent_p99(),
        )

    # --- the end ----------------------------------------------------------------------------------

    def _tallies(self) -> list[TaskTally]:
        assert self._stage is not None  # noqa: S101 - of `play`
        if self._stage.error is not None:
            raise self._stage.error
        found = [msgspec.msgpack.decode(each, type=TaskTally) for each in self._stage.results]
        troubles = [each.trouble for each in found if each.trouble]
        if troubles:
            raise LiveFailed(troubles[0])
        return found

    def _not_ready(self, seconds: float) -> str:
        there, wanted = self._driver.ready, len(self._plan.shares)
        return (
            f"only {there} of {wanted} tasks were ready within {seconds:.0f} s: does the Spark "
            "cluster have a slot for each of them, and do they reach all exchanges?"
        )

    def _cancel(self) -> None:
        """No task goes on."""
        if self._stage is None or self._stage.done:
            return
        with contextlib.suppress(RoQError):
            self._driver.stop()
        if not self._stage.join(CANCEL_SECONDS):
            self._owner._spark.cancel()  # noqa: SLF001
            if not self._stage.join(CANCEL_SECONDS):
                raise Unavailable("Spark does not cancel the tasks: see spark.log")


def _words(queue: str) -> str:
    return f"{queue}-words"


def _traces(queue: str) -> str:
    return f"{queue}-traces"


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
            f"In force later than planned, and owed only what follows their first messages: {names}."
        )
    return found
