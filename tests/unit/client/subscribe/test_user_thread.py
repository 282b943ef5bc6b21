"""Who reads: the user's thread, or the I/O thread in its place."""

import os
from collections.abc import Iterator

import pytest

from roq.client.subscribe.user_thread import Presence, UserThread


@pytest.fixture
def attendance() -> Iterator[UserThread]:
    attendance = UserThread()
    yield attendance
    attendance.waiting = False
    attendance.close()


def test_who_comes_is_busy_until_it_stays_away(attendance: UserThread) -> None:
    assert attendance.look() is Presence.AWAY
    attendance.come()
    assert attendance.look() is Presence.BUSY
    assert attendance.look() is Presence.AWAY
    attendance.come()
    attendance.waiting = True
    assert attendance.look() is Presence.BUSY
    assert attendance.look() is Presence.WAITING


def test_a_ring_ends_one_sleep(attendance: UserThread) -> None:
    attendance.ring()  # nobody hears it
    attendance.waiting = True
    attendance.ring()
    attendance.sleep([], 60)
    attendance.hush()
    attendance.sleep([], 0.01)


def test_a_descriptor_ends_a_sleep(attendance: UserThread) -> None:
    read, write = os.pipe()
    assert attendance.sleep([read], 0) == ()
    os.write(write, b"x")
    assert attendance.sleep([read], 60) == (read,)
    os.close(read)
    os.close(write)


def test_closing_wakes_who_waits_and_leaves_nothing_open(attendance: UserThread) -> None:
    attendance.waiting = True
    attendance.close()
    attendance.sleep([], 60)
    attendance.waiting = False
    attendance.hush()
    attendance.close()
