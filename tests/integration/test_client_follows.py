"""Clients follow what has moved, and count what is lost."""

from __future__ import annotations

import socket

import pytest
from fake_control import FakeControl
from msgspec import structs
from waiting import eventually
from watched import Scene

from roq.client.publish.publisher import Publisher
from roq.client.session.events import Cause, ClientState
from roq.client.subscribe.subscriber import Subscriber
from roq.errors import NotLeader
from roq.model import endpoint_of
from roq.read.message import Gap

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def receive(subscriber: Subscriber, count: int) -> list[bytes]:
    messages = [subscriber.receive(30) for _ in range(count)]
    return [message.payload for message in messages if message is not None]


def forgotten(publisher: Publisher) -> None:
    """Publish something else until what was acknowledged before is kept no more."""
    kept = publisher._shell.machine.links.replay
    before = {sealed for buffer in kept for sealed in buffer.batches}

    def forgets() -> bool:
        for buffer in kept:
            buffer.seconds = 0.5
        publisher.publish(b"something else", topic="other")
        return before.isdisjoint(sealed for buffer in kept for sealed in buffer.batches)

    eventually(forgets)


def followed(scene: Scene, *clients: Publisher | Subscriber) -> bool:
    """Whether all of these have said to the present monitor that they are there."""
    heard = {each.client for each in scene.control.alive}
    return {client.id for client in clients} <= heard


def test_everybody_follows_a_monitor_that_moves_again_and_again(scene: Scene) -> None:
    publisher, subscriber = scene.publisher(), scene.subscriber()
    for number in range(3):
        scene.control.move_monitor()
        publisher.publish(b"%d" % number)
        assert receive(subscriber, 1) == [b"%d" % number]
        eventually(lambda: followed(scene, publisher, subscriber))
    states = {change.state for change in scene.told.told}
    assert states <= {ClientState.CONNECTING, ClientState.CONNECTED}


def test_a_dead_manager_a_follower_and_a_dead_leader_lead_to_the_living_one(scene: Scene) -> None:
    nobody = socket.socket()  # has a port, and does not listen
    scene.finally_(nobody.close)
    nobody.bind(("127.0.0.1", 0))
    dead = endpoint_of("127.0.0.1", nobody.getsockname()[1])
    follower = FakeControl()
    scene.finally_(follower.close)
    scene.managers = [dead, follower.address]
    follower.refusal = NotLeader("this manager follows", dead)

    def lead() -> None:
        follower.refusal = NotLeader("this manager follows", scene.control.address)

    follower.later(0.5, lead)
    publisher = scene.publisher()
    assert publisher.publish(b"x").wait(30).ok
    follower.close()
    scene.control.move_monitor()
    eventually(lambda: followed(scene, publisher))


def test_clients_follow_a_log_to_another_process_and_go_on_where_they_were(scene: Scene) -> None:
    there = scene.info(1)
    before, after = ((scene.by_way(there.data), scene.by_way(there.live)) for _ in range(2))
    scene.control.exchanges = [
        structs.replace(there, data=before[0].address, live=before[1].address)
    ]
    gaps: list[Gap] = []
    publisher, subscriber = scene.publisher(), scene.subscriber(on_gap=gaps.append)
    publisher.publish(b"before")
    assert receive(subscriber, 1) == [b"before"]
    for relay in before:
        relay.pause()
    publisher.publish(b"meanwhile")
    scene.control.exchanges = [
        structs.replace(there, epoch=there.epoch + 1, data=after[0].address, live=after[1].address)
    ]
    for client in (publisher, subscriber):
        scene.control.tell_topology(client.id)
    assert receive(subscriber, 1) == [b"meanwhile"]
    for relay in before:
        relay.close()
    receipt = publisher.publish(b"after")
    assert receive(subscriber, 1) == [b"after"]
    assert receipt.wait(30).ok
    stats = publisher.stats()
    assert (stats.moves, stats.replayed_batches) == (1, 0)  # it has stayed with its log
    assert (gaps, subscriber.receive(0.0)) == ([], None)


def test_what_died_with_its_exchange_is_counted_and_told(scene: Scene) -> None:
    gaps: list[Gap] = []
    publisher = scene.publisher(on_state=None)
    data, live = scene.relay(scene.info(1).data), scene.relay(scene.info(1).live)
    subscriber = scene.subscriber(topic="t", on_gap=gaps.append)
    publisher.publish(b"read", topic="t")
    assert receive(subscriber, 1) == [b"read"]
    data.cut()
    live.cut()
    for number in range(5):
        publisher.publish(b"unread %d" % number, topic="t")
    publisher.flush(30)
    forgotten(publisher)
    scene.serve(2)
    scene.exchanges[0].kill()
    publisher.publish(b"after", topic="t")
    scene.control.tell_topology(subscriber.id)
    assert receive(subscriber, 1) == [b"after"]
    assert sum(gap.messages for gap in gaps) == 5
    reason = scene.told.wait(ClientState.LOST_DATA, Cause.LOST)
    assert "5 messages from sequence 1 are lost" in reason


def test_what_the_publisher_still_has_dies_with_no_exchange(scene: Scene) -> None:
    publisher, subscriber = scene.publisher(), scene.subscriber()
    for number in range(50):
        publisher.publish(b"%d" % number, topic="t")
    publisher.flush(30)
    for old, new in ((1, 2), (2, 3)):
        if new == 3:
            scene.add(3)
        scene.serve(new)
        scene.exchanges[old - 1].kill()
        publisher.publish(b"after %d" % old, topic="t")
        publisher.flush(30)
        scene.control.tell_topology(subscriber.id)
    wanted = [b"%d" % number for number in range(50)] + [b"after 1", b"after 2"]
    assert receive(subscriber, 52) == wanted
    assert subscriber.stats().counts.lost == 0
