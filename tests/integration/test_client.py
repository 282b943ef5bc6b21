"""The client against a whole cluster: managing, watching, and the asyncio API."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from waiting import eventually

import roq
import roq.aio
from roq.client.io import at_exit
from roq.client.publish.publisher import Publisher
from roq.errors import (
    Closed,
    DeliveryError,
    HostNotFound,
    InvalidName,
    InvalidRequest,
    MessageTooLarge,
    QueueExists,
    QueueNotFound,
    QueueStopped,
    RequestError,
    Unavailable,
    WouldBlock,
)
from roq.testing.running import RunningCluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def cluster(roq_cluster: RunningCluster) -> Iterator[roq.Cluster]:
    with roq_cluster.connect() as cluster:
        yield cluster


def drain(receive: Callable[[float], object]) -> None:
    """Take what has come before the end; then it is closed."""

    def receive_all() -> None:
        while receive(0) is not None:
            continue

    with pytest.raises(Closed):
        receive_all()


# --- attributes -----------------------------------------------------------------------------------


def test_each_message_keeps_its_attributes_in_a_batch_with_others(cluster: roq.Cluster) -> None:
    cluster.create_queue("attributes", host="127.0.0.2", limits={"message_bytes": 1_000_000})
    with cluster.subscriber("attributes") as sub, cluster.publisher("attributes") as pub:
        for number in range(2_000):
            if number % 3 == 0:
                pub.publish(b"%d" % number, key=f"k{number}", tags=["third"])
            elif number % 3 == 1:
                pub.publish(b"%d" % number, properties={"n": str(number)})
            else:
                pub.publish(b"%d" % number)
        pub.publish_many([b"2000", b"2001"], key="many")
        for number in range(2_000):
            message = sub.receive(10)
            assert message is not None
            assert message.payload == b"%d" % number
            assert type(message.payload) is bytes
            expected = [
                (f"k{number}", ("third",), {}),
                (None, (), {"n": str(number)}),
                (None, (), {}),
            ]
            assert (message.key, message.tags, message.properties) == expected[number % 3]
        last = [sub.receive(10), sub.receive(10)]
        assert [each and each.key for each in last] == ["many", "many"]
        with pytest.raises(MessageTooLarge):
            pub.publish(b"x", properties={str(n): "x" * 32_768 for n in range(128)})
        with pytest.raises(InvalidName, match=r"roq\."):
            pub.publish(b"x", properties={"roq.due": "1"})
    assert pub.stats().messages == 2_002


def test_asyncio_publishes_attributes(roq_cluster: RunningCluster) -> None:
    async def play() -> list[tuple[str | None, tuple[str, ...]]]:
        async with (
            roq.aio.connect(roq_cluster.address) as cluster,
            await cluster.subscriber("attributes") as sub,
            await cluster.publisher("attributes") as pub,
        ):
            pub.publish(b"1", key="one")
            await pub.publish_many([b"2"], tags=["two"])
            got = [await sub.receive(10) for _ in range(2)]
        return [(each.key, each.tags) for each in got if each is not None]

    with roq_cluster.connect() as cluster:
        cluster.create_queue("attributes", exists_ok=True)
    assert asyncio.run(play()) == [("one", ()), (None, ("two",))]


# --- managing -------------------------------------------------------------------------------------


def test_a_queue_lives_from_its_creation_to_its_removal(cluster: roq.Cluster) -> None:
    cluster.create_queue("life", host="127.0.0.2", limits={"batch_messages": 7})
    with pytest.raises(QueueExists):
        cluster.create_queue("life")
    cluster.create_queue("life", exists_ok=True)
    assert cluster.queue_exists("life")
    assert [queue.host for queue in cluster.queues() if queue.name == "life"] == ["127.0.0.2"]
    assert cluster.describe("life").limits == roq.Limits(batch_messages=7)
    cluster.stop_queue("life")
    assert cluster.describe("life").state == "stopped"
    with pytest.raises(QueueStopped):
        cluster.subscriber("life")
    cluster.start_queue("life")
    assert cluster.describe("life").running
    cluster.remove_queue("life")
    assert not cluster.queue_exists("life")
    with pytest.raises(QueueNotFound):
        cluster.remove_queue("life")
    with pytest.raises(QueueNotFound):
        cluster.publisher("life")
    with pytest.raises(QueueNotFound):
        cluster.subscriber("life")


def test_each_publisher_and_subscriber_may_have_a_time_of_its_own_to_open(
    cluster: roq.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(*_: object, **options: object) -> None:
        asked.append(options.get("connect_timeout", options["timeout"]))
        raise Unavailable("not here")

    monkeypatch.setattr("roq.client.cluster.Publisher", refuse)
    monkeypatch.setattr("roq.client.cluster.Subscriber", refuse)
    for attempt in (
        lambda: cluster.publisher("any", connect_timeout=0.5),
        lambda: cluster.publisher("any"),
        lambda: cluster.subscriber("any", timeout=0.7),
        lambda: cluster.subscriber("any"),
    ):
        with pytest.raises(Unavailable):
            attempt()
    assert asked == [0.5, cluster._timeout, 0.7, cluster._timeout]


def test_what_is_left_open_says_so_and_shows_what_it_is(roq_cluster: RunningCluster) -> None:
    with roq_cluster.connect() as closed:
        assert repr(closed) == f"<roq.Cluster {', '.join(closed.addresses)}: open>"
    assert repr(closed).endswith(": closed>")
    left = roq_cluster.connect()
    engine = left._engine
    try:
        lefts = [left]
        del left
        with pytest.warns(ResourceWarning, match=r"unclosed <roq\.Cluster"):
            lefts.clear()
    finally:
        engine.close()


def test_exchanges_are_added_once_per_transaction(cluster: roq.Cluster) -> None:
    cluster.create_queue("wide", host="127.0.0.1")
    name = cluster.add_exchange("wide", "127.0.0.2", "t1")
    assert cluster.add_exchange("wide", "127.0.0.2", "t1") == name
    assert cluster.add_exchange("wide") != name
    assert len(cluster.exchanges("wide")) == 3
    assert sum(host.exchanges for host in cluster.hosts()) >= 3
    cluster.remove_queue("wide")


def test_a_loop_leaves_out_nothing_of_a_batch_that_was_begun_by_receive(
    cluster: roq.Cluster, queue: str
) -> None:
    with cluster.publisher(queue) as publisher, cluster.subscriber(queue, "t") as subscriber:
        for names in ((b"1",), (b"2", b"3", b"4"), (b"5",)):
            publisher.publish_many(list(names), "t")[0].wait()
        read: list[bytes] = []
        for message in subscriber:
            read.append(message.payload)
            if read == [b"1"]:
                received = subscriber.receive(30)
                assert received is not None
                read.append(received.payload)
            if read[-1] == b"5":
                break
        assert read == [b"1", b"2", b"3", b"4", b"5"]


def test_what_cannot_be_is_refused_with_its_own_error(cluster: roq.Cluster) -> None:
    with pytest.raises(InvalidName):
        cluster.create_queue("a/b")
    with pytest.raises(HostNotFound):
        cluster.create_queue("x", host="10.9.9.9")
    with pytest.raises(InvalidRequest):
        cluster.create_queue("x", limits={"batch_messages": 0})
    with pytest.raises(InvalidRequest):
        cluster.create_queue("x", durability="eternal")
    with pytest.raises(QueueNotFound):
        cluster.describe("nowhere")


def test_rules_are_stored_and_read_back(cluster: roq.Cluster) -> None:
    cluster.create_queue("ruled")
    with pytest.raises(RequestError):
        cluster.get_rules("ruled")
    rules = roq.ScalingRules(name="busy", host_cpu_percent=80, queue_publishers_per_exchange=3)
    cluster.set_rules("ruled", rules)
    assert cluster.get_rules("ruled") == rules
    cluster.remove_queue("ruled")


def test_the_broadcast_tells_of_each_change(cluster: roq.Cluster) -> None:
    with cluster.watch() as watch:
        state = watch.receive(30)
        assert state is not None
        assert {"127.0.0.1", "127.0.0.2"} <= set(state.hosts)
        cluster.create_queue("seen")
        names: set[str] = set()
        while "seen" not in names:
            state = watch.receive(30)
            assert state is not None
            names = {queue.name for queue in state.queues}
        cluster.remove_queue("seen")
    drain(watch.receive)
    assert list(watch) == []


def test_nobody_at_the_address_is_said_with_the_address() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        roq.connect("127.0.0.1:1", timeout=0.3)
    with pytest.raises(InvalidRequest):
        roq.connect("")


def test_one_good_address_is_enough(roq_cluster: RunningCluster) -> None:
    with roq.connect("127.0.0.1:1", roq_cluster.address, timeout=30) as cluster:
        assert any(roq_cluster.address in address for address in cluster.addresses)


def test_a_closed_connection_refuses_work(roq_cluster: RunningCluster) -> None:
    cluster = roq_cluster.connect()
    cluster.create_queue("left", exists_ok=True)
    publisher, subscriber = cluster.publisher("left"), cluster.subscriber("left")
    watch = cluster.watch()
    publisher.publish(b"x")
    cluster.close()
    cluster.close()
    assert publisher.stats().acked_messages == 1
    with pytest.raises(Closed):
        cluster.queues()
    drain(subscriber.receive)
    drain(watch.receive)
    with pytest.raises(Closed):
        publisher.publish(b"x")


def serve(cluster: roq.Cluster) -> None:
    service = cluster.service("s", "q")
    service.handler(roq.endpoint("s.e", request=bytes, response=bytes))(lambda data, _: data)
    service.start()


OPEN: dict[str, Callable[[roq.Cluster], object]] = {
    "publisher": lambda cluster: cluster.publisher("q"),
    "subscriber": lambda cluster: cluster.subscriber("q"),
    "consumer": lambda cluster: cluster.consumer("q", group="g"),
    "requester": lambda cluster: cluster.requester("q"),
    "service": serve,
}


@pytest.mark.parametrize("kind", OPEN)
def test_what_could_not_be_opened_is_not_left_open(
    roq_cluster: RunningCluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection was closed meanwhile, as where a task is cancelled that opens it."""
    left: dict[int, weakref.ref[at_exit.Leftover]] = {}
    monkeypatch.setattr(at_exit, "_open", left)
    cluster = roq_cluster.connect()
    cluster.close()
    with pytest.raises(roq.Closed) as raised:
        OPEN[kind](cluster)
    assert raised.tb is not None, "which keeps what was half made"
    assert [each() for each in left.values()] == []


