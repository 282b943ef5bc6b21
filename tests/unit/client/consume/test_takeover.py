"""A batch job in the place of a group's members, as its client asks exchanges for it."""

from __future__ import annotations

import pytest
from paper_exchanges import Answer, PaperEngine, queue, refuses

from roq.client.consume.takeover import move, read_position, take
from roq.errors import GroupNotFound, InvalidRequest, RemoteProtocolError, Unavailable
from roq.log.group_changes import GroupDelta, Mask, encode_deltas
from roq.model import LogId
from roq.protocol import documents
from roq.protocol.consuming import GROUP_ORDER, GroupOrder, GroupSettings, Moved, Ordered

SETTINGS = GroupSettings(prefixes=(b"eu.",))
DELTA = GroupDelta("g", 5, [(9, 2), (20, 1)], [Mask(7, b"\x05")], settings=SETTINGS, created_us=3)
MOVE = Moved(7, 5, 9, 3)


def answers(orders: list[GroupOrder], generation: int) -> Answer:
    def answer(frames: list[bytes]) -> list[bytes]:
        orders.append(documents.decode(frames[1], GroupOrder))
        told = Ordered(id=1, generation=generation, position=encode_deltas([DELTA]))
        return [GROUP_ORDER, documents.encode(told)]

    return answer


def test_what_is_done_of_a_log_is_known_batch_by_batch() -> None:
    position = read_position(encode_deltas([DELTA]))
    assert (position.base, position.settings, position.created_us) == (5, SETTINGS, 3)
    assert [position.done(offset) for offset in (0, 4, 9, 10, 20)] == [-1] * 5
    assert [position.done(offset) for offset in (5, 6, 8, 11, 19, 21)] == [0] * 6
    assert position.done(7) == 0b101


@pytest.mark.parametrize(
    "said", [b"", b"\xc1", encode_deltas([]), encode_deltas([GroupDelta("g", 5)])]
)
def test_what_is_no_position_is_refused(said: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_position(said)


def test_each_exchange_says_how_far_the_group_is_in_its_log() -> None:
    orders: list[GroupOrder] = []
    engine = PaperEngine(x1=answers(orders, 7), x2=answers(orders, 8), x3=refuses("no_group"))
    found = take(engine.real, queue("x1", "x2", "x3"), "g", 0.1)
    assert found.keys() == {LogId(1, 7), LogId(2, 8)}
    assert read_position(found[LogId(2, 8)]).base == 5
    assert [(each.group, each.order, each.moves) for each in orders] == [("g", "take", [])] * 2


def test_what_was_done_is_told_to_all_exchanges() -> None:
    orders: list[GroupOrder] = []
    engine = PaperEngine(x1=answers(orders, 7))
    move(engine.real, queue("x1"), "g", SETTINGS, [MOVE], 0.1)
    assert [(each.order, each.moves, each.settings) for each in orders] == [
        ("move", [MOVE], SETTINGS)
    ]


def test_why_it_cannot_be_done_is_said() -> None:
    told = answers([], 7)
    with pytest.raises(InvalidRequest, match="queue orders: no"):
        take(PaperEngine(x1=told, x2=refuses("invalid_request")).real, queue("x1", "x2"), "g", 0.1)
    again = PaperEngine(x1=told, x2=refuses("busy")).real
    with pytest.raises(Unavailable, match=r"exchange x2: no \(busy\)\. Not all .* repeat it"):
        move(again, queue("x1", "x2"), "g", SETTINGS, [MOVE], 0.1)
    with pytest.raises(Unavailable, match=r"exchange x2: it is away\. Not all .* nothing is read"):
        take(PaperEngine(x1=told).real, queue("x1", away="x2"), "g", 0.1)
    with pytest.raises(GroupNotFound, match="queue orders has no group g"):
        move(PaperEngine(x1=refuses("no_group")).real, queue("x1"), "g", SETTINGS, [MOVE], 0.1)
