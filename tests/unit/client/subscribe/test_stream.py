"""What a batch above its turn proves."""

from __future__ import annotations

import pytest

from roq.client.subscribe.stream import LOST, PLACES_MAX, Held, hold
from roq.model import PublisherId
from roq.protocol.batch import Kind, pack, pack_empty, pack_floor, read_header

P = PublisherId(b"p" * 16)


def held(batch: bytes) -> Held:
    return hold(read_header(batch), (1, 7), b"t", 3, batch, 5.0)


def data(first: int, extensions: bytes = b"") -> bytes:
    return pack(
        [b"x", b"y"], publisher=P, epoch=1, link_number=1, first_sequence=first, created_us=5,
        extensions=extensions,
    )  # fmt: skip


def test_a_batch_of_one_exchange_proves_all_below_it() -> None:
    each = held(data(20))
    assert (each.first, each.end, each.bound, each.floored) == (20, 22, 20, False)
    assert (each.source, each.topic, each.offset, each.arrived) == ((1, 7), b"t", 3, 5.0)


def test_a_batch_of_a_striped_publisher_proves_all_below_its_floor() -> None:
    each = held(data(20, pack_floor(14)))
    assert (each.bound, each.floored) == (14, True)


def test_a_floor_above_its_own_batch_is_not_believed() -> None:
    assert held(data(20, pack_floor(99))).bound == 20


@pytest.mark.parametrize("area", [b"\x07\x01x", b"\x01"])
def test_other_or_damaged_extensions_are_no_floor(area: bytes) -> None:
    each = held(data(20, area))
    assert (each.bound, each.floored) == (20, False)


def test_a_marker_proves_all_below_it_and_a_void_nothing() -> None:
    marker = pack_empty(Kind.MARKER, publisher=P, epoch=1, link_number=1, first_sequence=20)
    void = pack_empty(Kind.VOID, publisher=P, epoch=1, link_number=1, first_sequence=20, count=2)
    assert held(marker).bound == 20
    assert held(void).bound == 0


def test_what_is_not_there_any_more_is_looked_for_where_it_was_replayed_and_else_lost() -> None:
    each, copy = held(data(20)), held(data(20))
    copy.source, copy.offset = (2, 9), 7
    each.came_again(copy)
    each.data, each.recalled = None, True
    each.not_there()
    assert (each.source, each.offset, each.data, each.recalled) == ((2, 9), 7, None, False)
    each.not_there()
    assert (each.kind, each.data) == (LOST, b"")


def test_few_replays_of_a_batch_are_remembered() -> None:
    each = held(data(20))
    for offset in range(2 * PLACES_MAX):
        copy = held(data(20))
        copy.offset = offset
        each.came_again(copy)
        each.came_again(copy)
    assert [offset for _, offset in each.elsewhere] == [0, 1, 2, 4]
