"""What has outlived its time in a real cluster is handed to no group, and counted."""

from __future__ import annotations

import asyncio
import time

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


def test_what_has_outlived_its_time_is_handed_to_no_group_and_is_counted(
    running: RunningCluster, client: roq.Cluster
) -> None:
    async def publish(address: str) -> None:
        async with (
            roq.aio.connect(address) as asking,
            await asking.publisher("orders") as publisher,
        ):
            await publisher.publish(b"gone", ttl=0.2)
            await publisher.publish_many([b"gone"] * 2, key="k", ttl=0.3)
            await publisher.send(b"stays", ttl=3_600)

    client.create_queue("orders", durability="flush")
    client.create_queue("short", durability="none", limits={"message_seconds": 1})
    client.consumer("orders", group="g").close()
    client.consumer("short", group="g").close()
    with client.subscriber("orders") as subscriber:
        asyncio.run(publish(running.address))
        with client.publisher("orders") as publisher, client.publisher("short") as other:
            publisher.publish(b"gone", "eu", ttl=0.2)
            publisher.publish(b"stays", "eu")
            other.publish(b"gone", ttl=3_600)
            publisher.flush(10)
            other.flush(10)
            told = run_roq(
                "pub", "orders", "--ttl", "0.2", stdin=b"gone\n", cluster=running.address
            )
            assert told.returncode == 0, told.stderr
            sent = time.time()
            seen = [subscriber.receive(timeout=10) for _ in range(7)]
            assert sorted(each.payload for each in seen if each) == ([b"gone"] * 5 + [b"stays"] * 2)
            assert until(lambda: time.time() > sent + 1.5)
            other.publish(b"stays")
            other.flush(10)
    with client.consumer("orders", group="g") as consumer:
        for _ in range(2):
            message = consumer.receive(timeout=10)
            assert message is not None
            assert message.payload == b"stays"
            message.ack()
        consumer.flush()
    with client.consumer("short", group="g") as consumer:
        message = consumer.receive(timeout=10)
        assert message is not None
        assert message.payload == b"stays"
    assert [each.stale for each in client.groups("orders")] == [5]
    assert [each.stale for each in client.groups("short")] == [1]
    told = run_roq("group", "show", "orders", "g", cluster=running.address)
    assert "5 messages" in told.stdout.decode()
