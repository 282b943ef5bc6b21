"""The registry in memory keeps the contract, and its switches do what they say."""

import threading
from collections.abc import Iterator

import pytest
from posting import Loop
from registry_contract import RegistryContract

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import Create, Registry, SessionState


class InMemory:
    def __init__(self) -> None:
        self.loop = Loop()
        self.shared = MemoryEnsemble()
        self.registries: list[MemoryRegistry] = []

    def registry(self) -> MemoryRegistry:
        self.registries.append(MemoryRegistry(self.shared, self.loop.post))
        return self.registries[-1]

    def cut(self, registry: Registry) -> None:
        assert isinstance(registry, MemoryRegistry)
        registry.suspend()

    def mend(self, registry: Registry) -> None:
        assert isinstance(registry, MemoryRegistry)
        registry.resume()

    def expire(self, registry: Registry) -> None:
        assert isinstance(registry, MemoryRegistry)
        registry.expire(reconnect=False)


@pytest.fixture
def ensemble() -> Iterator[InMemory]:
    made = InMemory()
    yield made
    for registry in made.registries:
        registry.close()


class TestMemoryRegistry(RegistryContract):
    def test_an_expired_session_is_followed_by_a_new_one_at_once(self, ensemble: InMemory) -> None:
        registry = ensemble.registry()
        states: list[SessionState] = []
        registry.start(states.append)
        ensemble.loop.drain()
        registry.expire()
        ensemble.loop.drain()
        assert states == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
            SessionState.CONNECTED,
        ]

    def test_an_ensemble_that_is_away_is_away_for_all(self, ensemble: InMemory) -> None:
        pairs = [self.open(ensemble) for _ in range(2)]
        ensemble.shared.suspend()
        ensemble.loop.drain()
        assert [registry.state for registry, _ in pairs] == [SessionState.SUSPENDED] * 2
        ensemble.shared.resume()
        ensemble.loop.drain()
        assert [registry.state for registry, _ in pairs] == [SessionState.CONNECTED] * 2

    def test_an_ensemble_that_came_back_empty_is_prepared_anew(self, ensemble: InMemory) -> None:
        registry, states = self.open(ensemble)
        self.commit(ensemble, registry, Create("/queues/a"))
        ensemble.shared.wipe()
        ensemble.shared.resume()
        ensemble.loop.drain()
        assert states[-2:] == [SessionState.LOST, SessionState.CONNECTED]
        assert self.read(ensemble, registry, "/queues/a") is None
        assert self.read(ensemble, registry, "/queues") is not None

    def test_registries_in_several_threads_draw_distinct_epochs(self) -> None:
        shared = MemoryEnsemble("c1")
        drawn: list[object] = []

        def draw() -> None:
            loop = Loop()
            registry = MemoryRegistry(shared, loop.post)
            registry.start(lambda _: None)
            loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
            drawn.extend(loop.ask(registry.next_host_epoch) for _ in range(50))
            registry.close()

        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(drawn) == 200
        assert set(drawn) == set(range(1, 201))
