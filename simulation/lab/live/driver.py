"""The driver's part of the talk: it hears all tasks, answers them, and tells when what happens."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Final, Self

import roq
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber
from roq.errors import Closed, RoQError
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.live import messages
from roq.simulation.lab.live.clocks import Clock
from roq.simulation.lab.live.plan import Plan
from roq.simulation.lab.traces import messages as traces
from roq.simulation.lab.traces.messages import EVENT_TOPIC, EventTrace

ALIVE_SECONDS: Final = 1.0
HEAR_SECONDS: Final = 0.1
START_SECONDS: Final = 0.5
"""Between the word that the load begins and its beginning."""


class Driver:
    """Opened by `with`; from then on it hears.

    Args:
        cluster: a connection; closed by its owner.
        queue: for messages.
        plan: what tasks do.
        run: id of the run.
        clock: by which everything goes.

    Attributes:
        troubles: why tasks cannot go on, as they have told.
        begin_us: when the load begins; 0: not yet known.
        finished: whether tasks were told that nothing more comes.
    """

    def __init__(
        self, cluster: roq.Cluster, queue: str, plan: Plan, run: str, clock: Clock
    ) -> None:
        self.troubles: list[str] = []
        self.begin_us = 0
        self.finished = False
        self._cluster = cluster
        self._queue = queue
        self._plan = plan
        self._run = run
        self._clock = clock
        self._ready: dict[int, messages.Ready] = {}
        self._ended: dict[int, messages.Ended] = {}
        self._inbox: Subscriber | None = None
        self._outbox: Publisher | None = None
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._hear, name="driver", daemon=True)

    def __enter__(self) -> Self:
        self._inbox = self._cluster.subscriber(self._queue, messages.TO_DRIVER)
        self._outbox = self._cluster.publisher(self._queue)
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
        if self._inbox is not None:
            self._inbox.close()
        if self._outbox is not None:
            self._outbox.abort("the run is over")

    # --- how it stands ----------------------------------------------------------------------------

    def check(self) -> None:
        """Make sure that it still hears.

        Raises:
            RoQError: the queue for messages cannot be used any more.
        """
        if self._failure is not None:
            raise self._failure

    @property
    def ready(self) -> int:
        """How many tasks are."""
        return len(self._ready)

    @property
    def hosts(self) -> int:
        """How many machines they are on."""
        return len({each.host for each in self._ready.values()})

    @property
    def clock_error(self) -> float:
        """Seconds by which a latency between two tasks may be wrong."""
        errors = sorted((each.clock_error for each in self._ready.values()), reverse=True)
        return sum(errors[:2])

    @property
    def elapsed(self) -> float:
        """Seconds since the load began; negative before."""
        return (self._clock.now_us() - self.begin_us) / 1_000_000 if self.begin_us else -1.0

    @property
    def all_sent(self) -> bool:
        """Whether all publishers have gone."""
        return all(task in self._ended for task in self._plan.senders)

    # --- what tasks are told ----------------------------------------------------------------------

    def begin(self) -> None:
        """All are ready: the load begins in a moment."""
        at_us = self._clock.now_us() + int(START_SECONDS * 1_000_000)
        self._say(messages.Begin(run=self._run, at_us=at_us, clock_error=self.clock_error))
        self.begin_us = at_us

    def finish(self) -> None:
        """All publishers have gone: subscribers go when they have got everything."""
        sent: Counter[str] = Counter(dict.fromkeys(self._plan.prefixes, 0))
        for each in self._ended.values():
            sent.update(each.sent)
        self._say(messages.Finish(run=self._run, sent=dict(sent)))
        self.finished = True

    def stop(self) -> None:
        """The run is to end now."""
        self._say(messages.Stop(run=self._run))

    def _say(self, message: messages.FromDriver) -> None:
        if self._outbox is not None:
            self._outbox.publish(messages.encode(message), messages.TO_TASKS)

    # --- hearing ----------------------------------------------------------------------------------

    def _hear(self) -> None:
        assert self._inbox is not None  # noqa: S101 - opened before the thread
        said = 0.0
        try:
            while not self._closing.is_set():
                received = self._inbox.receive(HEAR_SECONDS)
                if received is not None:
                    self._take(messages.from_task(received.payload))
                if time.monotonic() - said >= ALIVE_SECONDS:
                    said = time.monotonic()
                    self._say(messages.Alive(run=self._run))
        except BaseException as error:  # noqa: BLE001 - the main thread asks for it
            self._failure = error

    def _take(self, message: messages.FromTask) -> None:
        if message.run != self._run:
            return
        match message:
            case messages.Ping():
                now = self._clock.now_us()
                self._say(
                    messages.Pong(
                        run=self._run, task=message.task, number=message.number, time_us=now
                    )
                )
            case messages.Ready():
                if self.begin_us:
                    self.troubles.append(
                        f"Spark has begun task {message.task} anew under load, and what it had "
                        "counted is gone: was an executor lost?"
                    )
                self._ready[message.task] = message
            case messages.Ended():
                self._ended[message.task] = message
            case messages.Trouble():
                self.troubles.append(message.reason)


class Herald:
    """Publishes what the driver does as traces.

    Args:
        publisher: into the queue of traces; None: nothing is traced.
        run: id of the run.
        clock: of the driver.
    """

    def __init__(self, publisher: Publisher | None, run: str, clock: Clock) -> None:
        self._publisher = publisher
        self._run = run
        self._clock = clock
        self._number = 0
        self._lock = threading.Lock()

    def tell(self, event: EventKind, text: str) -> None:
        """Something happened just now; any thread."""
        if self._publisher is None:
            return
        with self._lock:
            trace = EventTrace(
                run=self._run, time_us=self._clock.now_us(), source="driver",
                number=self._number, event=event, text=text,
            )  # fmt: skip
            try:
                self._publisher.publish(traces.encode(trace), EVENT_TOPIC)
            except (Closed, RoQError):
                return  # the collector finds no hole: the number was not used
            self._number += 1
