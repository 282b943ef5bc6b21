"""What messages wait for, in words."""

from __future__ import annotations

from roq.client.subscribe.missing import oldest
from roq.client.subscribe.stream import Held, Stream
from roq.model import PublisherId
from roq.protocol.batch import Kind

X1, X2 = (1, 5), (2, 6)


def waiting(arrived: float, first: int = 7, expected: int = 4, data: bytes | None = b"") -> Stream:
    stream = Stream(PublisherId(b"p" * 16), "eu.be", expected=expected)
    stream.held.append(Held(first, first + 1, int(Kind.DATA), arrived, X1, b"eu.be", 0, data))
    return stream


def test_nothing_waits() -> None:
    assert oldest([]) is None
    assert oldest([Stream(PublisherId(b"p" * 16), "t")]) is None


def test_the_oldest_hole_is_the_one_that_has_not_moved_for_longest() -> None:
    old, moved, young = waiting(1.0), waiting(0.5), waiting(2.0)
    moved.filled_at = 3.0
    hole = oldest([moved, young, old])
    assert hole is not None
    assert hole.stream is old
    assert hole.since == 1.0


def test_what_is_missing_is_told_and_who_may_have_it() -> None:
    hole = oldest([waiting(1.0)])
    assert hole is not None
    assert hole.text({X1: 2.0, X2: 0.5}) == (
        "publisher 70707070, topic 'eu.be': 3 messages from sequence 4 are missing; "
        "not read to the end since: x2"
    )
    assert "not read" not in hole.text({X1: 2.0})


def test_what_was_put_aside_is_told_as_being_fetched() -> None:
    hole = oldest([waiting(1.0, first=4, data=None)])
    assert hole is not None
    assert "sequence 4 was put aside and is being fetched from x1" in hole.text({})
