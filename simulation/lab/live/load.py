"""One task of a live run: its publishers, its subscribers, and its talk with the driver.

The main thread is the loop of all publishers; each subscriber has a thread, and so has the channel,
which hears the driver and tells progress and traces. Nothing here knows of Spark: what runs the
task gives its job as bytes and gets a tally as bytes.
"""

from __future__ import annotations

import heapq
import socket
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

import roq
from roq.errors import RoQError
from roq.simulation.lab.live.clocks import MICROSECONDS, Anchor
from roq.simulation.lab.live.messages import REASON_MAX
from roq.simulation.lab.live.plan import Share
from roq.simulation.lab.live.receivers import Receiver
from roq.simulation.lab.live.schedule import FlatOut, Schedule
from roq.simulation.lab.live.senders import BLOCKED_SECONDS, Sender
from roq.simulation.lab.live.task_channel import Ended, TaskChannel
from roq.simulation.lab.live.verdict import TaskTally
from roq.simulation.scenario.rates import NEVER

LEAD_SECONDS: Final = 1.0
"""Clients that come under load connect so long before, so that their first message is in time."""
CONNECT_SECONDS: Final = 15.0
CONNECT_EACH: Final = 0.5
"""A client has so long to connect, and so much more for each client of its task: on a busy machine
hundreds of them wait for each other, and for those of other tasks."""
OPENERS: Final = 4
CHECK_SECONDS: Final = 0.2
"""An error of another thread is seen within this."""
QUIET_SECONDS: Final = 8.0
"""When nothing has come for so long, what is missing is missing."""
SETTLE_SECONDS: Final = 0.5
"""Who has got everything waits so long for what comes twice."""
STOPPED_SECONDS: Final = 1.0
"""The same after the run was interrupted."""
LEAVING_SECONDS: Final = 2.0
"""The same for subscribers that cannot be told how much they are to get."""
GAP_LEAST: Final = 0.0005
GAP_MOST: Final = 0.005
GAP_EACH: Final = 0.0001
"""Between two turns of one publisher at least, times the number of publishers of the task."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has to know.

    Attributes:
        run: id of the run.
        task: number of the task.
        tag: of the run, 32 bits; every message bears it.
        addresses: of the cluster.
        queue: under load.
        messages: queue in which driver and tasks talk.
        traces: queue for traces; empty: clients tell nothing.
        share: its clients.
        marks, prefixes: of the plan.
        seed: of everything drawn.
        window_seconds: of the windows that clients tell of.
        anchor: the driver's clock.
        flat_out: publish as much as goes, whatever the rates say.
    """

    run: str
    task: int
    tag: int
    addresses: list[str]
    queue: str
    messages: str
    traces: str
    share: Share
    marks: list[float]
    prefixes: list[str]
    seed: int
    window_seconds: float
    anchor: Anchor
    flat_out: bool = False


def perform(data: bytes) -> bytes:
    """Do the job in these bytes; gives the bytes of a `TaskTally`, whatever happens."""
    job = msgspec.msgpack.decode(data, type=Job)
    host = socket.gethostname()
    try:
        clients = len(job.share.publishers) + len(job.share.subscribers)
        patience = CONNECT_SECONDS + CONNECT_EACH * clients
        with roq.connect(job.addresses, timeout=patience) as cluster:
            tally = Load(job, cluster).run()
    except RoQError as error:
        tally = TaskTally(task=job.task, trouble=f"task {job.task} on {host}: {error}", host=host)
    except Exception:  # noqa: BLE001 - a bug is told as well, by the one who can show it
        words = traceback.format_exc()[-REASON_MAX:]
        tally = TaskTally(task=job.task, trouble=f"task {job.task} on {host}:\n{words}", host=host)
    return msgspec.msgpack.encode(tally)


