"""What operators see of consumer groups, and do with them, on a real cluster."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest
from commands import read_line, started, until
from commands import roq as command

import roq
import roq.aio
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

_serial = count(1)


@pytest.fixture
def client(roq_cluster: RunningCluster) -> Iterator[roq.Cluster]:
    with roq_cluster.connect() as found:
        yield found


@pytest.fixture
def queue(client: roq.Cluster) -> Iterator[str]:
    """A queue of two exchanges."""
    name = f"groups-{next(_serial)}"
    client.create_queue(name)
    client.add_exchange(name)
    yield name
    client.remove_queue(name)


def publish(client: roq.Cluster, queue: str, *texts: str) -> None:
    with client.publisher(queue, linger=0.0) as publisher:
        for text in texts:
            publisher.publish(text.encode(), "t")
            publisher.flush()


def taken(consumer: roq.Consumer, count: int) -> list[str]:
    """The next so many messages, and that there are no more; they are acknowledged."""
    texts: list[str] = []
    while len(texts) < count:
        message = consumer.receive(20)
        assert message is not None, texts
        texts.append(message.payload.decode())
        message.ack()
    consumer.flush()
    assert consumer.receive(0.3) is None
    return sorted(texts)


def test_a_group_is_shown_over_all_exchanges_with_its_members(
    client: roq.Cluster, queue: str
) -> None:
    assert client.groups(queue) == []
    with (
        client.consumer(queue, "billing", name="one", attempts=3, topic=["t", "u"]) as one,
        client.consumer(queue, "billing", name="two", topic=["t", "u"]),
        client.consumer(queue, "audit"),
    ):
        publish(client, queue, "a", "b", "c")
        assert until(lambda: one.stats().received > 0, 10)
        message = one.receive(5)
        assert message is not None
        message.ack()
        one.flush()
        audit, billing = client.groups(queue)
        assert (audit.name, audit.members, audit.acknowledged) == ("audit", 1, 0)
        assert (billing.name, billing.mode, billing.attempts) == ("billing", "shared", 3)
        assert (billing.members, billing.acknowledged, billing.topics) == (2, 1, ["t", "u"])
        assert billing.out == 2
        assert billing.oldest_seconds is not None
        assert [part.exchange for part in billing.parts] == ["x1", "x2"]
        assert abs(billing.created - time.time()) < 60
        listed = client.groups(queue, "billing")
        assert (len(listed), listed.missing) == (1, {})
        assert [each.name for each in listed[0].who] == ["one", "two"]
        assert listed[0].who[0].exchanges == ["x1", "x2"]
        with pytest.raises(roq.GroupNotFound, match="no group nobody"):
            client.groups(queue, "nobody")


def test_a_group_goes_on_from_where_it_is_told(client: roq.Cluster, queue: str) -> None:
    publish(client, queue, "a", "b")
    between = datetime.now(UTC)
    publish(client, queue, "c")
    with client.consumer(queue, "group") as consumer:
        assert taken(consumer, 3) == ["a", "b", "c"]
        assert client.seek_group(queue, "group", "earliest") == ["x1", "x2"]
        assert taken(consumer, 3) == ["a", "b", "c"]
        client.seek_group(queue, "group", between)
        assert taken(consumer, 1) == ["c"]
        client.pause_group(queue, "group")
        publish(client, queue, "d")
        client.seek_group(queue, "group", "latest")
        client.resume_group(queue, "group")
        publish(client, queue, "e")
        assert taken(consumer, 1) == ["e"]
    with pytest.raises(roq.InvalidRequest, match="time zone"):
        client.seek_group(queue, "group", datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_a_paused_group_gets_nothing_until_it_is_resumed(client: roq.Cluster, queue: str) -> None:
    with client.consumer(queue, "group") as consumer:
        client.pause_group(queue, "group")
        publish(client, queue, "a")
        assert consumer.receive(1.0) is None
        (shown,) = client.groups(queue)
        assert shown.paused
        assert any("it is paused" in reason for reason in shown.stalled)
        client.resume_group(queue, "group")
        assert taken(consumer, 1) == ["a"]
        assert not client.groups(queue)[0].paused


def test_members_of_a_deleted_group_are_told_and_do_not_make_it_again(
    client: roq.Cluster, queue: str
) -> None:
    publish(client, queue, "a")
    with client.consumer(queue, "group") as consumer:
        assert taken(consumer, 1) == ["a"]
        client.delete_group(queue, "group")
        with pytest.raises(roq.GroupNotFound, match="group group was deleted"):
            consumer.receive(10)
        assert client.groups(queue) == []
    with pytest.raises(roq.GroupNotFound):
        client.pause_group(queue, "group")
    with client.consumer(queue, "group") as consumer:
        assert taken(consumer, 1) == ["a"], "a new group begins anew"


def test_groups_of_a_stopped_queue_are_not_there(client: roq.Cluster, queue: str) -> None:
    client.stop_queue(queue)
    with pytest.raises(roq.QueueStopped):
        client.groups(queue)
    with pytest.raises(roq.QueueNotFound):
        client.groups("no-such-queue")


# --- in an event loop -----------------------------------------------------------------------------


def test_asyncio_members_share_reject_and_flush(
    roq_cluster: RunningCluster, client: roq.Cluster, queue: str
) -> None:
    async def consume(cluster: roq.aio.Cluster, seen: list[str]) -> None:
        async with await cluster.consumer(queue, "group", prefetch=4) as consumer:
            async for message in consumer:
                seen.append(message.payload.decode())
                if message.payload == b"bad":
                    message.reject("no number")
                if len(seen) > 3:
                    message.ack()
                    break
            await consumer.flush()

    async def main() -> None:
        seen: list[str] = []
        async with roq.aio.connect(roq_cluster.address) as cluster:
            async with asyncio.timeout(60):
                await consume(cluster, seen)
            assert sorted(seen) == ["bad", "m1", "m2", "m3"]
            (shown,) = await cluster.groups(queue)
            assert (shown.acknowledged, shown.out, shown.members) == (4, 0, 0)
            async with await cluster.consumer(f"{queue}.dead", "repair") as letters:
                async for batch in letters.batches(wait=20):
                    (letter,) = batch
                    assert letter.payload == b"bad"
                    assert letter.properties["roq.dead.reason"] == "no number"
                    batch.ack()
                    break
            await cluster.delete_group(queue, "group")
            assert await cluster.groups(queue) == []

    publish(client, queue, "m1", "bad", "m2", "m3")
    asyncio.run(main())
    client.remove_queue(f"{queue}.dead")


# --- on the command line --------------------------------------------------------------------------


def test_commands_consume_show_and_move_groups(
    roq_cluster: RunningCluster, client: roq.Cluster, queue: str
) -> None:
    address = roq_cluster.address
    publish(client, queue, "a", "b", "c")
    looked = command("consume", queue, "--group", "g", "--no-ack", "--count", "3", cluster=address)
    assert sorted(looked.stdout.split()) == [b"a", b"b", b"c"]
    once = command("consume", queue, "--group", "g", "--count", "3", "--json", cluster=address)
    rows = [json.loads(line) for line in once.stdout.splitlines()]
    assert sorted(row["payload"] for row in rows) == ["a", "b", "c"]
    assert {row["attempt"] for row in rows} == {1}, "to look at it was no attempt"
    (listed,) = json.loads(command("group", "list", queue, "--json", cluster=address).stdout)
    assert (listed["name"], listed["acknowledged"], listed["behind"]) == ("g", 3, 0)
    shown = command("group", "show", queue, "g", cluster=address).stdout.decode()
    assert "3 messages" in shown
    sought = command("group", "seek", queue, "g", "--to", "earliest", cluster=address)
    assert sought.stdout.decode() == f"group g of queue {queue} goes on from earliest\n"
    again = command("consume", queue, "--group", "g", "--count", "3", cluster=address)
    assert sorted(again.stdout.split()) == [b"a", b"b", b"c"]
    assert command("group", "pause", queue, "g", cluster=address).returncode == 0
    assert command("group", "resume", queue, "g", cluster=address).returncode == 0
    assert command("group", "delete", queue, "g", cluster=address).returncode == 0
    assert command("group", "show", queue, "g", cluster=address).returncode == 1


def test_a_command_that_consumes_ends_quietly_and_keeps_what_it_has_printed(
    roq_cluster: RunningCluster, client: roq.Cluster, queue: str
) -> None:
    with started("consume", queue, "--group", "g", cluster=roq_cluster.address) as process:
        assert read_line(process.stderr) == f"Consuming {queue} in group g.\n".encode()
        publish(client, queue, "a")
        assert read_line(process.stdout) == b"a\n"
        assert until(lambda: client.groups(queue)[0].acknowledged == 1, 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    publish(client, queue, "b")
    with client.consumer(queue, "g") as consumer:
        assert taken(consumer, 1) == ["b"]


def test_dead_letters_are_listed_requeued_and_purged(
    roq_cluster: RunningCluster, client: roq.Cluster, queue: str
) -> None:
    address = roq_cluster.address
    with client.publisher(queue) as publisher:
        publisher.publish(b"bad", "eu.be", key="k", tags=["red"], properties={"a": "b"})
        publisher.publish(b"worse", "eu.nl")
    with client.consumer(queue, "billing") as consumer:
        for _ in range(2):
            message = consumer.receive(20)
            assert message is not None
            message.reject(f"it is {message.payload.decode()}")
        consumer.flush()
    rows = json.loads(command("dead-letter", "list", queue, "--json", cluster=address).stdout)
    assert sorted(row["reason"] for row in rows) == ["it is bad", "it is worse"]
    done = command(
        "dead-letter", "requeue", queue, "--reason", "is bad", "--yes", "--rate", "100",
        cluster=address,
    )  # fmt: skip
    assert done.stdout.decode() == f"1 dead letter of queue {queue} requeued\n", done.stderr
    with client.consumer(queue, "billing") as consumer:
        message = consumer.receive(20)
        assert message is not None
        assert (message.payload, message.topic, message.attempt) == (b"bad", "eu.be", 1)
        assert (message.key, message.tags, message.properties) == ("k", ("red",), {"a": "b"})
        message.ack()
        consumer.flush()
    assert command("dead-letter", "purge", queue, cluster=address).returncode == 1, "nobody agrees"
    purged = command("dead-letter", "purge", queue, "--yes", "--json", cluster=address)
    assert json.loads(purged.stdout)["purged"] == 1
    assert json.loads(command("dead-letter", "list", queue, "--json", cluster=address).stdout) == []
    client.remove_queue(f"{queue}.dead")
