"""The registry as the shell uses it: elections, commits under a fence, and what goes wrong."""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec
import pytest
from gcm_script import ME, OTHER

from roq.coordination.contract import (
    CommitResult,
    Conflict,
    Create,
    Delete,
    Fence,
    Node,
    Operation,
    Reason,
    SessionState,
    Set,
)
from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.errors import NotLeader, RegistryAway, RequestError
from roq.gcm import events
from roq.gcm.events import Commit, Drop, Put
from roq.gcm.persistence.definitions import (
    DROPPED_AT_ONCE,
    Definitions,
    below,
    identity_problem,
    operations_for,
    surplus_of,
)
from roq.gcm.persistence.epochs import LOST_EPOCHS
from roq.gcm.state import records
from roq.model import QueueState
from roq.runtime.interfaces import Timer

RECORD = records.QueueRecord(
    name="a", queue_id=bytes(16), state=QueueState.RUNNING, host="h", created=1.0
)


TOLD_OF_LEADERSHIP = (events.Elected, events.Following, events.Doubted, events.RegistryLost)


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
    assert shell.commit(3, Put(f"{path}/news", b"{}")) == events.Committed(3)
    assert shell.commit(4, Put("/queues/ab", b"{}")) == events.Committed(4)
    assert shell.commit(5, Drop(path)) == events.Committed(5)  # with all that is below it
    assert shell.tree() == {"/queues/ab": b"{}"}
    assert shell.commit(6, Drop(path)) == events.Committed(6)


def test_numbers_of_the_counter_are_drawn_and_each_is_higher(shell: Shell) -> None:
    shell.definitions.draw(events.DrawEpoch(1))
    shell.definitions.draw(events.DrawEpoch(2))
    first, second = shell.take(events.EpochDrawn)
    assert (first.token, second.token) == (1, 2)
    assert second.epoch > first.epoch


def test_no_number_is_drawn_while_the_registry_is_away(shell: Shell) -> None:
    shell.registry.suspend()
    shell.definitions.draw(events.DrawEpoch(1))
    (failed,) = shell.take(events.CommitFailed)
    assert (failed.token, failed.error.code) == (1, "registry_away")


def test_a_base_that_was_damaged_is_told_and_heals_by_itself(shell: Shell) -> None:
    damage = Set("/base", b"x")
    shell.registry.commit([damage], None, lambda _: None)
    (told,) = shell.take(events.EpochsDamaged)
    assert "'x'" in told.problem  # type: ignore[attr-defined]
    shell.definitions.draw(events.DrawEpoch(1))
    (failed,) = shell.take(events.CommitFailed)
    assert "'x'" in str(failed.error)  # type: ignore[attr-defined]
    shell.registry.commit([Set("/base", b"0")], None, lambda _: None)
    assert shell.take(events.EpochsDamaged) == [events.EpochsDamaged("")]
    shell.definitions.draw(events.DrawEpoch(2))
    assert len(shell.take(events.EpochDrawn)) == 1


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


def test_an_unreadable_definition_stops_nobody(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put("/queues/a", b"not json"), Put("/queues/b", b"[" * 100_000))
    first.definitions.close()
    (elected,) = Shell(ensemble, OTHER).take(events.Elected)
    assert elected.snapshot.queues == ()
    assert elected.snapshot.unreadable.keys() == {"a", "b"}


def test_documents_of_a_later_version_are_left_alone() -> None:
    snapshot = records.decode_snapshot(
        {"/queues/a": records.encode(RECORD), "/queues/a/news": b"?"}
    )
    assert snapshot == records.Snapshot((RECORD,))


PATH = records.queue_path("a")
RULES = records.rules_path("a")
MADE = records.transactions_path("a")


# --- what others write ----------------------------------------------------------------------------


def by_hand(ensemble: MemoryEnsemble, shell: Shell, *operations: Operation) -> None:
    """Somebody changes the registry beside the leader."""
    other = MemoryRegistry(ensemble, shell.calls.append)
    other.start(lambda _: None)
    shell.run()
    other.commit(operations, None, lambda _: None)
    shell.run()
    other.close()


