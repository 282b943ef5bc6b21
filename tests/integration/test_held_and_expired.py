"""In a real cluster: a member that stands still holds what it has asked more time for, and what has
outlived its time goes to the dead letters where a group wants that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from commands import roq as run_roq
from commands import until

import roq
import roq.aio
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def running(emptied: RunningCluster) -> RunningCluster:
    return emptied


MEMBER = """
import sys, roq
client = roq.connect(sys.argv[1])
with client.consumer("orders", "g", lease=2.0) as consumer:
    held, other = consumer.receive(10), consumer.receive(10)
    print(consumer.extend(held, 60).isoformat(), flush=True)
    sys.stdin.readline()
    held.ack()
    try:
        other.ack()  # it may not be known yet
        consumer.flush()
    except roq.LeaseLost:
        print(consumer.stats().lost, "lost", flush=True)
"""


async def hold(address: str) -> datetime:
    async with (
        roq.aio.connect(address) as client,
        await client.consumer("orders", "g") as consumer,
    ):
        message = await consumer.receive(10)
        assert message is not None
        until_then = await consumer.extend(message, 30)
        message.ack()
        with pytest.raises(roq.InvalidRequest):
            await consumer.extend(message, 30)
        await consumer.flush()
        return until_then


def test_a_member_holds_what_it_has_extended_and_what_is_too_old_is_buried(
    running: RunningCluster, client: roq.Cluster
) -> None:
    created = run_roq("queue", "create", "orders", "--ordered", cluster=running.address)
    assert created.returncode == 0, created.stderr
    assert client.describe("orders").limits.ordered == 1
    with client.publisher("orders") as publisher:
        for payload in (b"held", b"lost"):
            publisher.send(payload)
        command = [sys.executable, "-c", MEMBER, running.address]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as member:
            assert member.stdin is not None
            assert member.stdout is not None
            told = datetime.fromisoformat(member.stdout.readline().strip())
            assert told > datetime.now(UTC) + timedelta(seconds=30)
            os.kill(member.pid, signal.SIGSTOP)
            with client.consumer("orders", "g", retry=0.1) as heir:
                message = heir.receive(10)
                assert message is not None
                assert (message.payload, message.attempt) == (b"lost", 2)
                (group,) = client.groups("orders", "g")
                assert (group.out, group.members, group.lapsed) == (2, 2, 1)
                os.kill(member.pid, signal.SIGCONT)
                said, _ = member.communicate("\n", timeout=30)
                assert said.split() == ["1", "lost"]
                message.ack()
                heir.flush()
        assert until(lambda: client.groups("orders", "g")[0].behind == 0)
        publisher.send(b"soon")
        assert asyncio.run(hold(running.address)) > datetime.now(UTC)
        client.consumer("orders", "old", start="latest", bury_expired=True).close()
        publisher.publish(b"old", "eu", key="k", ttl=0.2)
        publisher.publish(b"fresh", "eu")
        publisher.flush(10)
        sent = time.monotonic()
        assert until(lambda: time.monotonic() > sent + 0.5)
    with client.consumer("orders", "old") as consumer:
        fresh = consumer.receive(20)
        assert fresh is not None
        assert fresh.payload == b"fresh"
        fresh.ack()
        consumer.flush()
    with client.consumer("orders.dead", "look") as letters:
        letter = letters.receive(20)
        assert letter is not None
        assert (letter.payload, letter.topic, letter.key) == (b"old", "eu", "k")
        assert letter.properties["roq.dead.reason"] == "expired"
        letter.ack()
    (group,) = client.groups("orders", "old")
    assert (group.stale, group.behind, group.bury_expired) == (1, 0, True)