def test_addresses_are_translated_before_they_are_used(roq_cluster: RunningCluster) -> None:
    seen: list[str] = []

    def translate(address: str) -> str:
        seen.append(address)
        return address

    with roq.connect(roq_cluster.address, translate=translate) as cluster:
        cluster.create_queue("told", exists_ok=True)
        with cluster.publisher("told") as publisher:
            publisher.publish(b"x")
        description = cluster.describe("told")
    assert {
        f"tcp://{roq_cluster.address}",
        description.monitor,
        description.exchanges[0].data,
    } <= set(seen)


# --- asyncio --------------------------------------------------------------------------------------


def test_a_message_goes_through_in_asyncio(roq_cluster: RunningCluster) -> None:
    async def main() -> None:
        async with roq.aio.connect(roq_cluster.address) as cluster:
            await cluster.create_queue("async", exists_ok=True)
            async with (
                await cluster.subscriber("async", topic="eu.") as sub,
                await cluster.publisher("async") as pub,
            ):
                receipt = pub.publish(b"one", topic="eu.be")
                assert (await receipt).ok
                assert (await receipt).ok
                pub.publish(b"other", topic="us")
                message = await sub.receive(30)
                assert message is not None
                assert (message.payload, message.topic) == (b"one", "eu.be")
                assert message.publisher == pub.id
                assert await sub.receive(0) is None
                assert (await sub.stats()).malformed == 0
                assert pub.stats().messages == 2

    asyncio.run(main())


