"""What is no number, at every method of a client that takes seconds or a count."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf, nan
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import roq
import roq.aio
from roq.testing import RunningCluster

ENDLESS = frozenset({
    "avoid_slower_than", "away_seconds", "connect_timeout", "linger", "timeout", "wait",
})  # fmt: skip
"""Names of arguments that are seconds, of which there may be any number,"""
NUMBERS = ENDLESS | {
    "attempts", "batch", "check_after", "delay", "delivery_timeout", "lease", "most", "patience",
    "prefetch", "prefetch_bytes", "priority", "retries", "retry", "retry_max", "retry_times",
    "retry_times_async", "seconds", "threads", "ttl", "within",
}  # fmt: skip
"""and of those that are seconds or a count."""
FLAGS = {("publish", "wait")}
"""An argument of that name that is none of these."""
HANGS_SECONDS = 60
API = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
ENDPOINT = roq.Endpoint("numbers.do", bytes, bytes)


class Call(NamedTuple):
    """A method, one of its numbers, and how to call it with a value for that."""

    method: str
    argument: str
    make: Callable[[object], object]


class Opened:
    """An object of each kind, and what their methods are given beside a number."""

    def __init__(self, cluster: roq.Cluster, stack: ExitStack) -> None:
        cluster.create_queue("numbers", durability="none", exists_ok=True)
        publisher = stack.enter_context(cluster.publisher("numbers", receipt=roq.aio.Receipt))
        consumer = stack.enter_context(cluster.consumer("numbers", "group", topic="held"))
        publisher.publish(b"held", "held")
        publisher.flush()
        message = consumer.receive(10)
        requester = stack.enter_context(cluster.requester("numbers"))
        pending = requester.request(ENDPOINT, b"v")
        many = requester.request_many(ENDPOINT, [b"v"])
        assert pending.accepted is not None
        pending.accepted.wait()
        producer = cluster.transactional_publisher("numbers", "producers", lambda _: None)
        stack.enter_context(producer)
        subscriber = stack.enter_context(cluster.subscriber("numbers"))
        transaction = producer.prepare(b"half")
        receipt = publisher.publish(b"of a receipt")
        service = cluster.service("numbers", "numbers")
        watch, statistics = cluster.watch(), cluster.statistics("numbers")
        self.given: dict[str, Any] = {
            "available": True, "check": lambda _: None, "delay": 1, "endpoint": ENDPOINT,
            "exchange": "x9", "group": "group", "headers": None, "host": "10.9.8.7",
            "inherit": True, "key": "k", "message": message, "messages": [(b"p",)],
            "name": "numbers", "payload": b"p", "payloads": [b"p"], "priority": 0,
            "queue": "numbers", "receipt": receipt, "request_id": pending.id, "seconds": 1,
            "services": {}, "status": receipt.wait(), "to": "latest",
            "transaction": transaction.id, "tries": 1, "value": b"v", "values": [b"v"],
            "within": None,
        }  # fmt: skip
        self.objects = [
            cluster, publisher, consumer, requester, pending, many, producer, transaction, message,
            receipt, subscriber, service, watch, statistics,
        ]  # fmt: skip
        self.twins = [
            lambda: roq.aio.Cluster(cluster), lambda: roq.aio.Publisher(publisher),
            lambda: roq.aio.Consumer(consumer), lambda: roq.aio.Requester(requester),
            lambda: roq.aio.Pending(pending), lambda: roq.aio.PendingMany(many),
            lambda: roq.aio.TransactionalPublisher(producer),
            lambda: roq.aio.Transaction(transaction), lambda: roq.aio.Subscriber(subscriber),
            lambda: roq.aio.Service(service), lambda: roq.aio.Watch(watch),
            lambda: roq.aio.Statistics(statistics),
        ]  # fmt: skip

    def calls(self, of: object) -> Iterator[Call]:
        """One for each number of each method that the reference has."""
        for name in dir(type(of)):
            method = getattr(type(of), name)
            if name.startswith("_") or not inspect.isfunction(method) or f"{name}(" not in API:
                continue
            parameters = list(inspect.signature(method).parameters.values())[1:]
            for each in parameters:
                if each.name in NUMBERS and (name, each.name) not in FLAGS:
                    yield self._call(of, name, each.name, parameters)

    def _call(
        self, of: object, name: str, argument: str, parameters: list[inspect.Parameter]
    ) -> Call:
        asked = type(of).__name__ == "Cluster"
        given = {
            each.name: "0" * 16 if asked and each.name == "message" else self.given[each.name]
            for each in parameters
            if each.default is each.empty and each.name != argument
        }
        if name == "find_message":
            given["message"] = "x1-1-0-0"
        method = getattr(of, name)
        return Call(
            f"{type(of).__name__}.{name}", argument,
            lambda value: method(**given, **{argument: value}),
        )  # fmt: skip


@contextmanager
def bounded() -> Iterator[None]:
    """What hangs is interrupted."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def taken(call: Call, value: object, run: Callable[[Awaitable[object]], object]) -> str:
    """What is wrong about how a method takes a value that it should refuse; empty: nothing."""
    try:
        with bounded():
            got = call.make(value)
            if inspect.isgenerator(got):
                next(got)
            elif inspect.isasyncgen(got):
                run(got.__anext__())
            elif inspect.isawaitable(got) and not isinstance(got, roq.Receipt):
                run(got)
    except roq.InvalidRequest as error:
        return "" if call.argument in str(error) else f"does not name it: {error}"
    except Exception as error:  # noqa: BLE001 - told below
        return f"{type(error).__name__}: {error!s:.90}"
    return f"takes it: {got!r:.60}"


