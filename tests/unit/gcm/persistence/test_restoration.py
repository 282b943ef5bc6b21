"""What the leader writes when its registry has come back empty: all, in order, under a fence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from roq.coordination.contract import (
    CLUSTER,
    DATA_BYTES_MAX,
    CommitResult,
    Committed,
    Conflict,
    Create,
    Fence,
    Operation,
    Reason,
)
from roq.errors import RegistryAway, StaleEpoch
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