def test_many_messages_go_through_by_message_and_by_batch(roq_cluster: RunningCluster) -> None:
    payloads = [b"%d" % number for number in range(20_000)]

    async def produce(pub: roq.aio.Publisher) -> None:
        for payload in payloads:
            try:
                pub.publish(payload)
            except WouldBlock:
                await pub.drain()
                pub.publish(payload)
        await pub.flush()
        receipts = await pub.publish_many(payloads)
        await pub.flush()
        assert all([(await receipt).ok for receipt in receipts])

    async def consume(sub: roq.aio.Subscriber) -> list[bytes]:
        found: list[bytes] = []
        async for message in sub:
            found.append(message.payload)
            if len(found) == len(payloads):
                break
        async for batch in sub.batches():
            found.extend(batch.payloads)
            if len(found) == 2 * len(payloads):
                break
        return found

    async def main() -> None:
        async with await roq.aio.connect(roq_cluster.address) as cluster:
            await cluster.create_queue(
                "many", exists_ok=True, limits={"window_batches": 4, "batch_messages": 100}
            )
            sub, pub = await cluster.subscriber("many"), await cluster.publisher("many")
            async with asyncio.TaskGroup() as tasks:
                consumer = tasks.create_task(consume(sub))
                tasks.create_task(produce(pub))
            assert consumer.result() == payloads + payloads

    asyncio.run(main())


