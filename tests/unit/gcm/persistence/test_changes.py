"""Changes as operations on the nodes that stand in the registry."""

from roq.coordination.contract import Create, Delete, Set
from roq.gcm.events import Drop, Put
from roq.gcm.persistence.changes import DROPPED_AT_ONCE, below, operations, surplus


def test_what_stands_there_is_replaced_and_what_does_not_is_made() -> None:
    changes = (Put("/queues/a", b"1"), Put("/queues/b", b"2"))
    assert operations(changes, {"/queues/a"}) == [Set("/queues/a", b"1"), Create("/queues/b", b"2")]


def test_what_is_dropped_goes_from_the_leaves_up_and_nothing_beside_it() -> None:
    known = ["/queues/a", "/queues/a/rules", "/queues/a/x/y", "/queues/a/x", "/queues/ab"]
    assert operations([Drop("/queues/a")], known) == [
        Delete("/queues/a/x/y"),
        Delete("/queues/a/x"),
        Delete("/queues/a/rules"),
        Delete("/queues/a"),
    ]


def test_too_much_to_drop_at_once_is_dropped_before_children_first() -> None:
    foreign = [f"/queues/a/{number:05}" for number in range(DROPPED_AT_ONCE)]
    known = ["/queues/a", *foreign]
    assert surplus([Drop("/queues/a")], known) == []
    known += ["/queues/a/x", "/queues/a/x/y"]
    first = surplus([Drop("/queues/a")], known)
    assert len(first) == DROPPED_AT_ONCE
    assert first[:2] == ["/queues/a/x/y", "/queues/a/x"]
    rest = [path for path in known if path not in first]
    assert surplus([Drop("/queues/a"), Put("/queues/b", b"")], rest) == []


def test_below_a_path_is_what_has_its_name_and_nothing_that_only_begins_so() -> None:
    assert below({"/q/a", "/q/a/b", "/q/ab", "/q"}, "/q/a") == ["/q/a/b", "/q/a"]
