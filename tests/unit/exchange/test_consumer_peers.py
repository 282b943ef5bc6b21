"""What consumers are owed, put together."""

from __future__ import annotations

from roq.exchange.consumer_peers import Owed, Peer
from roq.exchange.events import Send
from roq.log.groups import ConsumerGroup
from roq.log.leases import Member
from roq.log.ring import Ring
from roq.protocol.consuming import DONE, GroupSettings


def peer(route: bytes) -> Peer[bytes]:
    log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=1 << 20, topics_max=8)
    group = ConsumerGroup("g", log, GroupSettings(), 1, 0, 0.0)
    return Peer(route, b"tag!", group, Member(route * 16, "m", 0.0), 1)


def test_a_message_goes_to_one_of_those_that_share_a_connection() -> None:
    assert peer(b"a").send(DONE, b"x") == Send(b"a", (DONE + b"tag!", b"x"))


def test_of_two_debts_the_later_serial_counts_and_all_that_was_refused() -> None:
    one, two = peer(b"a"), peer(b"b")
    owed: Owed[bytes] = Owed([], {}, {one: (1, [7])})
    answer = Send(b"b", (b"x", b"y"))
    owed.add(Owed([answer], {two: answer}, {one: (3, [9]), two: (2, [])}))
    assert (owed.answers, owed.joined) == ([answer], {two: answer})
    assert owed.done == {one: (3, [7, 9]), two: (2, [])}
    assert owed
    assert not Owed()
