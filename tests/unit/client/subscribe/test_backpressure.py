"""Which exchanges are left alone because they are ahead of others."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from roq.client.subscribe.backpressure import AHEAD_BYTES, STALL_SECONDS, MergeBackpressure
from roq.client.subscribe.stream import Held, Stream
from roq.model import LogId, PublisherId

A, B, C = (1, 7), (2, 7), (3, 7)
NEVER = float("-inf")
MEGABYTE = 1024 * 1024
SOON = 0.01


class Script:
    """Streams of which the sequences from 10 on are missing."""

    def __init__(self, *sources: LogId) -> None:
        self.backpressure = MergeBackpressure()
        self.streams: dict[int, Stream] = {}
        self.verified = dict.fromkeys(sources or (A, B, C), NEVER)
        self.offsets = count()

    def stream(self, number: int = 0) -> Stream:
        publisher = PublisherId(number.to_bytes(16, "little"))
        return self.streams.setdefault(number, Stream(publisher, "t", expected=10))

    def hold(
        self, first: int, source: LogId, megabytes: int, *, bound: int = 10, number: int = 0,
        stub: bool = False,
    ) -> None:  # fmt: skip
        stream = self.stream(number)
        stream.held.append(
            Held(
                first, first + 1, 0, 1.0, source, b"t", next(self.offsets),
                None if stub else bytes(megabytes * MEGABYTE), bound=bound, floored=True,
            )
        )  # fmt: skip
        stream.held.sort()
        stream.ways |= {source}

    def came(self, source: LogId, number: int = 0) -> None:
        """What the stream lacked has come from here, and now it lacks the next one."""
        stream = self.stream(number)
        stream.ways |= {source}
        stream.expected += 1

    def look(self, now: float = 2.0) -> set[LogId]:
        streams = self.streams.values()
        size = sum(held.size for stream in streams for held in stream.held)
        return set(self.backpressure.look(streams, size, self.verified, now))


def test_nobody_is_held_back_while_little_waits() -> None:
    script = Script()
    script.hold(20, A, 7)
    assert script.look() == set()


def test_who_is_far_ahead_is_held_back_until_the_others_have_caught_up() -> None:
    script = Script()
    script.hold(20, A, 3)
    script.hold(21, B, 3)
    script.hold(22, A, 3)
    assert script.look() == {A, B}
    held = script.stream().held
    del held[0]
    script.came(C)
    assert script.look(2.0 + SOON) == {A, B}
    del held[0]
    script.came(C)
    assert held[0].size < AHEAD_BYTES // 2
    assert script.look(2.0 + 2 * SOON) == set()


def test_an_exchange_that_brought_none_of_it_is_not_waited_for_once_it_was_looked_through() -> None:
    script = Script()
    script.hold(20, A, 5)
    script.came(B)
    script.hold(21, B, 5)
    assert script.look() == {A, B}
    assert script.backpressure.wanted == 1.0
    script.verified[C] = 1.5
    assert script.look(2.0 + SOON) == set()
    assert script.backpressure.wanted is None


def test_an_exchange_that_has_brought_something_is_waited_for_before_any_other() -> None:
    script = Script()
    script.hold(20, A, 9)
    assert script.look() == {A}
    assert script.backpressure.wanted == 1.0
    script.came(B)
    assert script.look(2.0 + SOON) == {A}
    assert script.backpressure.wanted is None


def test_who_brings_more_than_waits_for_it_is_ahead_of_all() -> None:
    script = Script(A, B)
    script.hold(20, A, 9)
    script.hold(20, B, 1, number=1)
    assert script.look() == {A}


def test_what_shows_a_loss_is_read_on_until_every_exchange_has_brought_it() -> None:
    script = Script(A, B)
    script.hold(20, A, 5)
    script.hold(21, B, 5)
    assert script.look() == set()
    script.hold(22, A, 1, bound=20)
    assert script.look(2.0 + SOON) == {A}
    script.hold(23, B, 1, bound=21)
    assert script.look(2.0 + 2 * SOON) == {A, B}


def test_what_is_fetched_again_is_not_covered_by_more() -> None:
    script = Script(A, B)
    script.hold(10, A, 0, stub=True)
    script.hold(11, B, 9)
    script.hold(12, A, 1)
    assert script.look() == {A, B}


def test_nobody_is_held_back_for_an_exchange_that_does_not_get_on() -> None:
    script = Script()
    script.hold(20, A, 9)
    assert script.look(2.0) == {A}
    assert script.look(2.0 + STALL_SECONDS / 2) == {A}
    assert script.look(2.0 + STALL_SECONDS) == set()
    script.hold(21, B, 9)
    assert script.look(3.0 + STALL_SECONDS) == set()
    script.came(C)
    assert script.look(4.0 + STALL_SECONDS) == {A, B}


def test_an_exchange_that_is_gone_is_not_held_back() -> None:
    script = Script()
    script.hold(20, A, 9)
    assert script.look() == {A}
    del script.verified[A]
    assert script.look(2.0 + SOON) == set()


def test_many_batches_are_not_looked_at_at_each_occasion() -> None:
    script = Script()
    script.hold(20, A, 9)
    for first in range(1_000):
        script.hold(21 + first, A, 0)
    assert script.look(2.0) == {A}
    script.stream().ways |= {B, C}
    script.hold(2_000, B, 9)
    assert script.look(2.001) == {A}
    assert script.look(2.01) == {A, B}


SOURCES = st.sampled_from([A, B, C])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(11, 40), SOURCES), min_size=1))
def test_what_holds_most_bytes_is_never_kept_from_all_that_may_bring_what_it_lacks(
    held: list[tuple[int, int, LogId]],
) -> None:
    script = Script()
    for number, first, source in held:
        script.hold(first, source, 9, number=number)
    held_back = script.look()
    assert held_back != {A, B, C}


def test_while_a_log_is_away_and_no_more_may_wait_those_that_bring_it_are_left_alone() -> None:
    script = Script()
    script.hold(20, A, 1)
    script.hold(30, C, 1, number=1)

    def look(now: float, *absent: LogId) -> set[LogId]:
        streams = script.streams.values()
        return set(script.backpressure.look(streams, 2, script.verified, now, absent=absent))

    assert look(2.0, LogId(*B)) == {A, C}
    assert look(200.0, LogId(*B)) == {A, C}, "however long it takes"
    assert look(300.0, LogId(*B), LogId(*C)) == {A}, "one that is away is read when it is back"
    assert look(301.0) == set()
