"""How one publisher publishes at several exchanges."""

from __future__ import annotations

import pytest
from publisher_script import (
    X1,
    X2,
    X3,
    Script,
    accepted,
    acked,
    link_at,
    places,
    relocate,
    told,
)

from roq.client.publish.events import AskAttach, ConnectionLost, Leave
from roq.client.publish.link import READY_SECONDS, Drop
from roq.machine import Tick
from roq.protocol import batch as wire
from roq.protocol.batch import read_floor


def floors(script: Script) -> dict[tuple[int, int], int | None]:
    return {
        (link.number, sealed.first_sequence): read_floor(
            sealed.data[wire.HEADER_BYTES :][: wire.read_header(sealed.data).ext_bytes]
        )
        for link in script.links.all
        for sealed in link.window
    }


@pytest.fixture
def striped(ready: Script) -> Script:
    ready.publish()
    relocate(ready, 2, X1, X2)
    assert told(accepted(ready, X2)).accepted
    return ready


def test_a_stripe_deals_batches_in_turn_and_tells_how_far_the_stream_is(striped: Script) -> None:
    one, two = link_at(striped, X1), link_at(striped, X2)
    for _ in range(3):
        striped.publish()
    assert floors(striped) == {(one, 0): None, (one, 1): 0, (two, 2): 0, (one, 3): 0}
    acked(striped, X1, 2)
    striped.publish()
    assert floors(striped)[two, 4] == 2
    assert striped.links.exchanges == (X1, X2)


def test_each_lane_has_its_own_link_numbers_and_epoch(striped: Script) -> None:
    striped.publish()
    striped.publish()
    headers = [
        wire.read_header(sealed.data) for link in striped.links.all for sealed in link.window
    ]
    assert [(h.epoch, h.link_number) for h in headers] == [(1, 1), (1, 2), (2, 1)]


def test_there_is_room_as_long_as_one_lane_has_room(striped: Script) -> None:
    published = 0
    while striped.links.chooser.has_room:
        striped.publish()
        published += 1
    assert published == 7, "a window of four each, and one was there before"
    acked(striped, X2, 1)
    assert striped.links.chooser.has_room


def test_a_receipt_names_the_exchange_that_accepted(striped: Script) -> None:
    striped.publish()
    striped.publish()
    acked(striped, X2, 1)
    status = striped.receipts[2].status
    assert status is not None
    assert status.exchange == "x2"


def test_a_lane_that_leaves_a_stripe_is_drained_while_the_others_go_on(striped: Script) -> None:
    striped.publish()
    striped.publish()
    assert relocate(striped, 3, X1) == []
    striped.publish()
    assert floors(striped)[link_at(striped, X1), 3] == 0
    effects = acked(striped, X2, 1)
    assert told(effects).accepted
    assert striped.links.exchanges == (X1,)
    acked(striped, X1, 3)
    striped.publish()
    assert set(floors(striped).values()) == {None}


def test_a_lane_whose_exchange_is_lost_gives_its_batches_to_the_others(striped: Script) -> None:
    for _ in range(3):
        striped.publish()
    two = link_at(striped, X2)
    striped.feed(ConnectionLost(two, "killed"))
    effects = striped.feed(ConnectionLost(two, "refused"))
    assert places(effects) == [(link_at(striped, X1), 2)]
    assert not any(isinstance(effect, AskAttach) for effect in effects)
    assert striped.links.at == [(1, 5)]
    acked(striped, X1, 4)
    assert all(receipt.done() for receipt in striped.receipts)


def test_lanes_that_fail_together_leave_the_last_one_to_wait_for_the_monitor(
    striped: Script,
) -> None:
    striped.publish()
    for exchange in (X1, X2):
        striped.feed(ConnectionLost(link_at(striped, exchange), "cut"))
    striped.now += READY_SECONDS
    effects = striped.feed(Tick())
    assert any(isinstance(effect, AskAttach) for effect in effects)
    striped.assign(X3, 9)
    assert [first for _, first in places(accepted(striped, X3))] == [0, 1]


def test_a_striped_publisher_leaves_all_its_exchanges(striped: Script) -> None:
    effects = striped.feed(Leave("closed"))
    assert [isinstance(effect, Drop) and effect.bye != () for effect in effects] == [True, True]
    assert striped.links.owed_batches == 0


def test_batches_without_a_floor_do_not_overtake_each_other_when_their_lane_is_lost(
    ready: Script,
) -> None:
    for _ in range(3):
        ready.publish()
    relocate(ready, 2, X1, X2, X3)
    accepted(ready, X2)
    accepted(ready, X3)
    one = link_at(ready, X1)
    ready.feed(ConnectionLost(one, "killed"))
    sent_again = places(ready.feed(ConnectionLost(one, "refused")))
    assert [first for _, first in sent_again] == [0, 1, 2]
    assert len({link for link, _ in sent_again}) == 1
