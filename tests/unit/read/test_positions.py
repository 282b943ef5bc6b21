"""What a reader tells its exchange of its reading."""

from __future__ import annotations

from math import inf

import pytest

from roq.protocol import documents
from roq.protocol.channel import POSITION, Position, Reading
from roq.protocol.entry import NONE
from roq.read.offset_chain import OffsetChain
from roq.read.positions import LATE_SECONDS, POSITION_SECONDS, SOON_SECONDS, Positions
from roq.timing import POSITION_ALIVE_SECONDS


class Script:
    """A reader that has begun at offset 0, and the exchange that it reports to."""

    def __init__(self) -> None:
        self.chain = OffsetChain()
        self.chain.advance(0)
        self.positions = Positions(self.chain, b"q" * 16, 9, b"r" * 15, [b""])
        self.seen = 0
        self.now = 10.0
        self.asked: Position | None = None

    def arrive(self, topic: bytes, offset: int, previous: int = NONE) -> None:
        self.chain.arrived(topic, offset, previous, b"batch")
        self.seen = offset + 1

    def report(self, lowest: int | None = None) -> Position:
        _, document = self.positions.report(self.seen, self.now, lowest)
        self.asked = documents.decode(document, Position)
        return self.asked

    def answer(
        self, *heads: tuple[bytes, int], more: int = 0, floor: int = 0, near: bool = True
    ) -> None:
        assert self.asked is not None
        self.positions.answered(
            Reading(
                id=self.asked.id, generation=9, floor=floor, until=self.asked.until,
                heads=list(heads), next=more, near=near,
            )
        )  # fmt: skip

    def due(self, *, rests: bool = False) -> float:
        return self.positions.deadline(self.seen, rests=rests) - self.now


def test_what_has_come_is_read_when_nothing_below_it_is_missing() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.arrive(b"b", 1)
    asked = script.report()
    assert (asked.read, asked.since, asked.until) == (0, 0, 2)
    script.answer((b"a", 0), (b"b", 1))
    assert script.positions.read == script.chain.verified == 2
    assert script.report().read == 2


def test_a_quiet_topic_whose_last_batch_was_dropped_holds_the_position() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.arrive(b"a", 2, 0)  # 1 was of topic b
    script.report()
    script.answer((b"b", 1), (b"a", 2))
    assert script.positions.read == script.chain.verified == 0
    assert script.chain.wants(9, script.now) == [(b"b", 0, 2)], "and is fetched"
    script.chain.fetched(b"b", 1, NONE, b"batch")
    script.chain.answered([(b"b", 0, 2)], 2, 0, True, script.now)
    assert script.positions.read == 3


def test_the_position_follows_what_is_being_fetched() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.arrive(b"a", 9, 8)
    script.report()
    script.answer((b"a", 9))
    assert script.positions.read == 1
    script.chain.wants(9, script.now)
    script.chain.fetched(b"a", 4, 0, b"batch")
    assert script.positions.read == 5


def test_a_reader_that_has_reported_says_when_it_leaves() -> None:
    script = Script()
    assert script.positions.farewell() == []
    script.arrive(b"a", 0)
    script.report()
    kind, document = script.positions.farewell()
    leaves = documents.decode(document, Position)
    assert (kind, leaves.leaves, leaves.reader) == (POSITION, True, script.positions._reader)
    script.positions.disconnected()
    assert script.positions.farewell() != [], "the exchange knows readers, not connections"


def test_heads_come_in_pages() -> None:
    script = Script()
    for offset, topic in enumerate((b"a", b"b", b"c")):
        script.arrive(topic, offset)
    script.report()
    script.answer((b"a", 0), (b"b", 1), more=2)
    assert script.positions.read == 0
    script.seen = 7
    asked = script.report()
    assert (asked.since, asked.until) == (2, 3)
    script.answer((b"c", 2))
    assert script.positions.read == 3


def test_heads_say_nothing_of_what_has_left_the_log() -> None:
    script = Script()
    script.arrive(b"a", 5)
    script.report()
    script.answer((b"a", 5), floor=4)
    assert script.positions.read == 0


def test_what_was_put_aside_is_not_read() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.arrive(b"a", 1, 0)
    script.report()
    script.answer((b"a", 1))
    assert script.report(lowest=1).read == 1


def test_it_reports_when_it_reads_and_when_it_cannot_and_rests_otherwise() -> None:
    script = Script()
    assert script.due() <= 0
    script.report()
    assert script.due() == LATE_SECONDS
    script.answer()
    assert script.due() == POSITION_ALIVE_SECONDS
    assert script.due(rests=True) == inf
    script.arrive(b"a", 0)
    assert script.due(rests=True) == POSITION_SECONDS
    script.positions.ended = True
    assert script.due(rests=True) < POSITION_SECONDS


def test_after_a_disconnection_it_reports_at_once() -> None:
    script = Script()
    script.report()
    script.positions.disconnected()
    assert script.due() <= 0


def test_while_nobody_waits_an_answer_is_no_reason_to_report_again_at_once() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.report()
    script.answer((b"a", 0), near=False)
    script.arrive(b"a", 1, 0)
    assert script.due() == pytest.approx(POSITION_SECONDS)
    script.positions.ended = True
    assert script.due() == pytest.approx(SOON_SECONDS), (
        "the end was told, and there is something behind"
    )


def test_while_publishers_wait_each_step_is_told_at_once() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.report()
    script.answer((b"a", 0), near=True)
    assert script.due() == pytest.approx(SOON_SECONDS)


def test_on_a_new_connection_it_is_not_known_whether_publishers_wait() -> None:
    script = Script()
    script.arrive(b"a", 0)
    script.report()
    script.answer((b"a", 0), near=False)
    script.positions.disconnected()
    script.report()
    script.positions.refused()
    script.arrive(b"a", 1, 0)
    script.chain.advance(2)
    assert script.due() == pytest.approx(SOON_SECONDS)
