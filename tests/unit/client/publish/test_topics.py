"""The streams of one publisher."""

from __future__ import annotations

import pytest

from roq.client.publish.topics import IDLE_MAX_US, Topics
from roq.errors import InvalidName, InvalidRequest


def test_a_topic_has_one_stream() -> None:
    topics = Topics(10)
    assert topics.stream("a") is topics.stream("a")
    assert topics.stream("é").data == "é".encode()
    assert len(topics) == 2


def test_more_topics_than_the_queue_allows_are_refused_with_advice() -> None:
    topics = Topics(1)
    topics.stream("a")
    with pytest.raises(InvalidRequest, match="topics are for routing"):
        topics.stream("b")
    assert [stream.topic for stream in topics] == ["a"]


@pytest.mark.parametrize("topic", ["x" * 256, "\ud800"])
def test_what_cannot_be_a_topic_is_refused(topic: str) -> None:
    with pytest.raises(InvalidName):
        Topics(10).stream(topic)


def test_what_another_publisher_had_sent_is_so_long_ago_that_nobody_waits_for_it() -> None:
    topics = Topics(10)
    topics.resume({"own": 3}, {"taken": 5})
    assert [(s.topic, s.first, s.idle_us) for s in topics.states({}, 100.0)] == [
        (b"own", 3, 0), (b"taken", 5, IDLE_MAX_US),
    ]  # fmt: skip
    assert (topics.next_sequence("own"), topics.next_sequence("taken")) == (3, 5)


def test_a_hello_mentions_only_streams_that_have_sealed_something() -> None:
    topics = Topics(10)
    used, lowest = topics.stream("used"), topics.stream("lowest")
    topics.stream("unused")
    used.next_sequence, used.acked_at = 7, 90.0
    lowest.next_sequence = 9
    states = topics.states({lowest: 4}, 100.0)
    assert [(s.topic, s.first, s.idle_us) for s in states] == [
        (b"used", 7, 10_000_000), (b"lowest", 4, 0),
    ]  # fmt: skip
