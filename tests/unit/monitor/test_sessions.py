"""Clients that are in touch with a monitor: who, where they publish, what they have read."""

from __future__ import annotations

import pytest

from roq.errors import InvalidRequest
from roq.model import LogId
from roq.monitor.sessions import CLIENT_ID_BYTES_MAX, CONSUMER, PUBLISHER, SUBSCRIBER, Sessions
from roq.protocol.control import Alive
from roq.timing import CLIENT_FORGOTTEN_SECONDS

A, B = "a", "b"
X1, X2 = (1, 7), (2, 7)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def alive(**fields: object) -> Alive:
    return Alive(queue_id=b"id", client=b"c", role=PUBLISHER, **fields)  # type: ignore[arg-type]


def test_a_client_is_new_once_and_is_pushed_to_where_it_was_heard_last(sessions: Sessions) -> None:
    first, new = sessions.touch(b"c", PUBLISHER, A, 1.0)
    again, newer = sessions.touch(b"c", PUBLISHER, B, 2.0)
    assert (new, newer, again is first) == (True, False, True)
    assert sessions.peers() == (B,)


def test_clients_of_one_connection_are_pushed_to_once(sessions: Sessions) -> None:
    for client in (b"c", b"d"):
        sessions.touch(client, SUBSCRIBER, A, 1.0)
    assert sessions.peers() == (A,)


@pytest.mark.parametrize(
    ("client", "role"),
    [(b"", PUBLISHER), (b"c" * (CLIENT_ID_BYTES_MAX + 1), PUBLISHER), (b"c", "reader")],
)
def test_what_no_client_says_is_refused(sessions: Sessions, client: bytes, role: str) -> None:
    with pytest.raises(InvalidRequest):
        sessions.touch(client, role, A, 1.0)
    assert len(sessions) == 0


def test_a_publisher_counts_where_it_was_placed_last(sessions: Sessions) -> None:
    session, _ = sessions.touch(b"c", PUBLISHER, A, 1.0)
    sessions.place(session, [X1], 1)
    sessions.place(session, [X2], 2)
    assert (sessions.publishers_at(X1), sessions.publishers_at(X2)) == (0, 1)
    assert sessions.placed_at(X2) == [session]
    sessions.check()


def test_a_publisher_is_believed_unless_a_higher_epoch_was_given_out(sessions: Sessions) -> None:
    session, _ = sessions.touch(b"c", PUBLISHER, A, 1.0)
    sessions.place(session, [X1], 5)
    sessions.learn(session, alive(at=[X2], epoch=4))
    assert session.exchanges == (X1,)
    sessions.learn(session, alive(at=[X2], epoch=6))
    assert (session.exchanges, session.epoch) == ((X2,), 6)


def test_who_is_silent_for_too_long_is_forgotten_with_its_place(sessions: Sessions) -> None:
    session, _ = sessions.touch(b"c", PUBLISHER, A, 1.0)
    sessions.place(session, [X1], 1)
    assert sessions.expire(1.0 + CLIENT_FORGOTTEN_SECONDS - 0.1) == []
    assert sessions.expire(1.0 + CLIENT_FORGOTTEN_SECONDS) == [b"c"]
    assert sessions.publishers_at(X1) == 0
    assert not sessions.leave(b"c")
    sessions.check()


def test_a_member_of_a_group_is_neither_publisher_nor_subscriber(sessions: Sessions) -> None:
    for client, role in ((b"c", PUBLISHER), (b"d", SUBSCRIBER), (b"e", CONSUMER)):
        sessions.touch(client, role, A, 1.0)
    assert [each.role for each in sessions.publishers()] == [PUBLISHER]
    assert [each.role for each in sessions.subscribers()] == [SUBSCRIBER]


def test_who_has_not_read_so_far_is_behind_and_who_does_not_know_the_log_unaware(
    sessions: Sessions,
) -> None:
    log = LogId(1, 7)
    for client, read in ((b"c", {log: 10}), (b"d", {log: 9}), (b"e", {})):
        sessions.touch(client, SUBSCRIBER, A, 1.0)[0].read = read
    assert sessions.behind(log, 10) == 2
    assert sessions.behind(log, 0) == 0
    assert sessions.unaware(log)
    sessions.leave(b"e")
    assert not sessions.unaware(log)


@pytest.mark.parametrize(("told", "known"), [(5.0, 5.0), (-1.0, 0.0), (1e12, 0.0)])
def test_a_latency_that_nobody_can_have_counts_as_unknown(
    sessions: Sessions, told: float, known: float
) -> None:
    session, _ = sessions.touch(b"c", SUBSCRIBER, A, 1.0)
    sessions.told(session, alive(latency_ms=told))
    assert sessions.latency_ms() == known
