"""One manager's registry in memory, and what it tells; no test in here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gcm_script import ME

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import Node
from roq.gcm import events
from roq.gcm.events import Commit
from roq.gcm.persistence.definitions import Definitions
from roq.gcm.state import records
from roq.model import QueueState
from roq.runtime.interfaces import Timer

RECORD = records.QueueRecord(
    name="a", queue_id=bytes(16), state=QueueState.RUNNING, host="h", created=1.0
)


TOLD_OF_LEADERSHIP = (events.Elected, events.Following, events.Doubted, events.RegistryLost)

PATH = records.queue_path("a")
RULES = records.rules_path("a")
MADE = records.transactions_path("a")


class Timers:
    """What a reactor would call later."""

    def __init__(self) -> None:
        self.set: list[Timer] = []

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.set.append(Timer(seconds, call))
        return self.set[-1]

    def fire(self) -> None:
        for timer in self.set:
            if timer.call is not None:
                timer.call()
        self.set.clear()


class Shell:
    """One manager's registry, and what it told."""

    def __init__(self, ensemble: MemoryEnsemble, me: records.Manager = ME) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.told: list[events.Event] = []
        self.connected = 0
        self.registry = MemoryRegistry(ensemble, self.calls.append)
        self.heard = 0
        self.timers = Timers()
        self.definitions = Definitions(
            self.registry,
            me,
            self.told.append,
            self._connected,
            self.timers.later,
            lambda below: self.heard if self.heard < below else 0,
        )
        self.definitions.start()
        self.run()

    def _connected(self) -> None:
        self.connected += 1

    def run(self) -> None:
        while self.calls:
            self.calls.popleft()()

    def take(self, kind: type) -> list[events.Event]:
        self.run()
        found = [event for event in self.told if isinstance(event, kind)]
        self.told[:] = [event for event in self.told if not isinstance(event, kind)]
        return found

    def commit(self, token: int, *changes: events.Change) -> events.Event:
        self.definitions.commit(Commit(token, changes))
        (outcome,) = self.take(events.Committed | events.CommitFailed)  # type: ignore[arg-type]
        return outcome

    def tree(self) -> dict[str, bytes]:
        found: list[Node] = []
        self.registry.read_tree("/queues", found.extend)  # type: ignore[arg-type]
        self.run()
        return {node.path: node.data for node in found}


def identity(shell: Shell) -> str | None:
    found: list[object] = []
    shell.registry.cluster_id(found.append)
    shell.run()
    assert found[0] is None or isinstance(found[0], str)
    return found[0]
