"""A lock tells of another process that it lives, and by its place that it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roq.coordination import session_locks
from roq.coordination.session_locks import SESSION_MAX, SessionLocks
from roq.errors import RegistryAway


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.db.lock"


@pytest.fixture
def ours(path: Path) -> Iterator[SessionLocks]:
    locks = SessionLocks(path)
    yield locks
    locks.close()


@pytest.fixture
def theirs(path: Path) -> Iterator[SessionLocks]:
    locks = SessionLocks(path)
    yield locks
    locks.close()


@pytest.mark.parametrize("session", [1, 7, SESSION_MAX])
def test_a_session_lives_as_long_as_its_lock_is_held(
    ours: SessionLocks, theirs: SessionLocks, session: int
) -> None:
    assert ours.place(session) is None
    theirs.hold(session)
    assert ours.place(session) is not None
    assert ours.place(session + 1) is None
    theirs.close()  # as a process that ends does, however it ends
    assert ours.place(session) is None


def test_a_beat_moves_the_lock_and_one_that_stands_still_does_not(
    ours: SessionLocks, theirs: SessionLocks
) -> None:
    theirs.hold(3)
    first = ours.place(3)
    assert first is not None
    theirs.beat()
    assert ours.place(3) == first + 1
    assert ours.place(3) == first + 1


def test_who_has_no_session_does_not_beat(ours: SessionLocks, theirs: SessionLocks) -> None:
    theirs.beat()
    theirs.hold(3)
    theirs.hold(4)
    assert (ours.place(3), ours.place(4) is None) == (None, False)
    theirs.release()
    theirs.beat()
    assert ours.place(4) is None


def test_one_at_a_time_opens_the_registry(
    ours: SessionLocks, theirs: SessionLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_locks, "GUARD_SECONDS", 0.02)
    with theirs.guard(), pytest.raises(RegistryAway, match=r"`lsof .*names it"), ours.guard():
        pass
    with ours.guard():
        pass


def test_what_is_written_down_takes_the_place_of_what_was(
    ours: SessionLocks, theirs: SessionLocks
) -> None:
    theirs.record = "a long record"
    theirs.record = "short"
    assert ours.record == "short"


def test_a_file_that_was_removed_or_replaced_does_not_stand(ours: SessionLocks, path: Path) -> None:
    assert ours.stands
    path.unlink()
    assert not ours.stands
    path.touch()
    assert not ours.stands
