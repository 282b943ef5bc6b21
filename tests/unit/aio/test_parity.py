"""Both clients have the same names, and the same arguments under them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

import roq.aio
from roq.client import cluster
from roq.client.admin import broadcast as watch
from roq.client.admin import statistics
from roq.client.consume import consumer
from roq.client.publish import publisher, receipt
from roq.client.request import many, pending, requester, service
from roq.client.subscribe import subscriber
from roq.client.transact import publisher as transact
from roq.jobs import batches, handle, jobs, types


@dataclass(frozen=True)
class Pair:
    """A class of both clients, and in what they may differ."""

    sync: type
    asyncio: type
    shells: frozenset[str] = frozenset()
    """Names of the synchronous one that the other one is made of."""
    only_asyncio: frozenset[str] = frozenset()
    arguments: dict[str, frozenset[str]] = field(default_factory=dict)
    """By method: arguments of the synchronous one that make no sense in an event loop."""

    @property
    def name(self) -> str:
        return self.sync.__name__


PAIRS = [
    Pair(
        cluster.Cluster,
        roq.aio.Cluster,
        arguments={
            "publisher": frozenset({"block", "receipt", "retry_times_async"}),
            "requester": frozenset({"block", "receipt"}),
        },
    ),
    Pair(
        publisher.Publisher,
        roq.aio.Publisher,
        shells=frozenset(
            {"attempt", "attend", "call_back", "failed", "flushed", "has_room", "is_flushed"}
            | {"publish_from", "publish_raw"}
            | {"raise_no_room", "wait_for", "watch", "tries_again", "send_async"}
            | {"delivery_timeout", "retry_times", "retry_times_async"}
        ),
        only_asyncio=frozenset({"drain"}),  # there publish() never waits
    ),
    Pair(subscriber.Subscriber, roq.aio.Subscriber),
    Pair(consumer.Consumer, roq.aio.Consumer),
    Pair(
        pending.Pending,
        roq.aio.Pending,
        shells=frozenset({"at", "called", "due", "place", "repeat", "sent", "settle", "when_done"})
        | {"delayed", "forget_repeat", "is_one_of_many", "placed", "places"},
    ),
    Pair(
        many.PendingMany,
        roq.aio.PendingMany,
        shells=frozenset({"called", "due", "ends", "held", "parts", "places", "repeat", "settle"})
        | {"forget_repeat", "placed", "recount", "settle_all", "went", "when_done"},
    ),
    Pair(
        requester.Requester,
        roq.aio.Requester,
        shells=frozenset({"begin_many", "knows", "prepare", "publish_chunk", "wait_for_room"}),
    ),
    Pair(
        service.Service,
        roq.aio.Service,
        shells=frozenset({"wait_stopped"}),
        arguments={"start": frozenset({"loop"})},
    ),
    Pair(
        jobs.Jobs,
        roq.aio.Jobs,
        shells=frozenset({"database", "elsewhere", "engine", "instances", "may_work", "operate"})
        | {"ended_of", "result_of", "run_worker", "status_of", "store", "submit", "tell_change"}
        | {"batch_of", "submit_batch"}
        | {"wait_for_change", "worker"},
        only_asyncio=frozenset({"sync"}),
    ),
    Pair(
        types.JobType,
        roq.aio.JobType,
        shells=frozenset({"address", "decode", "decode_result", "encode", "encode_result"})
        | {"facts", "is_async", "jobs", "new", "takes_params"},
        only_asyncio=frozenset({"sync"}),
    ),
    Pair(handle.JobHandle, roq.aio.JobHandle),
    Pair(batches.JobBatch, roq.aio.JobBatch),
    Pair(transact.TransactionalPublisher, roq.aio.TransactionalPublisher),
    Pair(transact.Transaction, roq.aio.Transaction),
    Pair(watch.Watch, roq.aio.Watch),
    Pair(statistics.Statistics, roq.aio.Statistics),
    Pair(receipt.Receipt, roq.aio.Receipt, only_asyncio=frozenset({"settled"})),
]
each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)


def public(kind: type) -> set[str]:
    """Methods and properties, and what the constructors set."""
    constructors = [
        vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)
    ]
    source = "".join(map(inspect.getsource, constructors))
    names = {*dir(kind), *re.findall(r"self\.(\w+)(?:: [^=\n]+)? = ", source)}
    return {name for name in names if not name.startswith("_")}


@each_pair
def test_the_names_are_the_same(pair: Pair) -> None:
    assert public(pair.sync) - pair.shells == public(pair.asyncio) - pair.only_asyncio


@each_pair
def test_the_arguments_are_the_same(pair: Pair) -> None:
    for name in public(pair.sync) - pair.shells:
        sync, asyncio = getattr(pair.sync, name, None), getattr(pair.asyncio, name)
        if not inspect.isfunction(sync):
            continue
        wanted = dict(inspect.signature(sync).parameters)
        for argument in pair.arguments.get(name, ()):
            del wanted[argument]
        given = inspect.signature(asyncio).parameters
        assert {key: value.default for key, value in wanted.items()} == {
            key: value.default for key, value in given.items()
        }, name


@each_pair
def test_both_can_be_iterated_and_left_in_the_same_places(pair: Pair) -> None:
    for sync, asyncio in (
        ("__iter__", "__aiter__"),
        ("__enter__", "__aenter__"),
        ("__exit__", "__aexit__"),
    ):
        if sync == "__iter__" and issubclass(pair.asyncio, Sequence):
            continue  # what is there already is not waited for
        assert hasattr(pair.sync, sync) is hasattr(pair.asyncio, asyncio)


def test_connecting_takes_the_same_arguments() -> None:
    assert (
        inspect.signature(roq.aio.connect).parameters
        == inspect.signature(cluster.connect).parameters
    )
