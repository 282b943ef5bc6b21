"""A program that creates a queue while things go wrong: it is there in the end, or it is not."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import roq
from roq.errors import QueueExists, QueueNotFound, RoQError
from roq.simulation.experiments.chaos.environment import Environment

CREATE_SECONDS: Final = 20.0
"""What the cluster has for it."""
SETTLE_SECONDS: Final = 20.0
"""After everything is healed, what was begun is brought to its end within this."""


class Change:
    """A queue that is being created.

    Args:
        name: of the queue; a new one.
        patience: so many times as long may everything take.
    """

    def __init__(self, environment: Environment, name: str, patience: float = 1.0) -> None:
        self._create_seconds = CREATE_SECONDS * patience
        self._settle_seconds = SETTLE_SECONDS * patience
        self._environment = environment
        self._name = name
        self._refusal: RoQError | None = None
        self._seen = "?"
        """How the queue was when a manager told last; empty: there was none; `?`: none told."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="change")
        self._created: Future[None] = self._pool.submit(self._create)

    def settle(self) -> list[str]:
        """Wait for its end, undo it, and give what was wrong, in sentences."""
        environment = self._environment
        environment.until(self._created.done, self._create_seconds + self._settle_seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)
        if not self._created.done():
            return [f"no answer has told what became of queue {self._name}"]
        error = self._created.exception()
        if not environment.until(self._is_decided, self._settle_seconds, step=0.2):
            return [f"queue {self._name} stays {self._seen}, half done ({error or 'created'})"]
        if self._seen == "":
            return [] if error else [f"queue {self._name} was created, and is not there"]
        wanted = [f"{self._name}.monitor", f"{self._name}.x1"]
        wrong = []
        # What was set up twice because a host was cut off is stopped once that is in reach.
        if not environment.until(
            lambda: self._children() == wanted, self._settle_seconds, step=0.2
        ):
            runs = ", ".join(self._children()) or "none"
            wrong.append(f"of queue {self._name} there run {runs}")
        if not environment.until(self._is_removed, self._settle_seconds, step=0.2):
            return [*wrong, f"queue {self._name} cannot be removed: {self._refusal}"]
        if not environment.until(lambda: not self._children(), self._settle_seconds, step=0.2):
            wrong.append(f"queue {self._name} is removed, and still runs")
        return wrong

    def _create(self) -> None:
        try:
            seconds = self._create_seconds
            with roq.connect(self._environment.parts.addresses, timeout=seconds) as cluster:
                cluster.create_queue(self._name, durability="none", timeout=seconds)
        except QueueExists:  # an attempt that was not answered has done it
            return

    def _is_decided(self) -> bool:
        """Whether the queue is there as a whole or not at all; no manager tells: not decided."""
        try:
            queues = {queue.name: queue.state for queue in self._environment.cluster.queues()}
        except RoQError:
            self._seen = "?"
        else:
            self._seen = queues.get(self._name, "")
        return self._seen in {"running", ""}

    def _is_removed(self) -> bool:
        """Remove the queue; False: not now, since no manager in reach may change anything."""
        try:
            self._environment.cluster.remove_queue(self._name, timeout=self._create_seconds)
        except QueueNotFound:  # an attempt that was not answered has done it
            return True
        except RoQError as error:
            self._refusal = error
            return False
        return True

    def _children(self) -> list[str]:
        return sorted(
            each.child
            for each in self._environment.parts.offspring()
            if each.child.startswith(f"{self._name}.")
        )
