"""Publishers with a name, in a real cluster: they go on where they were; there is one of each.

`ROQ_NAMED_KILLS=100` kills a publisher, and its exchanges, more often than the suite has time for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from commands import until

import roq
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("ROQ_NAMED_KILLS", "2"))
"""Of a named publisher, and of both exchanges each time."""

DIES = """
import sys, roq
publisher = roq.connect(sys.argv[1]).publisher("orders", name="billing-1")
first = publisher.next_sequence("eu")
for number in range(first, first + 50):
    publisher.publish(b"%d" % number, "eu").result(30)
print(publisher.next_sequence("eu"), flush=True)
publisher.publish(b"%d" % (first + 50), "eu")
import os; os.kill(os.getpid(), 9)
"""


def payloads(subscriber: roq.Subscriber, count: int) -> list[bytes]:
    got = [subscriber.receive(timeout=30) for _ in range(count)]
    return [message.payload for message in got if message is not None]


@pytest.fixture
def running(emptied: RunningCluster) -> RunningCluster:
    return emptied


@pytest.fixture
def client(running: RunningCluster) -> Iterator[roq.Cluster]:
    with running.connect() as one:
        one.create_queue("orders", durability="flush")
        yield one


def test_a_publisher_goes_on_after_its_process_and_its_exchange_were_killed(
    running: RunningCluster, client: roq.Cluster
) -> None:
    client.add_exchange("orders")
    with client.subscriber("orders", "eu") as subscriber:
        for turn in range(KILLS):
            ended = subprocess.run(
                [sys.executable, "-c", DIES, running.address], capture_output=True, text=True,
                timeout=120, check=False,
            )  # fmt: skip
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            assert int(ended.stdout) >= 50 * (turn + 1)
            for each in client.exchanges("orders"):
                os.kill(each.pid, signal.SIGKILL)
            assert until(lambda: {each.state for each in client.exchanges("orders")} == {"running"})
        with client.publisher("orders", name="billing-1", connect_timeout=60) as publisher:
            following = publisher.next_sequence("eu")
            # Of each last message nobody knows whether it was sent.
            assert 50 * KILLS <= following <= 51 * KILLS
            publisher.publish(b"%d" % following, "eu")
        wanted = [b"%d" % number for number in range(following + 1)]
        got = [message for _ in wanted if (message := subscriber.receive(timeout=60))]
    assert [message.payload for message in got] == wanted
    assert [message.sequence for message in got] == list(range(following + 1))


def test_of_two_with_one_name_the_earlier_one_is_told_to_end(client: roq.Cluster) -> None:
    with client.subscriber("orders", "t") as subscriber:
        earlier = client.publisher("orders", name="billing-1", group="billing")
        earlier.publish(b"0", "t").result(30)
        later = client.publisher("orders", name="billing-1", group="billing")
        assert later.next_sequence("t") == 1
        later.publish(b"1", "t").result(30)

        def refused() -> bool:
            try:
                earlier.publish(b"never", "t")
            except roq.Fenced as error:
                return "opened later" in str(error)
            return False

        assert until(refused)
        later.publish(b"2", "t").result(30)
        later.close()
        earlier.abort()
        got = [subscriber.receive(timeout=30) for _ in range(3)]
        assert [message and message.payload for message in got] == [b"0", b"1", b"2"]
        assert subscriber.receive(timeout=0.2) is None


def test_a_name_is_heard_when_the_exchange_that_had_its_messages_was_removed(
    client: roq.Cluster,
) -> None:
    client.add_exchange("orders")
    gaps: list[roq.Gap] = []
    with client.subscriber("orders", "t", on_gap=gaps.append) as subscriber:
        with client.publisher("orders", name="billing-1") as publisher:
            sent = [publisher.send(b"%d" % number, "t") for number in range(5)]
        assert payloads(subscriber, 5) == [b"%d" % number for number in range(5)]
        client.remove_exchange("orders", sent[-1].exchange, timeout=60)
        with client.publisher("orders", name="billing-1", connect_timeout=60) as publisher:
            assert publisher.next_sequence("t") == 0, "nobody knows it any more"
            assert publisher.send(b"five", "t").ok
            assert publisher.send(b"six", "t").ok
            assert payloads(subscriber, 2) == [b"five", b"six"]
        client.remove_exchange("orders", client.add_exchange("orders"), timeout=60)
        with client.publisher("orders", name="billing-1", connect_timeout=60) as publisher:
            assert publisher.next_sequence("t") == 2
            assert publisher.send(b"seven", "t").ok
            assert payloads(subscriber, 1) == [b"seven"]
        assert gaps == []


def test_in_a_volatile_queue_a_name_is_a_label(running: RunningCluster) -> None:
    with running.connect() as client:
        client.create_queue("labels")
        one = client.publisher("labels", name="same", group="g")
        two = client.publisher("labels", name="same")
        assert one.id != two.id
        assert [each.publish(b"x").result(30).ok for each in (one, two)] == [True, True]
        one.close()
        two.close()
        client.remove_queue("labels")
