"""Groups with an order, with real processes: by key, and after a failure; and tags."""

from __future__ import annotations

from collections import defaultdict

import pytest
from waiting import eventually

import roq
from roq.errors import NotEmpty
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def running(own_cluster: RunningCluster) -> RunningCluster:
    return own_cluster


both = pytest.mark.parametrize("queue", ["none", "flush"], indirect=True)


def publish(client: roq.Cluster, queue: str, keys: int, each: int) -> None:
    """Of each key so many messages, which count, one key after the other."""
    with client.publisher(queue) as publisher:
        for number in range(each):
            for key in range(keys):
                publisher.publish(b"%d" % number, "t", key=f"k{key}")


@both
def test_each_key_is_one_members_and_in_order_though_messages_fail_and_members_go(
    client: roq.Cluster, queue: str
) -> None:
    publish(client, queue, keys=20, each=15)
    done: dict[str, list[int]] = defaultdict(list)
    failed: set[tuple[str, int]] = set()
    options = {"mode": "keyed", "retry": 0.05, "prefetch": 200}
    consumers = [client.consumer(queue, "group", **options) for _ in range(3)]  # type: ignore[arg-type]
    handled = 0
    while sum(map(len, done.values())) < 20 * 15:
        for consumer in list(consumers):
            message = consumer.receive(0.01)
            if message is None:
                continue
            handled += 1
            key, number = message.key, int(message.payload)
            assert key is not None
            if number % 5 == 4 and (key, number) not in failed:
                failed.add((key, number))
                message.nack()
                continue
            assert number == len(done[key]), f"{key} has come to {len(done[key])}, not {number}"
            done[key].append(number)
            message.ack()
            if handled == 100:
                consumers.pop(0).close()
    assert set(done) == {f"k{key}" for key in range(20)}
    assert failed == {(f"k{key}", number) for key in range(20) for number in (4, 9, 14)}
    for consumer in consumers:
        consumer.flush()
        assert consumer.receive(0.2) is None
        consumer.close()


def test_members_of_a_keyed_group_share_its_keys(client: roq.Cluster, queue: str) -> None:
    with (
        client.consumer(queue, "group", mode="keyed") as one,
        client.consumer(queue, "group", mode="keyed") as two,
    ):
        publish(client, queue, keys=60, each=10)
        got: list[set[str | None]] = []
        for consumer in (one, two):
            mine: set[str | None] = set()
            for batch in consumer.batches(wait=1.0):
                for message in batch:
                    mine.add(message.key)
                batch.ack()
            got.append(mine)
        assert not got[0] & got[1]
        assert got[0] | got[1] == {f"k{key}" for key in range(60)}
        assert min(map(len, got)) >= 10


def test_in_an_exclusive_group_nothing_overtakes_what_has_failed(
    client: roq.Cluster, queue: str
) -> None:
    with client.publisher(queue) as publisher:
        for number in range(200):
            publisher.publish(b"%d" % number, "t")
    with client.consumer(queue, "group", mode="exclusive", retry=0.05) as consumer:
        done: list[int] = []
        while len(done) < 200:
            message = consumer.receive(5)
            assert message is not None
            number = int(message.payload)
            if number % 70 == 3 and message.attempt < 3:
                message.nack()
            else:
                done.append(number)
                message.ack()
        assert done == list(range(200))
        consumer.flush()


def test_only_messages_with_a_tag_of_the_group_come(client: roq.Cluster, queue: str) -> None:
    with client.publisher(queue) as publisher:
        for number in range(30):
            tags = [["eu"], ["us", "paid"], ["x"], None][number % 4]
            publisher.publish(b"%d" % number, "t", tags=tags)
        publisher.flush()
        for _ in range(3):
            publisher.publish_many([b"x"] * 100, "t", tags=["x"])
            publisher.flush()
    with client.consumer(queue, "group", tags=["eu", "us"]) as consumer:
        got = []
        for batch in consumer.batches(wait=1.0):
            got += list(map(int, batch.payloads))
            batch.ack()
        assert got == [number for number in range(30) if number % 4 < 2]
        consumer.flush()
        assert consumer.stats().passed_over <= 15, "what is wholly of others does not come at all"
    (group,) = client.groups(queue)
    assert (group.behind, group.out) == (0, 0)
    with pytest.raises(roq.InvalidRequest, match="has the tags 'eu', 'us'"):
        client.consumer(queue, "group", tags=["eu"])


def test_higher_priorities_are_first_also_of_what_a_member_has_got(
    client: roq.Cluster, queue: str
) -> None:
    with (
        client.publisher(queue) as publisher,
        client.consumer(queue, "group", mode="priority", prefetch=50) as consumer,
    ):
        publisher.publish_many([b"low"] * 300, "t")
        publisher.flush()
        first = consumer.receive(5)
        assert first is not None
        first.ack()
        publisher.publish(b"high", "t", priority=9)
        publisher.publish(b"middle", "t", priority=4)
        publisher.flush()
        seen: list[bytes] = []
        while len(seen) < 301:
            message = consumer.receive(5)
            assert message is not None
            assert message.priority == {b"low": 0, b"middle": 4, b"high": 9}[message.payload]
            seen.append(message.payload)
            message.ack()
            if len(seen) == 1:
                # By now it has come: one permit is kept for it.
                consumer.flush()
        assert seen.index(b"high") <= 60
        assert seen.index(b"middle") <= 100
        assert seen.count(b"low") == 299


@pytest.mark.parametrize(("queue", "mode"), [("none", "exclusive"), ("flush", "keyed")],
                         indirect=["queue"])  # fmt: skip
def test_what_was_published_before_a_move_is_handled_before_what_came_after(
    client: roq.Cluster, queue: str, mode: str
) -> None:
    """There is a backlog at each exchange; two members write down what they handle."""
    client.add_exchange(queue)
    done: dict[str, list[int]] = defaultdict(list)
    options = {"mode": mode, "prefetch": 20}
    members = [client.consumer(queue, "group", **options) for _ in range(2)]  # type: ignore[arg-type]
    with client.publisher(queue) as publisher:

        def publish(first: int) -> str:
            for number in range(first, first + 300):
                receipt = publisher.publish(b"%d" % number, "t", key=f"k{number % 7}")
            return receipt.wait(10).exchange

        place, moves = publish(0), publisher.stats().moves
        with pytest.raises((NotEmpty, roq.Unavailable)):  # its group has not done everything
            client.remove_exchange(queue, place, timeout=1.0)
        eventually(lambda: publisher.stats().moves > moves)
        assert publish(300) != place
        while sum(map(len, done.values())) < 600:
            for member in members:
                message = member.receive(0.05)
                if message is not None:
                    assert message.key is not None
                    assert message.attempt == 1
                    done[message.key].append(int(message.payload))
                    message.ack()
    for member in members:
        member.flush()
        assert member.receive(0.1) is None
        member.close()
    assert {key: sorted(numbers) for key, numbers in done.items()} == done
    assert sum(map(len, done.values())) == 600
