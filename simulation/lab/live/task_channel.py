"""A task's talk with the driver: it hears when to begin and to end, and tells what its clients do.

All of it is one thread, with a queue for messages and, if clients are to be traced, one for traces.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import roq
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber
from roq.errors import RoQError, Unavailable
from roq.simulation.lab.live import messages
from roq.simulation.lab.live.clocks import (
    Clock,
    RoundTrip,
    clock_here,
    estimate,
    machine,
    monotonic_us,
)
from roq.simulation.lab.live.receivers import Receiver
from roq.simulation.lab.live.senders import Sender
from roq.simulation.lab.live.windows import Windows
from roq.simulation.lab.traces import messages as traces
from roq.simulation.lab.traces.messages import CLIENT_TOPIC, ClientTrace

if TYPE_CHECKING:
    from roq.simulation.lab.live.load import Job

TELL_SECONDS: Final = 1.0
HEAR_SECONDS: Final = 0.1
SILENCE_SECONDS: Final = 60.0
"""A driver that was not heard for so long is gone."""
TRIPS: Final = 30
TRIP_SECONDS: Final = 1.0
TRIPS_LEAST: Final = 5
PUBLISH_SECONDS: Final = 60.0


class Ended(RoQError):
    """The run has ended before the task could do anything."""


class TaskChannel:
    """Opened by `with`; from then on it hears. It must not be asked by the tasks of other runs.

    Args:
        job: of the task.
        cluster: its connection.
        senders, receivers: its clients.
        on_error: told when it cannot go on, in its thread.

    Attributes:
        clock: of the driver.
        begin_us: when the load begins, by that clock; 0: not known yet.
        sent: messages by prefix, when all publishers of all tasks have gone.
        stopped: the run is to end.
        host: name of this machine.
    """

    def __init__(
        self, job: Job, cluster: roq.Cluster, senders: Sequence[Sender],
        receivers: Sequence[Receiver], *, on_error: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.clock = Clock(0)
        self.begin_us = 0
        self.sent: dict[str, int] | None = None
        self.stopped = False
        self.host = socket.gethostname()
        self._job = job
        self._cluster = cluster
        self._senders = senders
        self._receivers = receivers
        self._on_error = on_error
        self._news = threading.Event()
        self._closing = threading.Event()
        self._telling = False
        self._clock_error = 0.0
        self._number = 0
        self._heard = time.monotonic()
        self._inbox: Subscriber | None = None
        self._outbox: Publisher | None = None
        self._tracer: Publisher | None = None
        self._thread = threading.Thread(target=self._run, name="channel", daemon=True)

    def __enter__(self) -> Self:
        job = self._job
        self._inbox = self._cluster.subscriber(job.messages, messages.TO_TASKS)
        self._outbox = self._cluster.publisher(job.messages, timeout=PUBLISH_SECONDS)
        if job.traces:
            self._tracer = self._cluster.publisher(job.traces, timeout=PUBLISH_SECONDS)
        clock = clock_here(self._job.anchor, machine())
        self.clock = clock if clock is not None else self._ask_for_the_time()
        self._heard = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()
        if error is None:
            self._tell()
        elif not isinstance(error, Ended):
            self._say_trouble(error)
        for each in (self._inbox, self._outbox, self._tracer):
            if each is not None:
                each.close()

    def wait(self, seconds: float) -> None:
        """Until there is news, or for so long."""
        if self._news.wait(seconds):
            self._news.clear()

    def ready(self) -> None:
        """All that is to be there is there."""
        self._say(
            messages.Ready(
                run=self._job.run,
                task=self._job.task,
                host=machine() or self.host,
                clock_error=self.clock.error_seconds(),
            )
        )

    def tell_from_now_on(self) -> None:
        """The load begins."""
        self._telling = True

    def ended(self) -> None:
        """All publishers have gone."""
        self._say(messages.Ended(run=self._job.run, task=self._job.task, sent=self._sent()))

    # --- hearing ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            told = time.monotonic()
            while not self._closing.is_set():
                self._hear()
                now = time.monotonic()
                if self._telling and now - told >= TELL_SECONDS:
                    told = now
                    self._tell()
                self._check_silence(now)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._on_error(error)
            self._news.set()

    def _check_silence(self, now: float) -> None:
        if now - self._heard > SILENCE_SECONDS:
            raise Unavailable(f"nothing was heard of the driver for {SILENCE_SECONDS:g} s")

    def _hear(self) -> None:
        assert self._inbox is not None  # noqa: S101 - opened before the thread
        received = self._inbox.receive(HEAR_SECONDS)
        if received is None:
            return
        message = messages.from_driver(received.payload)
        if message.run != self._job.run:
            return
        self._heard = time.monotonic()
        match message:
            case messages.Begin():
                self._clock_error = message.clock_error
                self.begin_us = message.at_us
            case messages.Finish():
                self.sent = message.sent
            case messages.Stop():
                self.stopped = True
            case _:
                return
        self._news.set()

    def _ask_for_the_time(self) -> Clock:
        """Another machine: the driver's clock by round trips.

        Raises:
            Unavailable: the driver does not answer.
        """
        found = [self._round_trip(number) for number in range(TRIPS)]
        trips = [trip for trip in found if trip is not None]
        if len(trips) < TRIPS_LEAST:
            raise Unavailable(
                f"the driver has answered {len(trips)} of {TRIPS} questions for the time"
            )
        best = estimate(trips)
        return Clock(best.offset_us, best.error_us)

    def _round_trip(self, number: int) -> RoundTrip | None:
        """One question and its answer; None if there was none in time."""
        assert self._inbox is not None  # noqa: S101 - opened before
        mine = messages.Ping(run=self._job.run, task=self._job.task, number=number)
        asked = monotonic_us()
        self._say(mine)
        deadline = time.monotonic() + TRIP_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            received = self._inbox.receive(left)
            came = monotonic_us()
            if received is None:
                break
            message = messages.from_driver(received.payload)
            if isinstance(message, messages.Pong) and message.answers(mine):
                return RoundTrip(asked, message.time_us, came)
        return None

    # --- telling ----------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Traces; the thread, and the thread that closes it when that has ended."""
        for sender in self._senders:
            sender.failures()
            self._trace(sender.stay.name, "publisher", sender.windows)
        for receiver in self._receivers:
            self._trace(receiver.stay.name, "subscriber", receiver.windows)

    def _trace(self, client: str, role: str, windows: Windows) -> None:
        told = windows.drain()
        if self._tracer is None:
            return
        for window in told:
            trace = ClientTrace(
                run=self._job.run,
                time_us=self.clock.now_us(),
                source=f"task-{self._job.task}",
                number=self._number,
                client=client,
                role="publisher" if role == "publisher" else "subscriber",
                begin_us=window.begin_us,
                seconds=windows.width_us / 1_000_000,
                messages=window.messages,
                bytes=window.bytes,
                late=window.late,
                failed=window.failed,
                doubled=window.doubled,
                reordered=window.reordered,
                latency={str(bucket): count for bucket, count in window.latency.items()},
                latency_sum=window.latency_sum,
                clock_error=self._clock_error if role == "subscriber" else 0.0,
            )
            self._tracer.publish(traces.encode(trace), CLIENT_TOPIC)
            self._number += 1

    def _sent(self) -> dict[str, int]:
        sums = dict.fromkeys(self._job.prefixes, 0)
        for sender in self._senders:
            for topic, count in sender.tally().topics.items():
                for prefix in sums:
                    if topic.startswith(prefix):
                        sums[prefix] += count
        return sums

    def _say(self, message: messages.FromTask) -> None:
        if self._outbox is not None:
            self._outbox.publish(messages.encode(message), messages.TO_DRIVER)

    def _say_trouble(self, error: BaseException) -> None:
        try:
            self._say(
                messages.Trouble(
                    run=self._job.run,
                    task=self._job.task,
                    reason=str(error)[: messages.REASON_MAX] or repr(error),
                )
            )
        except RoQError:
            return  # the tally says so as well
