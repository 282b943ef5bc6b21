"""A process that was forked with a client open may not use what is its parent's, and is told."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import roq
from roq.client.publish import receipt as receipts
from roq.client.publish.receipt import REGISTERING

ENDPOINT = roq.Endpoint("work.do", bytes, bytes)
CALL_SECONDS = 20
Calls = dict[str, Callable[[], object]]


@contextmanager
def held_elsewhere(*locks: Any) -> Iterator[None]:
    """Another thread has these, as it may when the process is forked."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(30)
        yield
    finally:
        done.set()
        thread.join()


def wrong_in_child(calls: Calls) -> list[str]:
    """What a forked child is not refused, or not at once."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os.write(write, "\n".join(_tried(calls)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        found = told.read().splitlines()
    os.waitpid(child, 0)
    return found


def _tried(calls: Calls) -> Iterator[str]:
    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, hangs)
    for name, call in calls.items():
        signal.alarm(CALL_SECONDS)
        try:
            got = call()
        except roq.Closed as error:
            if "forked" not in str(error):
                yield f"{name}: {error}"
        except BaseException as error:  # noqa: BLE001 - told
            yield f"{name}: {type(error).__name__} {error!s:.80}"
        else:
            yield f"{name}: gives {got!r:.60}"
    signal.alarm(0)


def test_every_call_in_a_forked_child_is_refused_and_none_hangs(
    cluster: roq.Cluster, queue: str
) -> None:
    with ExitStack() as stack:
        publisher = stack.enter_context(cluster.publisher(queue))
        subscriber = stack.enter_context(cluster.subscriber(queue, "held"))
        consumer = stack.enter_context(cluster.consumer(queue, "all", topic="held"))
        requester = stack.enter_context(cluster.requester(queue))
        producer = stack.enter_context(
            cluster.transactional_publisher(queue, "some", lambda _: None)
        )
        service = cluster.service("work", queue)
        service.handler(ENDPOINT)(lambda value, _: value)
        stack.enter_context(service)
        watch = cluster.watch()
        receipt = publisher.publish_many([b"one", b"two", b"three"], "held")[0]
        receipt.wait()
        message, read = consumer.receive(30), subscriber.receive(30)
        assert message is not None
        assert read is not None
        done = requester.request(ENDPOINT, b"v")
        assert done.result(30) == b"v"
        transaction = producer.prepare(b"half")
        service.flag(available=True)
        open_receipt = receipts.Receipt(publisher)  # whose fate is not known yet
        shell, collector = consumer._shell, requester._collector
        calls: Calls = {
            "publish": lambda: publisher.publish(b"x"),
            "publish_many": lambda: publisher.publish_many([b"x"]),
            "publish_later": lambda: publisher.publish_later(b"x", delay=1),
            "send": lambda: publisher.send(b"x"),
            "send_async": lambda: publisher.send_async(b"x"),
            "flush": publisher.flush,
            "next_sequence": publisher.next_sequence,
            "Receipt.wait": open_receipt.wait,
            "Receipt.on_settled": lambda: open_receipt.on_settled(lambda: None),
            "on_settled of a known one": lambda: receipt.on_settled(lambda: None),
            "Subscriber.receive": lambda: subscriber.receive(3),
            "Subscriber.batches": lambda: next(subscriber.batches()),
            "Subscriber iterated": lambda: next(iter(subscriber)),
            "Subscriber.stats": subscriber.stats,
            "Consumer.receive": lambda: consumer.receive(3),
            "Consumer.batches": lambda: next(consumer.batches(wait=3)),
            "Consumer iterated": lambda: next(iter(consumer)),
            "Consumer.flush": consumer.flush,
            "extend": lambda: consumer.extend(message, 10),
            "ack": message.ack,
            "nack": message.nack,
            "reject": message.reject,
            "request": lambda: requester.request(ENDPOINT, b"x"),
            "request_many": lambda: requester.request_many(ENDPOINT, [b"x"]),
            "Requester.send": lambda: requester.send(ENDPOINT, b"x"),
            "Requester.flush": requester.flush,
            "Pending.cancel": done.cancel,
            "Pending.on_done": lambda: done.on_done(lambda _: None),
            "response": lambda: cluster.response(ENDPOINT, done.id),
            "Service.start": service.start,
            "Service.flag": lambda: service.flag(available=False),
            "Service.drain": service.drain,
            "Service.run": service.run,
            "prepare": lambda: producer.prepare(b"x"),
            "commit": transaction.commit,
            "rollback": transaction.rollback,
            "watch": lambda: watch.receive(3),
            "queues": cluster.queues,
            "publisher": lambda: cluster.publisher(queue),
            "subscriber": lambda: cluster.subscriber(queue),
            "consumer": lambda: cluster.consumer(queue, "all"),
            "requester": lambda: cluster.requester(queue),
            "service": lambda: cluster.service("other", queue),
        }
        locks = (
            publisher._shell.lock, cluster._lock, cluster._engine._lock, shell.condition,
            shell._order_lock, requester._lock, collector.condition, collector._guard.lock,
            collector.kept._lock, service._handling._lock, producer._shell.deciding, REGISTERING,
            subscriber._reporter._lock,
        )  # fmt: skip
        with held_elsewhere(*locks):
            wrong = wrong_in_child(calls)
        assert not wrong, "\n".join(wrong)
        with held_elsewhere(*locks):
            closed = wrong_in_child(
                {
                    type(each).__name__: each.close
                    for each in (publisher, subscriber, consumer, requester, service, producer)
                }
                | {"Cluster": cluster.close}
            )
        kinds = "Publisher Subscriber Consumer Requester Service TransactionalPublisher Cluster"
        assert closed == [f"{kind}: gives None" for kind in kinds.split()]
        # The parent goes on.
        message.ack()
        consumer.flush()
        assert publisher.send(b"last").ok
        assert requester.request(ENDPOINT, b"w").result(30) == b"w"
        transaction.rollback()


def test_a_loop_that_was_begun_gives_a_forked_child_nothing_of_the_batch_that_it_stands_in(
    cluster: roq.Cluster, queue: str
) -> None:
    with cluster.publisher(queue) as publisher, cluster.subscriber(queue, "loop") as subscriber:
        messages, batches = iter(subscriber), subscriber.batches()
        publisher.publish_many([b"one", b"two", b"three"], "loop")[0].wait()
        assert next(messages).payload == b"one"
        calls: Calls = {
            "iterated on": lambda: next(messages),
            "batches": lambda: next(batches),
        }
        wrong = wrong_in_child(calls)
        assert not wrong, "\n".join(wrong)
        assert [next(messages).payload for _ in range(2)] == [b"two", b"three"], "the parent's"


def test_a_forked_child_opens_a_client_of_its_own(cluster: roq.Cluster, queue: str) -> None:
    address = cluster.addresses[0]

    def publish() -> None:
        with roq.connect(address) as own, own.publisher(queue) as publisher:
            told = threading.Event()
            publisher.publish(b"child", "t").on_settled(told.set)
            assert told.wait(10)
        raise roq.Closed("forked, and everything was done")

    with cluster.subscriber(queue, "t") as subscriber:
        with held_elsewhere(REGISTERING, cluster._engine._lock):
            assert not wrong_in_child({"of its own": publish})
        message = subscriber.receive(30)
        assert message is not None
        assert message.payload == b"child"
