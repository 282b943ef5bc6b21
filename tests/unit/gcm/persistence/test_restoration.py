"""What the leader writes when its registry has come back empty: all, in order, under a fence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from gcm_script import ME, OTHER
from registry_shell import PATH, RECORD, RULES, Shell, identity

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import (
    CLUSTER,
    DATA_BYTES_MAX,
    LOST_EPOCHS,
    CommitResult,
    Committed,
    Conflict,
    Create,
    Fence,
    Operation,
    Reason,
)
from roq.errors import RegistryAway, StaleEpoch
from roq.gcm import events
from roq.gcm.events import Drop, Put
from roq.gcm.persistence.restoration import CHUNK_BYTES, CHUNK_DOCUMENTS, Restoration, deleted
from roq.gcm.state import records
from roq.model import QueueState

FENCE = Fence(epoch=7, version=3)


class Paper:
    """A registry on paper: takes what is committed, and answers as it is told."""

    def __init__(self) -> None:
        self.commits: list[list[Create]] = []
        self.fences: list[Fence | None] = []
        self.answers: dict[int, CommitResult] = {}
        """By the number of the commit; what is not here is done."""
        self.outcomes: list[CommitResult] = []

    def commit(
        self,
        operations: Sequence[Operation],
        fence: Fence | None,
        done: Callable[[CommitResult], None],
    ) -> None:
        number = len(self.commits)
        self.commits.append([each for each in operations if isinstance(each, Create)])
        assert len(self.commits[-1]) == len(operations), "documents are made, and nothing else"
        self.fences.append(fence)
        done(self.answers.get(number, Committed()))

    def restore(self, documents: Mapping[str, bytes]) -> list[str]:
        """Restore; gives the paths in the order in which they were written."""
        Restoration(self, FENCE, "c1", documents, self.outcomes.append).start()  # type: ignore[arg-type]
        return [each.path for commit in self.commits for each in commit]


@pytest.fixture
def paper() -> Paper:
    return Paper()


def test_parents_come_before_what_is_below_them_and_the_identity_last(paper: Paper) -> None:
    written = paper.restore({"/queues/q/transactions": b"t", "/queues/q": b"q", "/cloud": b"c"})
    assert written == ["/cloud", "/queues/q", "/queues/q/transactions", CLUSTER]
    assert paper.commits[-1] == [Create(CLUSTER, b"c1")]
    assert paper.outcomes == [Committed()]


def test_everything_is_written_under_the_fence_of_the_leader(paper: Paper) -> None:
    paper.restore({f"/queues/q{number}": b"" for number in range(2 * CHUNK_DOCUMENTS)})
    assert len(paper.fences) > 2
    assert set(paper.fences) == {FENCE}


@pytest.mark.parametrize("size", [0, CHUNK_BYTES // 3])
def test_no_transaction_is_bigger_than_the_registry_takes(paper: Paper, size: int) -> None:
    documents = {f"/queues/q{number:04}": bytes(size) for number in range(CHUNK_DOCUMENTS + 50)}
    assert paper.restore(documents) == [*documents, CLUSTER]
    for commit in paper.commits:
        assert len(commit) <= CHUNK_DOCUMENTS
        assert sum(len(each.data) for each in commit) <= CHUNK_BYTES


def test_what_stands_there_already_is_kept_and_the_rest_is_written(paper: Paper) -> None:
    paper.answers[0] = Conflict("/queues/b", Reason.EXISTS)
    paper.restore({"/queues/a": b"a", "/queues/b": b"b", "/queues/c": b"c"})
    assert [each.path for each in paper.commits[1]] == ["/queues/a", "/queues/c"]
    assert paper.outcomes == [Committed()]


@pytest.mark.parametrize("why", [StaleEpoch("another one leads"), RegistryAway("registry away")])
def test_what_cannot_be_completed_ends_without_an_identity(
    paper: Paper, why: StaleEpoch | RegistryAway
) -> None:
    paper.answers[1] = why
    documents = {f"/queues/q{number}": b"" for number in range(3 * CHUNK_DOCUMENTS)}
    assert CLUSTER not in paper.restore(documents)
    assert paper.outcomes == [why]


def test_what_cannot_be_written_is_left_out_with_what_stood_below_it(
    paper: Paper, caplog: pytest.LogCaptureFixture
) -> None:
    documents = {
        "/queues/a": bytes(DATA_BYTES_MAX + 1),
        "/queues/a/rules": b"{}",
        "/queues/b": b"b",
        "/queues/b/x/y": b"its parent was deleted while it was read",
        "/queues/b/\u00a0": b"of another tool",
    }
    assert paper.restore(documents) == ["/queues/b", "/queues/b/\u00a0", CLUSTER]
    assert paper.outcomes == [Committed()]
    assert caplog.text.count("is not written back") == 3


def test_what_is_too_large_to_be_written_back_is_waited_for_by_nobody() -> None:
    record = records.QueueRecord(
        name="a", queue_id=bytes(16), state=QueueState.RUNNING, host="h", created=1.0
    )
    data, path = records.encode(record), records.queue_path("a")
    below = {records.transactions_path("a"): b"[]"}
    assert deleted({path: data, **below}, {}, ()) == {path: data, **below}
    assert deleted({path: data.ljust(DATA_BYTES_MAX + 1), **below}, {}, ()) == {}


# --- a registry that has lost everything ----------------------------------------------------------


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
