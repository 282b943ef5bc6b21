"""Which publisher is behind which connection."""

from roq.exchange.links import LINK_SECONDS, Link, LinkTable, Places
from roq.model import PublisherId
from roq.protocol.channel import NUMBER, read_number, read_runs


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


def test_batches_that_follow_each_other_in_the_log_are_one_run() -> None:
    places = Places(10)
    for number, offset in ((1, 7), (2, 8), (3, 11), (4, 12)):
        places.add(number, offset)
    assert places.between(0, 4) == [(1, 7, 2), (3, 11, 2)]
    assert places.between(1, 3) == [(2, 8, 1), (3, 11, 1)]
    assert places.between(4, 4) == []
    places.clear()
    assert places.between(0, 4) == []


def test_so_many_runs_are_remembered() -> None:
    places = Places(3)
    for number in range(1, 9):
        places.add(number, 10 * number)
    assert places.between(0, 8) == [(6, 60, 1), (7, 70, 1), (8, 80, 1)]


def test_an_acknowledgement_has_runs_only_for_who_wants_them() -> None:
    one = link(LinkTable(10), b"one")
    assert one.acknowledgement(3) == NUMBER.pack(3)
    one.places = Places(10)
    for number in (1, 2, 3):
        one.places.add(number, 40 + number)
    one.places.told = 1
    body = one.acknowledgement(2)
    assert (read_number(body), read_runs(body)) == (2, [(2, 42, 1)])
