"""The registry as the shell uses it: elections, commits under a fence, and what goes wrong."""

from collections import deque
from collections.abc import Callable

import pytest
from gcm_script import ME, OTHER

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.port import Create, Node
from roq.errors import ConfigError, NotLeader, RegistryAway, RequestError
from roq.gcm import events, records
from roq.gcm.definitions import Definitions
from roq.gcm.events import Commit, Drop, Put
from roq.model import QueueState

RECORD = records.QueueRecord(
    name="a", queue_id=bytes(16), state=QueueState.RUNNING, host="h", created=1.0
)


class Shell:
    """One manager's registry, and what it told."""

    def __init__(self, ensemble: MemoryEnsemble, me: records.Manager = ME) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.told: list[events.Event] = []
        self.connected = 0
        self.registry = MemoryRegistry(ensemble, self.calls.append)
        self.definitions = Definitions(self.registry, me, self.told.append, self._connected)
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


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def shell(ensemble: MemoryEnsemble) -> Shell:
    return Shell(ensemble)


def test_the_first_one_leads_what_there_is(shell: Shell) -> None:
    (elected,) = shell.take(events.Elected)
    assert elected == events.Elected(1, records.Snapshot())
    assert shell.connected == 1
    assert len(shell.take(events.ClusterNamed)) == 1
    assert shell.take(events.ManagersChanged)[-1] == events.ManagersChanged((ME,))


def test_documents_are_made_replaced_and_dropped(shell: Shell) -> None:
    path = records.queue_path("a")
    data = records.encode(RECORD)
    assert shell.commit(1, Put(path, data)) == events.Committed(1)
    assert shell.commit(2, Put(path, b"{}"), Put(f"{path}/rules", b"{}")) == events.Committed(2)
    assert shell.tree() == {path: b"{}", f"{path}/rules": b"{}"}
    gone = [Drop(records.rules_path("a")), Drop(records.transactions_path("a")), Drop(path)]
    assert shell.commit(3, *gone) == events.Committed(3)
    assert shell.tree() == {}


def test_a_later_leader_reads_what_the_first_one_wrote(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    assert second.take(events.Following)[-1] == events.Following(ME)
    shell.commit(1, Put(records.queue_path("a"), records.encode(RECORD)))
    shell.definitions.close()
    (elected,) = second.take(events.Elected)
    assert elected == events.Elected(2, records.Snapshot((RECORD,)))
    path = records.queue_path("a")
    assert second.commit(1, Put(path, b"{}")) == events.Committed(1)


def test_a_follower_commits_nothing(ensemble: MemoryEnsemble, shell: Shell) -> None:
    second = Shell(ensemble, OTHER)
    failed = second.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert second.tree() == {}


def test_a_leader_that_was_overtaken_commits_nothing(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    shell.registry.suspend()
    shell.run()
    shell.registry.expire(reconnect=False)
    assert len(second.take(events.Elected)) == 1
    failed = shell.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert isinstance(failed.error, RegistryAway)
    assert second.tree() == {}
    shell.registry.resume()
    assert shell.take(events.Following)[-1] == events.Following(OTHER)


def test_while_suspended_commits_fail_and_then_all_is_read_again(shell: Shell) -> None:
    shell.registry.suspend()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()]
    failed = shell.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert isinstance(failed.error, RegistryAway)
    shell.registry.resume()
    assert shell.take(events.RegistryBack)[-1] == events.RegistryBack(records.Snapshot())


def test_a_registry_that_somebody_else_changed_is_read_again(shell: Shell) -> None:
    path = records.queue_path("a")
    shell.registry.commit([Create(path, records.encode(RECORD))], None, lambda _: None)
    failed = shell.commit(1, Put(path, b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert type(failed.error) is RequestError
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot((RECORD,)))
    assert shell.commit(2, Put(path, b"{}")) == events.Committed(2)


def test_a_write_under_an_old_epoch_is_refused(ensemble: MemoryEnsemble, shell: Shell) -> None:
    second = Shell(ensemble, OTHER)
    # The first one's session ends without its noticing: its leadership is a thing of the past.
    leadership = shell.definitions._leadership
    shell.registry.expire()
    shell.run()
    second.run()
    shell.definitions._leadership = leadership
    failed = shell.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert isinstance(failed.error, NotLeader)


def test_an_unreadable_definition_stops_the_leader(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put("/queues/a", b"not json"))
    first.definitions.close()
    with pytest.raises(ConfigError, match="/queues/a"):
        Shell(ensemble, OTHER)


def test_documents_of_a_later_version_are_left_alone() -> None:
    snapshot = records.decode_snapshot(
        {"/queues/a": records.encode(RECORD), "/queues/a/news": b"?"}
    )
    assert snapshot == records.Snapshot((RECORD,))