def test_a_consumer_that_is_never_out_of_work_lets_others_run(roq_cluster: RunningCluster) -> None:
    async def main() -> None:
        async with roq.aio.connect(roq_cluster.address) as cluster:
            await cluster.create_queue("busy", exists_ok=True)
            sub, pub = await cluster.subscriber("busy"), await cluster.publisher("busy")
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            await pub.publish_many([b"x"] * 50_000)
            async with asyncio.TaskGroup() as tasks:
                counter = tasks.create_task(count())
                seen = 0
                async for _ in sub:
                    seen += 1
                    if seen == 50_000:
                        break
                counter.cancel()
            assert turns > 1

    asyncio.run(main())


def test_a_waiting_receive_can_be_cancelled_and_nothing_is_lost(
    roq_cluster: RunningCluster,
) -> None:
    async def main() -> None:
        async with roq.aio.connect(roq_cluster.address) as cluster:
            await cluster.create_queue("patient", exists_ok=True)
            sub, pub = await cluster.subscriber("patient"), await cluster.publisher("patient")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await sub.receive()
            await pub.publish(b"x")
            message = await sub.receive(30)
            assert message is not None
            assert message.payload == b"x"

    asyncio.run(main())


def test_management_and_watching_in_asyncio(roq_cluster: RunningCluster) -> None:
    async def main() -> None:
        async with roq.aio.connect(roq_cluster.address) as cluster:
            await cluster.create_queue("managed")
            assert await cluster.queue_exists("managed")
            assert "managed" in [queue.name for queue in await cluster.queues()]
            await cluster.add_exchange("managed", "127.0.0.2")
            assert len(await cluster.exchanges("managed")) == 2
            assert {"127.0.0.1", "127.0.0.2"} <= {each.host for each in await cluster.hosts()}
            rules = roq.ScalingRules(name="r")
            await cluster.set_rules("managed", rules)
            assert await cluster.get_rules("managed") == rules
            async with cluster.watch() as watch:
                async for state in watch:
                    assert {"127.0.0.1", "127.0.0.2"} <= set(state.hosts)
                    break
                while await watch.receive(0) is not None:
                    continue  # there may have been news meanwhile
            await cluster.stop_queue("managed")
            await cluster.start_queue("managed")
            assert (await cluster.describe("managed")).running
            await cluster.remove_queue("managed")
            with pytest.raises(QueueNotFound):
                await cluster.publisher("managed")

    asyncio.run(main())


