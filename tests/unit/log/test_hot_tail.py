"""The newest batches of a log on disk; what every log does stands in the contract's tests."""

from __future__ import annotations

from roq.log.hot_tail import HotTail

BATCH = b"x" * 100


def tail() -> HotTail[bytes]:
    return HotTail(b"q" * 16, 1, 1, capacity_bytes=1_000, topics_max=10, topics_spare=0)


def test_what_is_not_committed_stays_however_large_it_is() -> None:
    made = tail()
    for _ in range(50):
        made.append(b"t", BATCH, len(BATCH))
    assert (made.floor, made.end, made.committed) == (0, 50, 0)
    assert made.kept > made.capacity


def test_what_is_committed_makes_room_from_then_on() -> None:
    made = tail()
    for _ in range(50):
        made.append(b"t", BATCH, len(BATCH))
    made.commit(20)
    assert (made.floor, made.committed) == (20, 20), "all that may leave, and no more"
    made.commit(50)
    assert 20 < made.floor < 50
    assert made.kept <= made.capacity


def test_a_topic_that_is_forgotten_is_its_name() -> None:
    assert tail().topic(b"t").name == b"t"
