"""When a disk counts as full, and when it does no longer."""

from __future__ import annotations

from roq.exchange.disk_room import PLENTY_BYTES, PLENTY_FILES, SEALED_SECONDS, DiskRoom, Room
from roq.model import Limits


def test_a_disk_of_which_nothing_is_to_stay_free_is_not_looked_at() -> None:
    disk = DiskRoom(Limits(disk_free_bytes=0, disk_free_files=0), "/logs")
    disk.measured(Room(0, 100, 0, 100))
    assert (disk.full, disk.spare) == (False, float("inf"))


def test_it_has_room_again_when_a_quarter_more_is_free() -> None:
    disk = DiskRoom(Limits(disk_free_bytes=1_000, disk_free_files=0), "/logs of host h")
    states = []
    for free in (1_000, 999, 1_249, 1_250, 1_000):
        disk.measured(Room(free, 1_000_000, 0, 0))
        states.append(disk.full)
    assert states == [False, True, True, False, False]
    assert "/logs of host h" in disk.text


def test_of_a_small_disk_a_tenth_is_to_stay_free() -> None:
    disk = DiskRoom(Limits(), "/logs")
    disk.measured(Room(11, 100, 11, 100))
    assert (disk.full, disk.spare) == (False, 6.0)
    disk.measured(Room(9, 100, 11, 100))
    assert disk.full


def test_a_sealed_log_takes_nothing_more_and_is_tried_again_when_there_is_room() -> None:
    disk = DiskRoom(Limits(disk_free_bytes=1_000, disk_free_files=0), "/logs of host h")
    disk.measured(Room(2_000, 1_000_000, 0, 0))
    assert not disk.is_to_be_tried(100.0)
    disk.seal("cannot write its log in /logs: Input/output error", 10.0)
    disk.measured(Room(2_000, 1_000_000, 0, 0))
    assert (disk.full, disk.spare) == (True, 0.0)
    assert disk.text.startswith("sealed: cannot write its log in /logs: Input/output error")
    assert not disk.is_to_be_tried(9.9 + SEALED_SECONDS)
    assert disk.is_to_be_tried(10.0 + SEALED_SECONDS)
    disk.measured(Room(999, 1_000_000, 0, 0))
    assert not disk.is_to_be_tried(100.0)


def test_a_file_system_that_counts_no_files_has_enough_of_them() -> None:
    disk = DiskRoom(Limits(), "/logs")
    disk.measured(Room(10**12, 10**13, 0, 0))
    assert not disk.full


def test_what_is_retired_takes_nothing_until_that_is_taken_back_and_there_is_room() -> None:
    disk = DiskRoom(Limits(disk_free_bytes=1_000, disk_free_files=0), "/logs")
    disk.retire(retired=True)
    disk.measured(Room(2_000, 1_000_000, 0, 0))
    assert disk.full
    disk.measured(Room(500, 1_000_000, 0, 0))
    disk.retire(retired=False)
    assert disk.full, "it has no room by now"
    disk.measured(Room(2_000, 1_000_000, 0, 0))
    assert not disk.full
    disk.seal("no", 1.0)
    disk.retire(retired=True)
    disk.retire(retired=False)
    assert disk.full


def test_of_what_is_to_stay_free_the_exchange_may_take_half_by_itself() -> None:
    disk = DiskRoom(Limits(disk_free_bytes=1_000, disk_free_files=0), "/logs")
    disk.measured(Room(800, 1_000_000, 0, 0))
    assert disk.full
    assert [disk.takes_own(size) for size in (300, 301)] == [True, False]
    disk.retire(retired=True)
    assert not disk.takes_own(1)
    disk.retire(retired=False)
    disk.seal("it cannot be written", 1.0)
    assert not disk.takes_own(0)


def test_it_makes_no_files_beyond_half_of_those_that_are_to_be_left() -> None:
    disk = DiskRoom(Limits(disk_free_bytes=0, disk_free_files=100), "/logs")
    for free, taken in ((60, True), (40, False)):
        disk.measured(Room(1_000, 1_000, free, 10_000))
        assert (disk.full, disk.takes_own(1)) == (True, taken)


def test_there_is_plenty_of_what_nobody_takes_in_a_moment() -> None:
    limits = Limits(disk_free_bytes=1_000, disk_free_files=10)
    files = 10 + PLENTY_FILES
    assert Room(1_000 + PLENTY_BYTES, 1 << 40, files, 1 << 20).is_plenty(limits)
    assert Room(1_000 + PLENTY_BYTES, 1 << 40, 0, 0).is_plenty(limits), "it counts no files"
    assert not Room(999 + PLENTY_BYTES, 1 << 40, files, 1 << 20).is_plenty(limits)
    assert not Room(1_000 + PLENTY_BYTES, 1 << 40, files - 1, 1 << 20).is_plenty(limits)
