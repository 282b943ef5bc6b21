"""The load of a live run, from the first word to the tallies of the tasks."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import psutil

import roq
from roq.errors import RoQError, Unavailable
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.live.driver import Driver, Herald
from roq.simulation.lab.live.faults import Faults, Parts
from roq.simulation.lab.live.interrupts import Aside, check
from roq.simulation.lab.live.load import Job
from roq.simulation.lab.live.setting import LiveFailed, Queues, Setting
from roq.simulation.lab.live.show import Picture
from roq.simulation.lab.live.tasks import Tasks
from roq.simulation.lab.live.verdict import TaskTally
from roq.simulation.scenario.offered import offered

if TYPE_CHECKING:
    from roq.simulation.lab.live.tracing import Tracing

READY_SECONDS: Final = 60.0
READY_EACH: Final = 0.1
"""Tasks have so long to get ready, and so much more for each client."""
WARM_SECONDS: Final = 30.0
"""The load waits so long for Spark to keep its first traces."""
ARRIVE_SECONDS: Final = 180.0
"""From the end of the load until all tasks have ended: overtime, flush, quiet."""
STOP_SECONDS: Final = 15.0
CANCEL_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.1
_TAG_BITS: Final = 32
log = logging.getLogger(__name__)


class Conductor:
    """The load of a run.

    Args:
        setting: of the run.
        spark: does the work.
        cluster: a connection.
        queues: of the run.
        parts: processes of the cluster, for faults; None: it is another one's.
        driver: talks with the tasks.
        tracing: keeps the traces; None: none are kept.
        stack: where what is opened meanwhile is closed.

    Attributes:
        busy_percent: how busy this machine was while the load lasted; 0: that was not seen.
    """

    def __init__(
        self, setting: Setting, spark: Tasks, cluster: roq.Cluster, queues: Queues,
        parts: Parts | None, driver: Driver, tracing: Tracing | None, stack: ExitStack,
    ) -> None:  # fmt: skip
        self._setting = setting
        self._plan = setting.plan
        self._show = setting.show
        self._spark = spark
        self._cluster = cluster
        self._queues = queues
        self._parts = parts
        self._driver = driver
        self._stack = stack
        self._stage: Aside[list[bytes]] | None = None
        self._phase = ""
        self.busy_percent = 0.0
        self._tracing = tracing
        tracer = tracing.publisher if tracing is not None else None
        self._herald = Herald(tracer, setting.run, setting.clock)

    def play(self) -> list[TaskTally]:
        """All of it; gives what the tasks have counted.

        Raises:
            Interrupted: the run is to end; `end` does that.
            LiveFailed: it cannot go on.
        """
        plan = self._plan
        clients = len(plan.publishers) + len(plan.subscribers)
        self._show.step(f"{len(plan.shares)} tasks get ready")
        self._stage = Aside(partial(self._work, self._jobs()), "stage")
        self._stack.callback(self._cancel)
        seconds = READY_SECONDS + READY_EACH * clients
        if not self._until(lambda: self._driver.ready == len(plan.shares), seconds):
            raise LiveFailed(self._not_ready(seconds))
        self._warm_up()
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

    def _warm_up(self) -> None:
        """Let Spark's query have done its work once: its start fills the cores for seconds.

        There is something to keep: monitors tell each second how the queue stands.
        """
        tracing = self._tracing
        if tracing is None or tracing.keeps:
            return
        self._show.step("Spark keeps its first traces")
        if not self._until(lambda: tracing.keeps, WARM_SECONDS):
            log.warning(
                "Spark has kept no traces within %g s; the load begins, and its first seconds may "
                "be those of Spark's own start", WARM_SECONDS, extra={"event": "spark_not_warm"},
            )  # fmt: skip

    def _work(self, jobs: list[bytes]) -> list[bytes]:
        return self._spark.work(jobs, barrier=not self._setting.request.plain)

    def _jobs(self) -> list[bytes]:
        setting, plan, queues = self._setting, self._plan, self._queues
        tag = random.SystemRandom().getrandbits(_TAG_BITS)
        return [
            msgspec.msgpack.encode(
                Job(
                    run=setting.run,
                    task=number,
                    tag=tag,
                    addresses=self._cluster.addresses,
                    queue=queues.load,
                    messages=queues.messages,
                    traces=queues.traces,
                    share=share,
                    marks=plan.marks,
                    prefixes=plan.prefixes,
                    seed=setting.request.seed,
                    window_seconds=setting.window,
                    anchor=setting.anchor,
                )
            )
            for number, share in enumerate(plan.shares)
        ]

    def _make_faults(self) -> None:
        wanted, driver = self._setting.request.scenario.faults, self._driver
        if wanted and self._parts is not None:
            self._stack.enter_context(
                Faults(
                    wanted, self._parts, self._cluster, self._queues.load, lambda: driver.elapsed,
                    lambda text: self._happened(EventKind.FAULT, text),
                )
            )  # fmt: skip

    # --- under way --------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Look at everything until something holds; gives whether it does."""
        pause = threading.Event()
        left = int(seconds / LOOK_SECONDS)
        while not condition():
            check(self._setting.stop)
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
        driver = self._driver
        driver.check()
        if driver.troubles:
            raise LiveFailed(driver.troubles[0])
        if self._stage is not None and self._stage.error is not None:
            raise self._stage.error
        if driver.begin_us:
            now = driver.elapsed
            self._look_at_machine(now)
            self._enter_phase(now)
            self._show.picture(self._picture(now))

    def _look_at_machine(self, now: float) -> None:
        """Spark's start and what is worked out at the end are no part of what messages met."""
        if now < 0:
            psutil.cpu_percent()  # it counts from the last call on
        elif now >= self._plan.seconds and not self.busy_percent:
            self.busy_percent = psutil.cpu_percent()

    def _enter_phase(self, now: float) -> None:
        timed = self._setting.request.scenario.timed()
        names = [phase.name for begin, phase in timed if begin <= max(0.0, now)]
        if names[-1] != self._phase and now >= 0:
            self._phase = names[-1]
            self._happened(EventKind.PHASE, self._phase)

    def _happened(self, kind: EventKind, text: str) -> None:
        at = self._driver.elapsed
        self._herald.tell(kind, text)
        self._show.happened(at, text)

    def _picture(self, now: float) -> Picture:
        until = min(max(now, 0.001), self._plan.seconds)
        return Picture(
            phase=self._phase,
            elapsed=now,
            seconds=self._plan.seconds,
            due=offered(self._setting.request.scenario, 0.0, until).messages,
            seen=self._tracing.view.seen if self._tracing is not None else None,
        )

    # --- the end ----------------------------------------------------------------------------------

    def _tallies(self) -> list[TaskTally]:
        assert self._stage is not None  # noqa: S101 - of `play`
        found = [msgspec.msgpack.decode(each, type=TaskTally) for each in self._stage.wait()]
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
            self._spark.cancel()
            if not self._stage.join(CANCEL_SECONDS):
                raise Unavailable("Spark does not cancel the tasks: see spark.log")
