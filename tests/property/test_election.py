"""Whatever breaks, and in whatever order: no two leaders write, and somebody leads in the end."""

from hypothesis import given, settings
from hypothesis import strategies as st
from posting import Loop

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import (
    LEADER,
    CommitResult,
    Committed,
    Create,
    Leadership,
    SessionState,
)

MANAGERS = 3
STEPS = ("suspend", "resume", "expire", "expire for good", "deliver", "write")


class Manager:
    """Believes that it leads from `on_lead` to LOST or `on_follow`; writes when suspended, too."""

    def __init__(self, ensemble: MemoryEnsemble, name: str) -> None:
        self.loop = Loop()
        self.ensemble = ensemble
        self.name = name
        self.registry = MemoryRegistry(ensemble, self.loop.post)
        self.leadership: Leadership | None = None
        self.epochs: list[int] = []
        self.written: list[str] = []
        self.count = 0
        self.registry.start(self._session)
        self.registry.campaign(name.encode(), self._lead, self._follow)

    def _session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.leadership = None

    def _lead(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.epochs.append(leadership.epoch)

    def _follow(self, _leader: bytes | None) -> None:
        self.leadership = None

    def write(self) -> None:
        if self.leadership is None:
            return
        self.count += 1
        path = f"/queues/{self.leadership.epoch:06d}-{self.name}-{self.count}"

        def done(result: CommitResult) -> None:
            if isinstance(result, Committed):
                self.written.append(path)

        self.registry.commit([Create(path)], self.leadership.fence, done)
        leader = self.ensemble.node(LEADER)
        if self.ensemble.node(path) is not None:
            assert leader is not None
            assert leader.version == self.leadership.version, "a leader of the past has written"


def settle(managers: list[Manager]) -> None:
    while sum(manager.loop.drain() for manager in managers):
        pass


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, MANAGERS - 1), st.sampled_from(STEPS)), min_size=1, max_size=40
    )
)
def test_an_epoch_has_one_owner_and_only_the_newest_one_writes(
    steps: list[tuple[int, str]],
) -> None:
    ensemble = MemoryEnsemble()
    managers = [Manager(ensemble, f"m{number}") for number in range(MANAGERS)]
    settle(managers)
    for number, step in steps:
        manager = managers[number]
        match step:
            case "suspend":
                manager.registry.suspend()
            case "resume":
                manager.registry.resume()
            case "expire":
                manager.registry.expire()
            case "expire for good":
                manager.registry.expire(reconnect=False)
            case "deliver":
                manager.loop.drain()
            case _:
                for each in managers:
                    each.write()
    for manager in managers:
        manager.registry.resume()
    settle(managers)

    owners = [epoch for manager in managers for epoch in manager.epochs]
    assert len(owners) == len(set(owners))
    assert sum(manager.leadership is not None for manager in managers) == 1
    leader = next(manager for manager in managers if manager.leadership is not None)
    assert leader.epochs[-1] == max(owners)
    leader.write()
    settle(managers)
    assert leader.written
    for manager in managers:
        manager.registry.close()
