"""Which streams a subscriber remembers, and what it knows of the others."""

from __future__ import annotations

from roq.client.subscribe.stream import BOUNDS, Held, Stream
from roq.client.subscribe.streams import LOOKS_MAX, Sieve, Streams
from roq.model import PublisherId


class Script:
    def __init__(self, most: int, positions: int = 100) -> None:
        self.streams = Streams(most, positions)
        self.used = 0

    def use(self, number: int, expected: int = 1) -> Stream:
        publisher = PublisherId(number.to_bytes(16))
        stream = self.streams.known.get(publisher)
        if stream is None:
            stream = self.streams.meet(publisher, publisher, "t", self.used)
        self.used += 1
        stream.used, stream.expected, stream.begun = self.used, expected, True
        return stream

    def meet(self, number: int) -> Stream:
        publisher = PublisherId(number.to_bytes(16))
        return self.streams.meet(publisher, publisher, "t", self.used)

    def known(self) -> set[int]:
        return {int.from_bytes(key) for key in self.streams.known}


def test_the_least_recently_used_one_is_forgotten() -> None:
    script = Script(3)
    for number in (1, 2, 3, 1, 4):
        script.use(number)
    assert script.known() == {1, 3, 4}
    script.use(3)
    script.use(5)
    assert script.known() == {3, 4, 5}
    assert script.streams.forgotten == 2


def test_a_forgotten_one_goes_on_at_its_position() -> None:
    script = Script(1)
    script.use(1, expected=7)
    script.use(2)
    stream = script.meet(1)
    assert (stream.expected, stream.begun, stream.before) == (7, True, 0)


def test_one_that_was_only_told_of_keeps_what_is_before_the_start() -> None:
    script = Script(1)
    script.meet(1).before = 9
    script.use(2)
    stream = script.meet(1)
    assert (stream.expected, stream.begun, stream.before) == (0, False, 9)


def test_of_those_that_were_forgotten_long_ago_no_loss_is_told() -> None:
    script = Script(1, positions=2)
    for number in range(1, 6):
        script.use(number, expected=5)
    assert script.meet(1).before > 1 << 62
    assert script.meet(99).before == 0


def test_what_waits_for_its_turn_is_not_forgotten() -> None:
    script = Script(2)
    held = Held(5, 6, min(BOUNDS), 0.0, (1, 1), b"t", 0, b"")
    for number in range(1, 3 * LOOKS_MAX):
        script.use(number).held.append(held)
    assert not script.streams.forgotten
    for number in (1, 2, 3):
        script.streams.known[PublisherId(number.to_bytes(16))].held.clear()
    while script.streams.forgotten < 3:
        script.use(1_000)
        script.meet(2_000 + script.streams.forgotten)
    assert not script.known() & {2, 3}


def test_a_sieve_knows_what_was_added_and_little_else() -> None:
    sieve = Sieve()
    added = [number.to_bytes(16) for number in range(10_000)]
    for key in added:
        sieve.add(key)
    assert all(key in sieve for key in added)
    assert sum(number.to_bytes(16) in sieve for number in range(10_000, 20_000)) < 10
