"""Messages of a real cluster are found by key and id, in segments that are complete and not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from commands import roq as run_roq
from commands import until

import roq
import roq.aio
from roq.client.consume.lookup import FoundMessage
from roq.log.files import KEYS_SUFFIX
from roq.testing import cluster

pytestmark = pytest.mark.integration


def test_messages_are_found_by_key_and_by_id(tmp_path: Path) -> None:
    with cluster(data_dir=tmp_path) as running, running.connect() as client:
        limits = roq.Limits(exchanges_max=1)
        client.create_queue("orders", durability="flush", limits=limits)
        client.create_queue("ticks", durability="none")
        with client.publisher("orders") as publisher:
            for number in range(72):  # more than a segment
                publisher.publish(b"%d" % number + b"x" * 1_000_000, "eu", key=f"k{number % 36}")
                if number % 24 == 23:
                    publisher.flush(60)
            publisher.publish_later(b"late", "eu", key="k7", delay=0.1)
            publisher.publish(b"last", "eu", key="k7", tags=["a"], properties={"p": "v"})
            publisher.flush(60)
        assert until(lambda: any(tmp_path.rglob(f"*{KEYS_SUFFIX}")), 30)
        (made,) = tmp_path.rglob(f"*{KEYS_SUFFIX}")
        assert until(lambda: len(client.find_messages("orders", "k7").messages) == 4, 10)
        found = client.find_messages("orders", "k7").messages
        wanted = [b"7", b"43", b"last", b"late"]
        assert sorted(each.payload.rstrip(b"x") for each in found) == sorted(wanted)
        assert found[-1].payload.startswith(b"7x")
        with client.publisher("ticks") as publisher:
            publisher.publish(b"tick", key="k")
        (tick,) = client.find_messages("ticks", "k").messages
        assert client.find_message("ticks", tick.id) == tick
        told = run_roq(
            "message", "find", "orders", "--key", "k7", "--most", "2", "--json",
            cluster=running.address,
        )  # fmt: skip
        assert [each["id"] for each in json.loads(told.stdout)["messages"]] == [
            each.id for each in found[:2]
        ]
        told = run_roq("message", "show", "orders", found[-1].id, cluster=running.address)
        assert found[-1].id in told.stdout.decode()
        with client.consumer("orders", group="g", start="latest") as consumer:
            with client.publisher("orders") as publisher:
                publisher.publish(b"next", key="k8")
            message = consumer.receive(timeout=10)
            assert message is not None
            same = client.find_message("orders", message.id)
            assert same is not None
            assert (same.payload, same.key) == (b"next", "k8")

        async def main() -> list[FoundMessage]:
            async with roq.aio.connect(running.address) as other:
                assert await other.find_message("orders", found[0].id) == found[0]
                return (await other.find_messages("orders", "k7", most=1)).messages

        assert asyncio.run(main()) == found[:1]
        whole = made.read_bytes()
        made.write_bytes(whole[:-5])  # torn
        told = run_roq("log", "verify", str(made.parent))
        assert "its index of keys is not whole" in " ".join(told.stdout.decode().split())
        assert client.find_messages("orders", "k7").messages == found