@pytest.mark.parametrize("gone", [(MADE, PATH), (MADE,), (MADE, PATH, "/queues")])
def test_what_somebody_deletes_under_the_leader_is_written_back(
    ensemble: MemoryEnsemble, shell: Shell, caplog: pytest.LogCaptureFixture, gone: tuple[str, ...]
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(MADE, b"[]"))
    before = shell.tree()
    by_hand(ensemble, shell, *map(Delete, gone))
    shell.commit(2, Put(MADE, b"[]"))
    assert shell.tree() == before
    assert "what stood of a in the registry was deleted" in caplog.text
    assert all(
        event.snapshot is None or event.snapshot.queues == (RECORD,)
        for event in shell.take(events.RegistryBack)
        if isinstance(event, events.RegistryBack)
    )
    assert shell.commit(3, Drop(PATH)) == events.Committed(3)
    assert shell.tree() == {}


def test_what_is_deleted_together_with_the_leaders_node_is_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    shell.take(events.Elected)
    by_hand(ensemble, shell, Delete("/leader"), Delete(PATH))
    assert shell.tree() == before
    (elected,) = shell.take(events.Elected)
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == (RECORD,)


def test_what_is_deleted_while_nobody_leads_is_written_back_by_the_leader_of_before(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    shell.registry.expire(reconnect=False)
    by_hand(ensemble, shell, Delete(PATH))
    shell.registry.resume()
    shell.run()
    assert shell.tree() == before


def test_what_another_leader_has_removed_is_not_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    second = Shell(ensemble, OTHER)
    shell.registry.expire(reconnect=False)
    second.run()
    assert second.commit(1, Drop(PATH)) == events.Committed(1)
    second.definitions.close()
    shell.registry.resume()
    shell.run()
    assert shell.tree() == {}
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == ()


def test_what_was_removed_by_one_who_led_for_a_moment_is_not_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    second = Shell(ensemble, OTHER)
    shell.take(events.Following)
    nodes = [ensemble.node(f"/candidates/{name}") for name in ensemble.names("/candidates") or ()]
    (mine,) = [node.path for node in nodes if node and node.data == records.encode(ME)]
    by_hand(ensemble, second, Delete(mine))
    while events.Following(None) not in shell.told:
        shell.calls.popleft()()  # it stands again, and hears nothing for a while
    assert second.take(events.Elected)
    assert second.commit(1, Drop(PATH)) == events.Committed(1)
    second.definitions.close()
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == ()
    assert shell.tree() == {}


def test_what_is_removed_while_all_is_read_is_gone(shell: Shell) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    shell.definitions.read_again()
    shell.calls.popleft()()  # the definition was read, and what is below it was not
    assert shell.commit(2, Drop(PATH)) == events.Committed(2)
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot())
    shell.definitions.read_again()
    assert shell.take(events.RegistryBack)[-1] == back
    assert shell.tree() == {}


def test_what_is_changed_while_all_is_read_is_as_it_is_now(shell: Shell) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    shell.definitions.read_again()
    shell.calls.popleft()()
    stopped = msgspec.structs.replace(RECORD, state=QueueState.STOPPED)
    shell.commit(2, Put(PATH, records.encode(stopped)))
    back = shell.take(events.RegistryBack)[-1]
    assert isinstance(back, events.RegistryBack)
    assert back.snapshot is not None
    assert back.snapshot.queues == (stopped,)


def test_a_deleted_queue_is_noticed_without_any_change(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    by_hand(ensemble, shell, Delete(PATH))
    assert shell.tree() == before


def test_what_may_have_been_removed_by_the_leader_itself_is_not_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    shell.registry.suspend()
    failed = shell.commit(2, Drop(PATH))
    assert isinstance(failed, events.CommitFailed)
    by_hand(ensemble, shell, Delete(RULES), Delete(PATH))  # as if it had been done all the same
    shell.registry.resume()
    shell.run()
    assert shell.tree() == {}


def test_what_cannot_be_written_back_holds_up_nothing_else(
    ensemble: MemoryEnsemble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(MADE, b"[]"))
    shell.take(events.RegistryBack)
    commit = shell.registry.commit

    def obstructed(
        operations: Sequence[Operation], fence: Fence | None, done: Callable[[CommitResult], None]
    ) -> None:
        if any(isinstance(each, Create) and each.path == MADE for each in operations):
            done(Conflict(MADE, Reason.MISSING))  # as below a node that is ephemeral
        else:
            commit(operations, fence, done)

    by_hand(ensemble, shell, Delete(MADE))
    monkeypatch.setattr(shell.registry, "commit", obstructed)
    assert isinstance(shell.commit(2, Put(MADE, b"[]")), events.CommitFailed)
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot((RECORD,)))


