"""A queue under load: its cluster, the workers and the recording, and the loop that drives them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import roq
from roq.client.admin.board import Board
from roq.client.admin.statistics import Statistics
from roq.client.admin.views import ScalingRules
from roq.simulation.real.display import Display, Picture
from roq.simulation.real.environment import Environment
from roq.simulation.real.record import Record
from roq.simulation.real.workers import ScenarioError, Workers

QUEUE: Final = "load"
TICK_SECONDS: Final = 0.05
HEARD_SECONDS: Final = 20.0


class UnderLoad:
    """Where a scenario plays.

    Attributes:
        cluster: a connection to it.
        workers: the workers.
        record: what was seen so far.
        phase: what happens now, for people.
    """

    def __init__(
        self,
        place: Environment,
        cluster: roq.Cluster,
        workers: Workers,
        statistics: Statistics,
        display: Display,
    ) -> None:
        self.place = place
        self.cluster = cluster
        self.workers = workers
        self.record = Record(time.monotonic())
        self.phase = "the cluster is there"
        self._statistics = statistics
        self._display = display
        self._board = Board(QUEUE)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.record.began

    def enter(self, phase: str) -> None:
        """Say what happens from now on."""
        self.phase = phase
        self.record.mark(time.monotonic(), phase)
        self.update()

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let the load go on for so long.

        Args:
            each: called twenty times a second.
        """
        self.until(lambda: False, seconds, each=each)

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        what: str = "",
        each: Callable[[], None] = lambda: None,
    ) -> bool:
        """Let the load go on until something holds; gives whether it does.

        Raises:
            ScenarioError: it does not after `seconds`, and `what` says what was awaited.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                if what:
                    raise ScenarioError(f"{what}: not within {seconds:g} s")
                return False
            each()
            self.workers.poll(min(TICK_SECONDS, max(0.0, deadline - time.monotonic())))
            self.update()
        return True

    def update(self) -> None:
        """Take in what the monitor has said, and show it."""
        samples = self._statistics.waiting()
        self.record.take(samples)
        for sample in samples:
            self._board.take(sample.document, sample.when)
        self._display.show(self._picture())

    def finish(self) -> None:
        """Bring the work to its end."""
        self.workers.finish(self.update)

    def exchanges(self) -> int:
        """How many serve at the moment, by the statistics stream."""
        return len(self._board.view(time.monotonic()).exchanges)

    def _picture(self) -> Picture:
        return Picture(
            phase=self.phase,
            elapsed=self.elapsed,
            view=self._board.view(time.monotonic()),
            sent=sum(worker.messages for worker in self.workers.publishers),
            received=[worker.messages for worker in self.workers.subscribers if worker.id],
        )


@contextmanager
def under_load(
    place: Environment,
    display: Display,
    *,
    rules: ScalingRules | None = None,
    limits: Mapping[str, int] | None = None,
    host: str | None = None,
) -> Iterator[UnderLoad]:
    """Make the queue and a stage for it; queue and workers end with the block.

    Args:
        rules: when the queue moves, grows and shrinks; None: the defaults.
        limits: of the queue, where they differ from the defaults.
        host: where monitor and first exchange run.
    """
    # The journals of one queue are not those of the next.
    folder = Path(tempfile.mkdtemp(prefix="workers-", dir=place.folder))
    with (
        roq.connect(place.address, timeout=30.0) as cluster,
        Workers(folder, [place.address], QUEUE) as workers,
    ):
        cluster.create_queue(QUEUE, host=host or place.hosts[0], durability="none", limits=limits)
        if rules is not None:
            cluster.set_rules(QUEUE, rules)
        with cluster.statistics(QUEUE) as statistics:
            made = UnderLoad(place, cluster, workers, statistics, display)
            made.until(lambda: made.exchanges() > 0, HEARD_SECONDS, "the monitor is heard")
            yield made
        cluster.remove_queue(QUEUE)
