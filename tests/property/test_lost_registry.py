"""Whatever breaks, even if the ensemble loses everything: no epoch goes back, none is doubled."""

from collections import deque
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import CLUSTER
from roq.gcm import events
from roq.gcm.persistence.definitions import Definitions
from roq.gcm.state import records
from roq.runtime.interfaces import Timer

MANAGERS = 3
STEPS = ("suspend", "resume", "expire", "deliver", "write", "doubt", "wipe", "draw")


class Manager:
    """A configuration manager's registry; believes what it was told."""

    def __init__(self, ensemble: MemoryEnsemble, name: str) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.elected: list[int] = []
        self.drawn: list[int] = []
        self.written = 0
        self.name = name
        self.registry = MemoryRegistry(ensemble, self.calls.append)
        me = records.Manager(id=name, client=name, management=name, broadcast=name)
        self.definitions = Definitions(
            self.registry, me, self._told, lambda: None, Timer, self._heard
        )
        self.definitions.start()

    def _heard(self, most: int) -> int:
        return max((epoch for epoch in self.drawn if epoch <= most), default=0)

    def _told(self, event: events.Event) -> None:
        if isinstance(event, events.Elected):
            self.elected.append(event.epoch)

    def write(self) -> None:
        self.written += 1
        put = events.Put(f"/queues/{self.name}-{self.written}", b"{}")
        self.definitions.commit(events.Commit(self.written, (put,)))

    def draw(self) -> None:
        self.registry.next_host_epoch(
            lambda told: self.drawn.append(told) if isinstance(told, int) else None
        )

    def deliver(self) -> int:
        count = len(self.calls)
        for _ in range(count):
            self.calls.popleft()()
        return count


def settle(managers: list[Manager]) -> None:
    while sum(manager.deliver() for manager in managers):
        pass


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, MANAGERS - 1), st.sampled_from(STEPS)), max_size=40))
def test_epochs_rise_and_a_cluster_stays_what_it_is(steps: list[tuple[int, str]]) -> None:
    ensemble = MemoryEnsemble()
    managers = [Manager(ensemble, f"m{number}") for number in range(MANAGERS)]
    settle(managers)
    found = ensemble.node(CLUSTER)
    assert found is not None
    cluster = found.data
    for number, step in steps:
        manager = managers[number]
        match step:
            case "suspend":
                manager.registry.suspend()
            case "resume":
                manager.registry.resume()
            case "expire":
                manager.registry.expire(reconnect=False)
            case "write":
                manager.write()
            case "doubt":
                manager.definitions.doubt()
            case "draw":
                manager.draw()
            case "wipe":
                ensemble.wipe()
            case _:
                manager.deliver()
        node = ensemble.node(CLUSTER)
        assert node is None or node.data == cluster, "a second cluster"
    for manager in managers:
        manager.registry.resume()
    settle(managers)
    epochs = [epoch for manager in managers for epoch in (*set(manager.elected), *manager.drawn)]
    assert len(epochs) == len(set(epochs)), "an epoch was given twice"
    assert all(manager.elected == sorted(manager.elected) for manager in managers)
    if ensemble.node(CLUSTER) is not None:
        leaders = [each for each in managers if each.definitions._serving]
        assert len(leaders) == 1
        assert leaders[0].elected[-1] == max(each.elected[-1] for each in managers if each.elected)
    for manager in managers:
        manager.registry.close()