@pytest.mark.parametrize(
    "value", [nan, "5", True, 1j, [1.0], -(10**5_000), 10**5_000],
    ids=["nan", "text", "bool", "complex", "list", "low", "huge"],
)  # fmt: skip
@pytest.mark.parametrize("loop", [False, True], ids=["threads", "loop"])
def test_what_is_no_number_is_refused_by_the_name_of_its_argument(
    running: RunningCluster, value: object, loop: bool
) -> None:
    any_number = type(value) is int
    wrong = list[str]()
    with running.connect() as cluster, ExitStack() as stack, asyncio.Runner() as runner:
        opened = Opened(cluster, stack)

        async def wait(awaitable: Awaitable[object]) -> object:
            return await awaitable

        def run(awaitable: Awaitable[object]) -> object:
            return runner.run(wait(awaitable))

        async def twins() -> list[object]:
            return [make() for make in opened.twins]

        objects = runner.run(twins()) if loop else opened.objects
        calls = [call for of in objects for call in opened.calls(of)]
        assert len(calls) > 80
        for call in calls:
            if any_number and (call.argument in ENDLESS | {"delay", "seconds"}):
                continue  # not at all, or without an end
            if why := taken(call, value, run):
                wrong.append(f"{call.method}({call.argument}): {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("endless", [inf, 1e300, 10**500], ids=["inf", "large", "huge"])
def test_without_an_end_is_a_time_that_may_be_waited(
    running: RunningCluster, endless: float
) -> None:
    with (
        bounded(), roq.connect(*running.managers, timeout=endless) as cluster,
    ):  # fmt: skip
        cluster.create_queue("endless", durability="flush", timeout=endless)
        with (
            cluster.publisher(
                "endless", name="one", timeout=endless, connect_timeout=endless, linger=endless
            ) as publisher,
            cluster.subscriber("endless", timeout=endless, away_seconds=endless) as subscriber,
            cluster.consumer("endless", "all", timeout=endless) as consumer,
            cluster.transactional_publisher(
                "endless", "some", lambda _: None, timeout=endless
            ) as producer,
        ):
            assert publisher.send(b"one", timeout=endless).ok
            assert publisher.publish(b"two").wait(endless).ok
            publisher.flush(endless)
            assert subscriber.receive(endless) is not None
            message = consumer.receive(endless)
            assert message is not None
            consumer.extend(message, 60, timeout=endless)
            message.ack()
            consumer.flush(endless)
            producer.prepare(b"three", timeout=endless).commit(endless)
            assert cluster.groups("endless", timeout=endless)
            consumer.close(endless)
            publisher.close(endless)
        cluster.remove_queue("endless", timeout=endless)


def test_a_time_that_is_over_is_not_waited(client: roq.Cluster, queue: str) -> None:
    with bounded(), client.publisher(queue) as publisher, client.subscriber(queue) as subscriber:
        assert subscriber.receive(-1) is None
        receipt = publisher.publish(b"one")
        assert receipt.wait(-1.5).outcome in {roq.Outcome.PENDING, roq.Outcome.OK}
        publisher.flush()
        with pytest.raises(roq.InvalidRequest, match="timeout is a number of seconds from 0 on"):
            client.publisher(queue, timeout=-1)


def test_what_is_refused_has_changed_nothing(client: roq.Cluster, queue: str) -> None:
    publisher = client.publisher(queue)
    publisher.publish(b"one")
    with pytest.raises(roq.InvalidRequest, match="timeout is a number of seconds, not nan"):
        publisher.close(nan)
    assert publisher.send(b"two").ok  # it is as open as before
    publisher.close()
    with client.transactional_publisher(queue, "some", lambda _: None) as producer:
        transaction = producer.prepare(b"three")
        with pytest.raises(roq.InvalidRequest, match="timeout is a number of seconds, not '5'"):
            transaction.commit("5")  # type: ignore[arg-type]
        assert transaction.decision is None
        transaction.rollback()