def test_closing_in_asyncio_ends_whoever_waits(roq_cluster: RunningCluster) -> None:
    async def main() -> None:
        cluster = await roq.aio.connect(roq_cluster.address)
        await cluster.create_queue("ending", exists_ok=True)
        sub, pub = await cluster.subscriber("ending"), await cluster.publisher("ending")
        watch = cluster.watch()
        async with asyncio.TaskGroup() as tasks:
            messages = tasks.create_task(_all(sub))
            states = tasks.create_task(_count(watch))
            await asyncio.sleep(0)
            pub.publish(b"last")
            async with asyncio.timeout(30):
                while (await sub.stats()).counts.delivered == 0:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
            await cluster.close()
        assert messages.result() == [b"last"]
        assert states.result() >= 0
        with pytest.raises(Closed):
            pub.publish(b"x")

    asyncio.run(main())


async def _all(sub: roq.aio.Subscriber) -> list[bytes]:
    return [message.payload async for message in sub]


async def _count(watch: roq.aio.Watch) -> int:
    return len([state async for state in watch])


# --- the end --------------------------------------------------------------------------------------


def test_publishers_that_cannot_deliver_are_closed_within_the_time_of_one(
    roq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, given = Publisher.flush, list[float | None]()

    def recorded(self: Publisher, timeout: float | None = None) -> None:
        given.append(timeout)
        flush(self, timeout)

    with roq_cluster.connect() as manager:
        manager.create_queue("dead-end")
        cluster = roq_cluster.connect()
        publishers = [cluster.publisher("dead-end", timeout=2.0) for _ in range(3)]
        manager.stop_queue("dead-end")
        for publisher in publishers:
            publisher.publish(b"x")
        monkeypatch.setattr(Publisher, "flush", recorded)
        with pytest.raises(DeliveryError):
            cluster.close()
        monkeypatch.undo()
        manager.remove_queue("dead-end")
    assert given[0] is not None
    assert 0.0 < given[0] <= 2.0
    assert given[1:] == [0.0, 0.0]


def test_a_forked_child_closes_at_once_what_it_has_inherited(roq_cluster: RunningCluster) -> None:
    with roq_cluster.connect() as cluster:
        cluster.create_queue("forked")
        subscriber = cluster.subscriber("forked")
        publisher = cluster.publisher("forked")
        watch = cluster.watch()
        # As if other threads held every lock when the process was forked.
        locks = (
            cluster._lock,
            cluster._engine._lock,
            cluster._engine.callbacks._starting,
            publisher._reporter._lock,
            subscriber._reporter._lock,
            subscriber._shell._lock,
        )
        with ExitStack() as held, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks
            for lock in locks:
                held.enter_context(lock)
            child = os.fork()
            if not child:
                signal.alarm(30)
                for inherited in (subscriber, publisher, watch, cluster):
                    inherited.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        publisher.publish(b"x")
        assert subscriber.receive(30) is not None


def test_what_was_closed_is_forgotten_though_the_connection_goes_on(
    roq_cluster: RunningCluster,
) -> None:
    with roq_cluster.connect() as cluster:
        cluster.create_queue("forgotten")
        gone = []
        for _ in range(3):
            with cluster.publisher("forgotten") as publisher:
                publisher.publish(b"x")
            with cluster.subscriber("forgotten") as subscriber:
                pass
            gone += [weakref.ref(publisher), weakref.ref(subscriber)]
        del publisher, subscriber
        # The cluster itself forgets what was closed when something new is made.
        with cluster.publisher("forgotten"):

            def forgotten() -> bool:
                gc.collect()
                return all(each() is None for each in gone)

            eventually(forgotten)