class Load:
    """The clients of one task, from opening to tally.

    Args:
        job: what to do.
        cluster: a connection of its own; its owner closes it.
    """

    def __init__(self, job: Job, cluster: roq.Cluster) -> None:
        self._job = job
        self._cluster = cluster
        self._error: BaseException | None = None
        self._senders = [
            Sender(
                stay, FlatOut(stay) if job.flat_out else Schedule(stay), tag=job.tag,
                seed=f"{job.seed} {stay.source}", marks=job.marks,
            )
            for stay in job.share.publishers
        ]  # fmt: skip
        self._receivers = [
            Receiver(stay, tag=job.tag, on_error=self._fail) for stay in job.share.subscribers
        ]
        self._pool = ThreadPoolExecutor(OPENERS, thread_name_prefix="opener")
        self._closing: list[Future[None]] = []
        self._channel = TaskChannel(
            job, cluster, self._senders, self._receivers, on_error=self._fail
        )

    def run(self) -> TaskTally:
        """All of it.

        Raises:
            RoQError: it cannot go on.
        """
        channel = self._channel
        try:
            with channel:
                self._get_ready()
                channel.ready()
                begin_us = self._wait_for(lambda: channel.begin_us)
                cpu = time.process_time()
                self._begin(begin_us)
                self._play(begin_us)
                self._end_senders()
                channel.ended()
                self._end_receivers()
                cpu = time.process_time() - cpu
        except BaseException:
            self._abandon()
            raise
        self._pool.shutdown()
        return TaskTally(
            task=self._job.task,
            sent=[each.tally() for each in self._senders],
            received=[each.tally() for each in self._receivers if each.opened],
            cpu_seconds=cpu,
            host=channel.host,
        )

    # --- getting ready ----------------------------------------------------------------------------

    def _get_ready(self) -> None:
        for receiver in self._receivers:
            if not receiver.stay.begins:
                receiver.open(self._cluster, self._job.queue, self._channel.clock)
        opening = [
            self._pool.submit(sender.open, self._cluster, self._job.queue)
            for sender in self._senders
            if sender.stay.begins <= LEAD_SECONDS
        ]
        for each in opening:
            self._wait_for(each.done)
            each.result()
        for receiver in self._receivers:
            if receiver.opened:
                self._wait_for(receiver.is_ready)

    def _begin(self, begin_us: int) -> None:
        gap = min(GAP_MOST, max(GAP_LEAST, GAP_EACH * len(self._senders)))
        for sender in self._senders:
            sender.begin(self._channel.clock, begin_us, self._job.window_seconds, gap)
        for receiver in self._receivers:
            receiver.begin(begin_us, self._job.window_seconds)
        self._channel.tell_from_now_on()

    # --- under load -------------------------------------------------------------------------------

    def _play(self, begin_us: int) -> None:
        """Send what is due until all publishers have gone, or the run is stopped."""
        clock, agenda = self._channel.clock, _Agenda()
        for sender in self._senders:
            if sender.publisher is None:
                agenda.add(sender.stay.begins - LEAD_SECONDS, self._opening(sender))
            agenda.add(sender.stay.begins, self._turns(sender))
        for receiver in self._receivers:
            if not receiver.opened:
                agenda.add(receiver.stay.begins, self._joining(receiver))
            if not receiver.stay.last:
                agenda.add(receiver.stay.ends, self._leaving(receiver))
        while agenda and not self._channel.stopped:
            self._check()
            now = (clock.now_us() - begin_us) / MICROSECONDS
            wait = agenda.when - now
            if wait > 0:
                self._channel.wait(min(wait, CHECK_SECONDS))
            else:
                agenda.do(now)

    def _opening(self, sender: Sender) -> Callable[[float], float]:
        def do(_now: float) -> float:
            self._submit(lambda: sender.open(self._cluster, self._job.queue))
            return NEVER

        return do

    def _turns(self, sender: Sender) -> Callable[[float], float]:
        def do(now: float) -> float:
            when = sender.turn(now)
            if when == NEVER:
                self._submit(sender.close)
            return when

        return do

    def _joining(self, receiver: Receiver) -> Callable[[float], float]:
        def do(_now: float) -> float:
            receiver.open(self._cluster, self._job.queue, self._channel.clock)
            return NEVER

        return do

    def _leaving(self, receiver: Receiver) -> Callable[[float], float]:
        def do(_now: float) -> float:
            self._submit(receiver.close)
            return NEVER

        return do

    def _submit(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - handed to the main thread
                self._fail(error)

        self._closing.append(self._pool.submit(guarded))

    # --- the end ----------------------------------------------------------------------------------

    def _end_senders(self) -> None:
        if self._channel.stopped:
            for sender in self._senders:
                sender.stop()
                self._submit(sender.close)
        for each in self._closing:
            self._wait_for(each.done)
        self._closing.clear()

    def _end_receivers(self) -> None:
        """Until each has got what it is to get, or nothing comes any more."""
        channel = self._channel
        receivers = [each for each in self._receivers if each.opened and each.stay.last]
        if receivers:
            self._wait_for(lambda: channel.sent is not None or channel.stopped)
        began = time.monotonic()
        for receiver in receivers:
            self._wait_for(partial(self._complete, receiver, began))
        for receiver in self._receivers:
            receiver.close()

    def _complete(self, receiver: Receiver, began: float) -> bool:
        sent = self._channel.sent
        from_first = not receiver.stay.begins
        quiet = time.monotonic() - max(receiver.last, began)
        if sent is not None and from_first and receiver.fresh >= sent.get(receiver.stay.topic, 0):
            return quiet > SETTLE_SECONDS
        if self._channel.stopped:
            return quiet > STOPPED_SECONDS
        return quiet > (QUIET_SECONDS if from_first else LEAVING_SECONDS)

    def _abandon(self) -> None:
        """Leave nothing behind, and wait for nothing that takes long."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for sender in self._senders:
            sender.abort("the run has failed")
        for receiver in self._receivers:
            receiver.close()

    # --- waiting ----------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Any thread: the main thread is to raise this."""
        if self._error is None:
            self._error = error

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _wait_for(self, condition: Callable[[], object]) -> int:
        """Until something holds; the channel gives up when the driver is gone."""
        while not (found := condition()):
            self._check()
            if self._channel.stopped and not self._channel.begin_us:
                raise Ended("the run was stopped before the load began")
            self._channel.wait(BLOCKED_SECONDS)
        self._check()
        return found if isinstance(found, int) else 0


class _Agenda:
    """What is to be done when; each thing says when it wants to be done again."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int, Callable[[float], float]]] = []
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def when(self) -> float:
        """Of the next thing."""
        return self._items[0][0]

    def add(self, when: float, do: Callable[[float], float]) -> None:
        """One more thing."""
        self._added += 1
        heapq.heappush(self._items, (when, self._added, do))

    def do(self, now: float) -> None:
        """Do the next thing."""
        do = self._items[0][2]
        when = do(now)
        if when == NEVER:
            heapq.heappop(self._items)
        else:
            # Who comes back at once comes after all others of this moment.
            self._added += 1
            heapq.heapreplace(self._items, (when, self._added, do))
