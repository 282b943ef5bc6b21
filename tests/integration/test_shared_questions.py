"""Subscribers of one client share the connection by which they ask, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from queue_processes import QueueProcesses
from waiting import eventually
from watched import Scene

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.session.events import Cause, ClientState
from roq.client.subscribe.shell import ReadBy
from roq.client.subscribe.subscriber import Subscriber
from roq.model import Limits
from roq.testing.faults import Relay

pytestmark = pytest.mark.integration

RING_BYTES = 64 * 1024 * 1024
BUFFER_BYTES = 256 * 1024
SIZES = (500, 20_000, 300_000)
"""Of payloads: joined with others, a message behind its entry, only announced on the fan-out."""
ROUNDS = 60
OF_EACH = (200, 4, 1)
BUSY_SECONDS = 6.0


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueProcesses]:
    limits = Limits(ring_bytes=RING_BYTES)
    with QueueProcesses(tmp_path, exchanges=1, limits=limits) as queue:
        yield queue


def backlog() -> list[tuple[str, bytes]]:
    """Topic and payload of what is published, in order."""
    return [
        (f"t{kind}", b"%d-%d-%d " % (turn, kind, number) + bytes(size))
        for turn in range(ROUNDS)
        for kind, (size, count) in enumerate(zip(SIZES, OF_EACH, strict=True))
        for number in range(count)
    ]


def by_topic(messages: list[tuple[str, bytes]]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for topic, payload in messages:
        found.setdefault(topic, []).append(payload.partition(b" ")[0])
    return found


def take(subscriber: Subscriber, count: int) -> list[tuple[str, bytes]]:
    got = []
    for _ in range(count):
        message = subscriber.receive(30)
        assert message is not None, len(got)
        got.append((message.topic, message.payload))
    return got


def test_one_that_is_paused_with_a_backlog_keeps_nothing_from_another(
    queue: QueueProcesses,
) -> None:
    engine = Engine()
    engine.start()
    managers, name = [queue.control.address], queue.control.queue
    everything = backlog()

    def subscriber(start: str = "earliest") -> Subscriber:
        return Subscriber(engine, managers, name, start=start, buffer_bytes=BUFFER_BYTES)

    with (
        closing(engine),
        Publisher(engine, managers, name, publisher_id=os.urandom(16)) as publisher,
    ):
        for topic, payload in everything:
            publisher.publish(payload, topic=topic)
        publisher.flush(60)
        with subscriber() as paused:
            eventually(lambda: paused._shell._reads is ReadBy.NOBODY)
            with subscriber() as eager, subscriber("latest") as late:
                assert by_topic(take(eager, len(everything))) == by_topic(everything)
                publisher.publish(b"new ", topic="new")
                assert take(late, 1) == take(eager, 1) == [("new", b"new ")]
                assert len(engine.exchanges._by_address) == 1
                (shared,) = engine.exchanges._by_address.values()
                assert [len(each.users) for each in shared] == [3]
            assert paused._shell._reads is ReadBy.NOBODY
            got = take(paused, len(everything) + 1)
            assert by_topic(got) == by_topic([*everything, ("new", b"new ")])
            assert paused.stats().counts.lost == paused.stats().gaps == 0
        assert not engine.exchanges._by_address


def detour(scene: Scene) -> Relay:
    """One between subscribers and the fan-out."""
    live = scene.info(1).live
    relay = Relay(live)
    scene.detours[live] = relay.address
    scene.finally_(relay.close)
    return relay


def test_a_fan_out_that_ends_while_nobody_watches_it_comes_back(scene: Scene) -> None:
    relay = detour(scene)
    publisher = scene.publisher(on_state=None)
    subscriber = scene.subscriber()
    for number in range(3):
        (before,) = relay._connections
        relay.cut_now()
        publisher.publish(b"%d meanwhile" % number)
        assert take(subscriber, 1) == [("", b"%d meanwhile" % number)]
        eventually(lambda old=before: relay._connections not in ([], [old]))  # type: ignore[misc]
        publisher.publish(b"%d afterwards" % number)
        assert take(subscriber, 1) == [("", b"%d afterwards" % number)]
    assert subscriber.stats().counts.lost == subscriber.stats().gaps == 0


def test_a_fan_out_through_which_nothing_comes_any_more_is_replaced(scene: Scene) -> None:
    """As with a cut link: nobody is told that the connection has ended, for it has not."""
    relay = detour(scene)
    publisher = scene.publisher(on_state=None)
    subscriber = scene.subscriber()
    relay.pause()
    publisher.publish(b"meanwhile")
    assert take(subscriber, 1) == [("", b"meanwhile")]
    scene.told.wait(ClientState.CONNECTED, Cause.SILENT_EXCHANGE)
    eventually(lambda: len(relay._connections) > 1)
    relay.resume()
    scene.told.wait(ClientState.CONNECTED)
    publisher.publish(b"afterwards")
    assert take(subscriber, 1) == [("", b"afterwards")]


@pytest.mark.long
def test_an_exchange_that_is_busy_is_not_called_by_everybody(scene: Scene) -> None:
    relay = detour(scene)
    subscribers = [scene.subscriber() for _ in range(5)]
    before = list(relay._connections)
    assert len(before) == len(subscribers)
    released = scene.exchanges[0].freeze()

    def silent(trouble: str) -> float:
        found = re.search(r"has not been heard for (\d+\.\d) s", trouble)
        return float(found[1]) if found is not None else 0.0

    eventually(lambda: all(silent(each.trouble) > BUSY_SECONDS for each in subscribers))
    assert relay._connections == before
    released.set()
    eventually(lambda: not any(each.trouble for each in subscribers))
