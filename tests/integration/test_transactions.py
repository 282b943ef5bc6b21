"""Transactions of a real cluster, whose exchange and producers are killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

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


DOOMED = """
import sys, time, roq
cluster = roq.connect(sys.argv[1])
publisher = cluster.transactional_publisher(
    "orders", "checkout", lambda transaction: None, check_after=1.0
)
transaction = publisher.prepare(b"of the dead", topic="eu", key="k")
print(transaction.id, flush=True)
time.sleep(60)
"""


def test_exchange_and_producer_are_killed_between_prepare_and_commit(
    running: RunningCluster, client: roq.Cluster
) -> None:
    asked: list[roq.OpenTransaction] = []

    def check(transaction: roq.OpenTransaction) -> roq.Decision:
        asked.append(transaction)
        return roq.Decision.COMMIT

    client.create_queue("orders", durability="flush", limits={"exchanges_max": 1})
    with (
        client.subscriber("orders") as subscriber,
        client.transactional_publisher("orders", "checkout", check) as publisher,
    ):
        mine = publisher.prepare_many([
            roq.TransactionMessage(b"one", "eu", "k1", ["t"], {"p": "v"}),
            roq.TransactionMessage(b"two", "us"),
        ])  # fmt: skip
        with pytest.raises(ZeroDivisionError), publisher.prepare(b"never", "eu"):
            raise ZeroDivisionError
        (pid,) = (each.pid for each in client.exchanges("orders"))
        assert subscriber.receive(timeout=0.3) is None
        os.kill(pid, signal.SIGKILL)
        mine.commit()
        mine.commit()
        got = {message.payload: message for message in receive(subscriber, 2)}
        assert set(got) == {b"one", b"two"}
        one = got[b"one"]
        assert (one.topic, one.key, one.tags) == ("eu", "k1", ("t",))
        assert one.properties["p"] == "v"
        assert one.properties["roq.transaction.id"] == mine.id

        child = subprocess.Popen(
            [sys.executable, "-c", DOOMED, running.address], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        name = child.stdout.readline().decode().strip()
        child.kill()
        child.wait()
        child.stdout.close()
        (message,) = receive(subscriber, 1)
        assert message.payload == b"of the dead"
        ((transaction, attempt),) = [(each, each.attempt) for each in asked]
        assert (transaction.id, attempt, transaction.group) == (name, 1, "checkout")
        assert transaction.messages == [roq.TransactionMessage(b"of the dead", "eu", "k")]

        left, dropped = publisher.prepare(b"by hand", "eu"), publisher.prepare(b"-", "eu")
        left.leave_open()
        by_hand(running.address, left.id, dropped.id)
        (message,) = receive(subscriber, 1)
        assert message.payload == b"by hand"
        with pytest.raises(roq.TransactionEnded):
            dropped.commit()
        with pytest.raises(roq.TransactionNotFound):
            client.transaction("orders", "00" * 8)
        assert client.transactions("orders").open == 0
    asyncio.run(in_a_loop(running.address))


def receive(subscriber: roq.Subscriber, count: int) -> list[roq.Message]:
    found = [subscriber.receive(timeout=20) for _ in range(count)]
    return [each for each in found if each is not None]


def by_hand(address: str, committed: str, dropped: str) -> None:
    """What an operator does."""

    def run(*words: str) -> dict[str, object]:
        told = run_roq("transaction", *words, "--json", cluster=address)
        assert told.returncode == 0, told.stderr
        document = json.loads(told.stdout)
        assert isinstance(document, dict)
        return document

    listed = run("list", "orders")
    rows = listed["transactions"]
    assert isinstance(rows, list)
    assert {each["id"] for each in rows} == {committed, dropped}
    assert run("show", "orders", committed)["messages"] == [{"topic": "eu", "payload": "by hand"}]
    run("commit", "orders", committed)
    run("rollback", "orders", dropped)
    told = run_roq("transaction", "commit", "orders", dropped, cluster=address)
    assert told.returncode == 1
    assert b"rolled back before" in told.stderr


async def in_a_loop(address: str) -> None:
    """The same names for asyncio, and a check that is a coroutine."""
    answered = threading.Event()

    async def check(transaction: roq.OpenTransaction) -> roq.Decision:
        await asyncio.sleep(0)
        answered.set()
        return roq.Decision.ROLLBACK

    async with (
        roq.aio.connect(address) as client,
        await client.subscriber("orders") as subscriber,
        await client.transactional_publisher(
            "orders", "other", check, check_after=0.5
        ) as publisher,
    ):
        async with await publisher.prepare(b"async", "eu"):
            assert (await client.transactions("orders", "other")).open == 1
        message = await subscriber.receive(timeout=20)
        assert message is not None
        assert message.payload == b"async"
        left = await publisher.prepare(b"left", "eu")
        left.leave_open()
        await asyncio.to_thread(until, answered.is_set)

        with roq.connect(address) as looking:

            def ended() -> bool:
                return looking.transaction("orders", left.id).state == "rolled_back"

            assert await asyncio.to_thread(until, ended)
        with pytest.raises(roq.TransactionEnded):
            await client.commit_transaction("orders", left.id)