def test_garbage_that_is_removed_by_hand_is_gone(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put(PATH, b"garbage"), Put(f"{PATH}/foreign", b"x"))
    first.definitions.close()
    shell = Shell(ensemble, OTHER)
    by_hand(ensemble, shell, Delete(f"{PATH}/foreign"), Delete(PATH))
    assert shell.tree() == {}
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.unreadable.keys() == {"a"}
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot())


def test_an_identity_that_somebody_deletes_is_written_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    follower = Shell(ensemble, OTHER)
    cluster = identity(shell)
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    by_hand(ensemble, shell, Delete("/cluster"))
    assert identity(shell) == cluster
    assert shell.tree() == before
    follower.run()
    (*_, told) = follower.take(events.Following)
    assert told == events.Following(ME)


SPOILT = [b"", b"\xff\xfe", b"two words", b"x" * 900_000]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_identity_that_somebody_spoils_is_set_right(
    ensemble: MemoryEnsemble, shell: Shell, spoilt: bytes
) -> None:
    cluster = identity(shell)
    by_hand(ensemble, shell, Set("/cluster", spoilt))
    assert identity(shell) == cluster
    assert shell.take(events.RegistryLost) == []
    assert shell.commit(1, Put(PATH, records.encode(RECORD))) == events.Committed(1)


@pytest.mark.parametrize("spoilt", SPOILT)
def test_nobody_begins_to_lead_under_a_spoilt_identity_and_all_goes_on_once_it_is_set_right(
    ensemble: MemoryEnsemble, spoilt: bytes
) -> None:
    first = Shell(ensemble)
    cluster = identity(first)
    assert cluster is not None
    first.definitions.close()
    by_hand(ensemble, first, Set("/cluster", spoilt))
    second = Shell(ensemble, OTHER)
    assert second.take(events.Elected) == []
    (told,) = second.take(events.RegistryLost)
    assert isinstance(told, events.RegistryLost)
    assert "holds no identity" in told.problem
    assert len(told.problem) < 300
    by_hand(ensemble, second, Set("/cluster", cluster.encode()))
    assert second.take(events.ClusterNamed) == [events.ClusterNamed(cluster)]
    assert len(second.take(events.Elected)) == 1


