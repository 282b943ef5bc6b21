"""What an exchange counts of abuse stays at nothing when every peer is well."""

from dataclasses import fields

from roq.exchange.counters import ABUSE, Counters


def test_all_begins_at_nothing() -> None:
    counters = Counters()
    assert {getattr(counters, each.name) for each in fields(counters)} == {0}


def test_work_is_no_abuse() -> None:
    counters = Counters(messages=5, bytes=500, duplicates=2, resets=1, acks_skipped=3)
    counters.held_batches += 1
    assert set(counters.abuse().values()) == {0}


def test_each_kind_of_abuse_is_named() -> None:
    counters = Counters()
    for count, name in enumerate(ABUSE, start=1):
        setattr(counters, name, count)
    assert counters.abuse() == {name: count for count, name in enumerate(ABUSE, start=1)}
