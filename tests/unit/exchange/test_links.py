"""Which publisher is behind which connection."""

from roq.exchange.links import LINK_SECONDS, Link, LinkTable
from roq.model import PublisherId


def link(table: LinkTable, name: bytes) -> Link:
    new = Link(PublisherId(name.ljust(16, b".")), {}, 0.0)
    new.begin(1)
    table.add(new)
    return new


def test_the_newest_connection_owns_the_link() -> None:
    table = LinkTable(10)
    one = link(table, b"one")
    table.connect(one, b"old", 0.0)
    table.connect(one, b"new", 1.0)
    assert table.routes == {b"new": one}
    table.check()


def test_a_connection_carries_one_link() -> None:
    table = LinkTable(10)
    one, two = link(table, b"one"), link(table, b"two")
    table.connect(one, b"r", 0.0)
    table.connect(two, b"r", 0.0)
    assert (one.route, two.route) == (None, b"r")
    table.check()


def test_only_who_is_away_for_long_expires() -> None:
    table = LinkTable(10)
    here, gone = link(table, b"here"), link(table, b"gone")
    table.connect(here, b"r", 0.0)
    assert table.expired(LINK_SECONDS - 1, 10) == []
    assert table.expired(LINK_SECONDS, 10) == [gone]


def test_room_is_made_by_who_was_seen_longest_ago() -> None:
    table = LinkTable(2)
    early, late = link(table, b"early"), link(table, b"late")
    late.seen = 5.0
    assert table.full()
    assert table.longest_away() is early
    table.connect(early, b"r", 9.0)
    assert table.longest_away() is late
    table.connect(late, b"s", 9.0)
    assert table.longest_away() is None
