"""Delayed messages of a real cluster: each comes, in its time, whatever is killed.

Each comes once where its publisher has nowhere else to go; of several exchanges those come twice
that were not acknowledged when theirs was killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from commands import roq as run_roq
from commands import until

import roq
import roq.aio
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def running(emptied: RunningCluster) -> RunningCluster:
    return emptied


COUNT = 600


def pid_of(client: roq.Cluster, queue: str) -> int:
    (pid,) = (each.pid for each in client.exchanges(queue))
    return pid


def waiting(client: roq.Cluster) -> int | None:
    """How many wait; None: the exchange that was asked is not there any more."""
    try:
        return client.delayed_messages("orders", timeout=2.0).pending
    except roq.Unavailable:
        return None


@pytest.mark.parametrize("durability", ["flush", "none"])
def test_messages_come_in_their_time_and_may_be_cancelled(
    running: RunningCluster, client: roq.Cluster, durability: str
) -> None:
    client.create_queue("orders", durability=durability)
    with client.subscriber("orders") as subscriber, client.publisher("orders") as publisher:
        late = publisher.publish_later(b"late", "eu", key="k", delay=timedelta(seconds=0.8))
        far = publisher.publish_later(b"far", delay=datetime.now(UTC) + timedelta(days=3650))
        never = publisher.publish_later(b"never", delay=1.5)
        publisher.publish(b"soon", "eu", delay=0.2).result(10)
        publisher.publish(b"now", "eu")
        publisher.flush(10)
        listed = client.delayed_messages("orders")
        assert {each.id for each in listed.messages} >= {late.id, far.id, never.id}
        assert client.cancel_message("orders", never.id)
        assert not client.cancel_message("orders", never.id)
        got = [subscriber.receive(timeout=10) for _ in range(3)]
        assert [each.payload for each in got if each] == [b"now", b"soon", b"late"]
        last = got[2]
        assert last is not None
        assert time.time() >= late.due.timestamp()
        assert (last.topic, last.key) == ("eu", "k")
        assert last.properties["roq.delayed.id"] == late.id
        assert last.properties["roq.delayed.publisher"] == publisher.id.hex()
        told = run_roq("message", "list", "orders", cluster=running.address)
        assert far.id in told.stdout.decode()
        told = run_roq("message", "cancel", "orders", far.id, cluster=running.address)
        assert told.returncode == 0
        assert client.delayed_messages("orders").pending == 0


def test_a_group_gets_them_when_they_are_due(running: RunningCluster, client: roq.Cluster) -> None:
    client.create_queue("orders")
    with client.consumer("orders", group="g") as consumer, client.publisher("orders") as sender:
        sender.publish_later(b"late", "eu", delay=0.5)
        sender.publish(b"now", "eu")
        got = []
        for message in consumer:
            got.append(message.payload)
            if len(got) == 2:
                break
        assert got == [b"now", b"late"]


def test_asyncio_programs_and_the_command_line_delay_as_well(
    running: RunningCluster, client: roq.Cluster
) -> None:
    async def publish(address: str) -> None:
        async with (
            roq.aio.connect(address) as asking,
            await asking.publisher("orders") as publisher,
        ):
            await publisher.publish(b"one", delay=0.3)
            sent = publisher.publish_later(b"two", delay=3_600)
            await publisher.flush()
            assert await asking.cancel_message("orders", sent.id)
            assert (await asking.delayed_messages("orders")).pending <= 1

    client.create_queue("orders", durability="none")
    with client.subscriber("orders") as subscriber:
        asyncio.run(publish(running.address))
        told = run_roq("pub", "orders", "--delay", "0.5", stdin=b"three\n", cluster=running.address)
        assert told.returncode == 0, told.stderr
        assert b"Published 1 message " in told.stderr
        refused = run_roq(
            "pub", "orders", "--delay", "1e9", stdin=b"four\n", cluster=running.address
        )
        assert refused.returncode == 1
        assert b"Published" not in refused.stderr
        empty = run_roq("pub", "orders", stdin=b"", cluster=running.address)
        assert b"Published 0 messages" in empty.stderr
        got = [subscriber.receive(timeout=10) for _ in range(2)]
        assert {each.payload for each in got if each} == {b"one", b"three"}


def test_kills_of_the_only_exchange_lose_no_delayed_message_and_double_none(
    running: RunningCluster, client: roq.Cluster
) -> None:
    client.create_queue("orders", durability="flush")
    with client.subscriber("orders") as subscriber, client.publisher("orders") as publisher:
        for number in range(COUNT):
            publisher.publish_later(b"%d" % number, delay=1.0 + 6.0 * number / COUNT)
        publisher.flush(30)
        got: list[bytes] = []
        for _ in range(4):
            while len(got) < COUNT:
                message = subscriber.receive(timeout=1.0)
                if message is None:
                    break
                got.append(message.payload)
                if len(got) % (COUNT // 5) == 0:
                    break
            before = pid_of(client, "orders")
            assert before > 0
            os.kill(before, signal.SIGKILL)
            assert until(lambda before=before: pid_of(client, "orders") not in {0, before})
        while len(got) < COUNT:
            message = subscriber.receive(timeout=30)
            assert message is not None, len(got)
            got.append(message.payload)
        assert subscriber.receive(timeout=0.5) is None
        assert sorted(got, key=int) == [b"%d" % number for number in range(COUNT)]
        assert until(lambda: waiting(client) == 0)


def test_with_two_exchanges_kills_lose_none_and_double_what_was_not_acknowledged_alone(
    running: RunningCluster, client: roq.Cluster
) -> None:
    client.create_queue("orders", durability="flush")
    client.add_exchange("orders")
    with client.subscriber("orders") as subscriber, client.publisher("orders") as publisher:
        due = datetime.now(UTC) + timedelta(seconds=15)
        sent: dict[str, roq.Receipt] = {}
        in_doubt: set[str] = set()
        for _ in range(4):
            for number in range(500):
                later = publisher.publish_later(b"%d" % number, delay=due)
                sent[later.id] = later.receipt
            publisher.flush(30)
            for number in range(200):
                later = publisher.publish_later(b"%d" % number, delay=due)
                sent[later.id] = later.receipt
            status = next(
                each.status for each in reversed(sent.values()) if each.status is not None
            )
            pids = {each.name: each.pid for each in client.exchanges("orders")}
            in_doubt |= {each for each, receipt in sent.items() if not receipt.done()}
            os.kill(pids[status.exchange], signal.SIGKILL)
            before = pids[status.exchange]
            assert until(
                lambda name=status.exchange, before=before: (
                    {each.name: each.pid for each in client.exchanges("orders")}[name]
                    not in {0, before}
                )
            )
        publisher.flush(60)
        assert all(each.done() for each in sent.values())
        got: Counter[str] = Counter()
        while got.keys() < sent.keys():
            message = subscriber.receive(timeout=60)
            assert message is not None, (len(got), len(sent))
            got[message.properties["roq.delayed.id"]] += 1
        while (message := subscriber.receive(timeout=1.0)) is not None:
            got[message.properties["roq.delayed.id"]] += 1
        assert got.keys() == sent.keys(), "nothing is missing"
        twice = {each for each, times in got.items() if times > 1}
        assert twice <= in_doubt
        assert max(got.values()) <= 1 + 4