def test_a_queue_goes_with_all_that_others_have_put_below_it(
    ensemble: MemoryEnsemble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    foreign = [f"{PATH}/a\u00a0{number}" for number in range(2 * DROPPED_AT_ONCE)]
    by_hand(ensemble, shell, *map(Create, foreign))
    assert isinstance(shell.commit(2, Drop(PATH)), events.CommitFailed)
    sizes: list[int] = []
    commit = shell.registry.commit

    def counted(
        operations: Sequence[Operation], fence: Fence | None, done: Callable[[CommitResult], None]
    ) -> None:
        sizes.append(len(operations))
        commit(operations, fence, done)

    monkeypatch.setattr(shell.registry, "commit", counted)
    assert shell.commit(3, Drop(PATH)) == events.Committed(3)
    assert shell.tree() == {}
    assert max(sizes) <= DROPPED_AT_ONCE + 1


def test_definitions_without_data_are_unreadable(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put(PATH, b""))
    first.definitions.close()
    (elected,) = Shell(ensemble, OTHER).take(events.Elected)
    assert isinstance(elected, events.Elected)
    assert "empty" in elected.snapshot.unreadable["a"]


def test_hosts_and_managers_are_those_whose_nodes_end_with_a_session(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    host = MemoryRegistry(ensemble, shell.calls.append)
    host.start(lambda _: None)
    host.register_host("h1", b"{}", lambda _: None)
    shell.run()
    by_hand(
        ensemble,
        shell,
        Create("/hosts/h2", b"{}"),
        Create("/hosts/no host", b"{}"),
        Create("/candidates/copied", records.encode(ME)),
    )
    assert shell.take(events.HostsPresent)[-1] == events.HostsPresent(frozenset({"h1"}))
    managers = shell.take(events.ManagersChanged)[-1]
    assert isinstance(managers, events.ManagersChanged)
    assert sorted(managers.managers, key=lambda each: each.id) == sorted(
        (ME, OTHER), key=lambda each: each.id
    )
    second.definitions.close()


# --- a registry that has lost everything ----------------------------------------------------------


def identity(shell: Shell) -> str | None:
    found: list[object] = []
    shell.registry.cluster_id(found.append)
    shell.run()
    assert found[0] is None or isinstance(found[0], str)
    return found[0]


def empty(ensemble: MemoryEnsemble, *shells: Shell) -> None:
    """The ensemble loses everything; these find out, in this order."""
    ensemble.wipe()
    for shell in shells:
        shell.run()
        shell.registry.resume()
        shell.run()


def test_the_leader_writes_back_what_a_registry_has_lost(
    ensemble: MemoryEnsemble, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = identity(shell)
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b'{"later": "version"}'))
    before = shell.tree()
    empty(ensemble, shell)
    assert shell.tree() == before
    assert identity(shell) == cluster
    assert "written back from memory" in caplog.text
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.snapshot.queues == (RECORD,)
    assert shell.commit(2, Drop(PATH)) == events.Committed(2)
    assert shell.tree() == {}


def test_no_epoch_goes_back_when_a_registry_was_lost(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    drawn: list[int | RegistryAway] = []
    for _ in range(20):
        shell.registry.next_host_epoch(drawn.append)
    shell.run()
    shell.heard = 500  # as a host has told, which has drawn it by itself
    before = shell.take(events.Elected)[-1]
    empty(ensemble, shell)
    shell.registry.next_host_epoch(drawn.append)
    after = shell.take(events.Elected)[-1]
    assert isinstance(before, events.Elected)
    assert isinstance(after, events.Elected)
    assert after.epoch > 500
    assert drawn[-1] > after.epoch  # type: ignore[operator]


def test_an_epoch_that_cannot_be_of_this_cluster_is_not_counted_on(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.heard = 1_000_000
    empty(ensemble, shell)
    elected = shell.take(events.Elected)[-1]
    assert isinstance(elected, events.Elected)
    assert elected.epoch < 10_000


def test_a_leader_that_no_host_obeys_any_more_counts_on_from_what_they_have_heard(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    shell.take(events.Elected)
    shell.heard = 70  # a process of that epoch runs somewhere
    shell.definitions.lead_anew(60)
    (following,) = shell.take(events.Following)
    assert following == events.Following(None)
    (elected,) = shell.take(events.Elected)
    assert isinstance(elected, events.Elected)
    assert elected.epoch > 70 + LOST_EPOCHS
    assert elected.snapshot.queues == (RECORD,)
    assert "older state" in caplog.text
    shell.definitions.lead_anew(60)
    assert shell.take(events.Elected) == []


def test_a_leader_that_hears_of_a_later_one_follows_it(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    shell.registry.expire(reconnect=False)
    second.run()
    assert second.take(events.Elected)
    shell.definitions.lead_anew(2)
    shell.registry.resume()
    shell.run()
    (*_, told) = shell.take(events.Following)
    assert told == events.Following(OTHER)


def test_a_number_is_drawn_above_all_that_run(shell: Shell) -> None:
    shell.heard = 500
    shell.definitions.draw(events.DrawEpoch(1))
    (drawn,) = shell.take(events.EpochDrawn)
    assert isinstance(drawn, events.EpochDrawn)
    assert drawn.epoch > 500


def test_what_stands_in_the_registry_is_not_overwritten(
    ensemble: MemoryEnsemble, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)), Put(RULES, b"{}"))
    ensemble.wipe()
    shell.run()
    other = MemoryRegistry(ensemble, shell.calls.append)
    other.start(lambda _: None)
    shell.run()
    other.commit([Create(PATH, b'"an operator was here"')], None, lambda _: None)
    shell.registry.resume()
    shell.run()
    assert shell.tree() == {PATH: b'"an operator was here"', RULES: b"{}"}
    assert f"{PATH} stands in the registry already" in caplog.text


def test_a_follower_leaves_an_emptied_registry_to_the_leader_of_before(
    ensemble: MemoryEnsemble, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Shell(ensemble, OTHER)
    cluster = identity(shell)
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    before = shell.tree()
    empty(ensemble, follower)
    assert "remembers nothing" in caplog.text
    (*_, told) = follower.take(events.RegistryLost)
    assert told.session_ended
    assert "remembers nothing" in told.problem
    assert follower.tree() == {}
    assert identity(follower) is None
    shell.run()
    shell.registry.resume()
    shell.run()
    follower.run()
    assert follower.tree() == before
    assert identity(follower) == cluster
    assert follower.take(events.Following)[-1] == events.Following(ME)
    assert follower.take(events.Elected) == []


def test_a_leader_that_was_followed_by_another_one_writes_nothing_back(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    second = Shell(ensemble, OTHER)
    shell.registry.expire()
    shell.run()
    second.run()
    assert second.take(events.Elected)
    shell.run()
    empty(ensemble, shell)
    assert shell.tree() == {}


def test_nobody_leads_in_the_registry_of_another_cluster(
    ensemble: MemoryEnsemble, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = identity(shell)
    shell.commit(1, Put(PATH, records.encode(RECORD)))
    shell.take(events.Elected)
    ensemble.wipe()
    stranger = Shell(ensemble, OTHER)
    shell.run()
    shell.registry.resume()
    shell.run()
    assert stranger.take(events.Elected)
    assert identity(shell) != cluster
    assert f"belongs to {cluster}" in caplog.text
    assert shell.take(events.Elected) == []
    assert not any(
        isinstance(each, events.Following) and each.leader == OTHER for each in shell.told
    )
    failed = shell.commit(2, Put(PATH, b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert "the registry holds cluster" in str(failed.error)
    assert shell.tree() == {}
    shell.take(events.RegistryLost)
    shell.registry.suspend()
    shell.run()
    shell.registry.resume()
    shell.run()
    told = [each for each in shell.told if isinstance(each, events.RegistryLost)]
    assert "the registry holds cluster" in told[-1].problem  # it is no better for a new connection
    assert events.RegistryBack(None) not in shell.told[shell.told.index(told[-1]) :]
    # The stranger's cluster is removed by somebody who knows what he does.
    stranger.definitions.close()
    empty(ensemble, shell)
    assert identity(shell) == cluster
    assert set(shell.tree()) == {PATH}


def test_a_restoration_that_was_interrupted_is_completed(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    many = [records.queue_path(f"q{number:03}") for number in range(450)]
    for path in many:
        shell.commit(1, Put(path, records.encode(RECORD)))
    cluster = identity(shell)
    ensemble.wipe()
    shell.run()
    shell.registry.resume()
    while sum(ensemble.node(path) is not None for path in many) < 200:
        shell.calls.popleft()()
    shell.registry.suspend()
    shell.run()
    assert ensemble.node("/cluster") is None
    shell.registry.resume()
    shell.run()
    assert sorted(shell.tree()) == many
    assert identity(shell) == cluster


# --- a leader that has stood still, or is cut off -------------------------------------------------


def test_a_leader_that_stood_still_says_nothing_until_it_knows(shell: Shell) -> None:
    (elected,) = shell.take(events.Elected)
    shell.definitions.doubt()
    assert shell.told[-1] == events.Doubted()
    assert shell.take(events.Elected) == [elected]


def test_a_leader_that_was_succeeded_while_it_stood_still_follows(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    shell.take(events.Elected)
    shell.registry.expire(reconnect=False)
    assert second.take(events.Elected)
    shell.definitions.doubt()
    assert shell.told[-1] == events.Doubted()
    shell.run()
    shell.registry.resume()
    assert shell.take(events.Elected) == []
    assert shell.take(events.Following)[-1] == events.Following(OTHER)


def test_a_follower_has_nothing_to_doubt(ensemble: MemoryEnsemble, shell: Shell) -> None:
    second = Shell(ensemble, OTHER)
    second.told.clear()
    second.definitions.doubt()
    assert second.told == []


def test_a_leader_that_is_cut_off_for_longer_than_its_lease_leads_again_if_nobody_else_does(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    (elected,) = shell.take(events.Elected)
    shell.registry.suspend()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()]
    shell.timers.fire()
    assert shell.take(events.RegistryLost) == [events.RegistryLost(session_ended=True)]
    shell.registry.resume()
    assert shell.take(events.Elected) == [elected], "the session was still there"


def test_a_leader_whose_session_has_ended_says_nothing_until_it_hears_who_leads(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.registry.expire(reconnect=False)
    Shell(ensemble, OTHER)
    shell.run()
    shell.registry.resume()
    shell.run()
    told = [event for event in shell.told if isinstance(event, TOLD_OF_LEADERSHIP)]
    assert told[-4:-1] == [events.RegistryLost(), events.Doubted(), events.RegistryLost()]
    assert told[-1] == events.Following(OTHER)
    shell.timers.fire()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()] * 2


def test_a_leader_whose_session_has_ended_and_that_hears_no_more_takes_care(shell: Shell) -> None:
    shell.definitions._session_changed(SessionState.LOST)
    assert shell.told[-2:] == [events.Doubted(), events.RegistryLost()]
    shell.timers.fire()
    assert shell.told[-1] == events.RegistryLost(session_ended=True)


def test_a_short_interruption_ends_no_lease(shell: Shell) -> None:
    shell.registry.suspend()
    shell.run()
    shell.registry.resume()
    shell.run()
    shell.timers.fire()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()]


def test_what_stands_there_is_replaced_and_what_does_not_is_made() -> None:
    changes = (Put("/queues/a", b"1"), Put("/queues/b", b"2"))
    assert operations_for(changes, {"/queues/a"}) == [
        Set("/queues/a", b"1"),
        Create("/queues/b", b"2"),
    ]


def test_what_is_dropped_goes_from_the_leaves_up_and_nothing_beside_it() -> None:
    known = ["/queues/a", "/queues/a/rules", "/queues/a/x/y", "/queues/a/x", "/queues/ab"]
    assert operations_for([Drop("/queues/a")], known) == [
        Delete("/queues/a/x/y"),
        Delete("/queues/a/x"),
        Delete("/queues/a/rules"),
        Delete("/queues/a"),
    ]


def test_too_much_to_drop_at_once_is_dropped_before_children_first() -> None:
    foreign = [f"/queues/a/{number:05}" for number in range(DROPPED_AT_ONCE)]
    known = ["/queues/a", *foreign]
    assert surplus_of([Drop("/queues/a")], known) == []
    known += ["/queues/a/x", "/queues/a/x/y"]
    first = surplus_of([Drop("/queues/a")], known)
    assert len(first) == DROPPED_AT_ONCE
    assert first[:2] == ["/queues/a/x/y", "/queues/a/x"]
    rest = [path for path in known if path not in first]
    assert surplus_of([Drop("/queues/a"), Put("/queues/b", b"")], rest) == []


def test_below_a_path_is_what_has_its_name_and_nothing_that_only_begins_so() -> None:
    assert below({"/q/a", "/q/a/b", "/q/ab", "/q"}, "/q/a") == ["/q/a/b", "/q/a"]


@pytest.mark.parametrize(
    ("found", "mine", "remembers"),
    [
        (None, "", False),
        ("c1", "", False),
        ("c1", "c1", False),
        (None, "c1", True),
        ("", "c1", True),
    ],
)
def test_a_manager_leads_its_own_cluster_or_one_that_it_can_found_or_write_back(
    found: str | None, mine: str, remembers: bool
) -> None:
    assert identity_problem(found, mine, remembers=remembers) == ""


def test_nobody_leads_another_cluster_and_both_are_named() -> None:
    text = identity_problem("c2", "c1", remembers=True)
    assert "holds cluster c2" in text
    assert "belongs to c1" in text


def test_who_remembers_nothing_leaves_an_empty_registry_alone() -> None:
    assert "remembers nothing of cluster c1" in identity_problem(None, "c1", remembers=False)


@pytest.mark.parametrize("mine", ["c1", ""])
def test_who_finds_an_identity_that_is_none_says_what_to_set(mine: str) -> None:
    text = identity_problem("", mine, remembers=False)
    assert "holds no identity" in text
    assert f"Set it to {mine or 'the one that'}" in text
