"""Exchanges of volatile queues that are killed while handlers run: the answers find a new home."""

from __future__ import annotations

import threading

import psutil
import pytest
from commands import until

import roq
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

SLOW = roq.endpoint("slow.run", request=int, response=str, idempotent=True)


@pytest.fixture(scope="module")
def running(own_cluster: RunningCluster) -> RunningCluster:
    return own_cluster


def kill_exchanges(queue: str) -> None:
    """With SIGKILL; their host manager starts the next ones."""
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "roq.exchange" in (line := " ".join(process.info["cmdline"] or [])) and queue in line
    ]
    assert found, "an exchange runs"
    for process in found:
        process.kill()


class Slow:
    """An instance whose handlers end when the test says so."""

    def __init__(self, client: roq.Cluster, queue: str, threads: int) -> None:
        self.begun: list[int] = []
        self.may_end = threading.Event()
        self.service = client.service("slow", queue, threads=threads, prefetch=threads)

        @self.service.handler(SLOW)
        def run(number: int, context: roq.RequestContext) -> str:
            self.begun.append(number)
            assert self.may_end.wait(60)
            return f"{number} after {len(self.begun)}, {'cancelled' if context.cancelled else 'ok'}"

        self.service.start()


def sent_once_more(pending: roq.Pending[str], before: str) -> bool:
    try:
        return pending.id != before
    except roq.RoQError:
        return False


def test_what_an_instance_runs_as_its_volatile_exchange_dies_runs_once_and_is_answered(
    client: roq.Cluster, queue: str
) -> None:
    """The only thread is busy: the request waits at its new exchange, and takes the answer."""
    slow = Slow(client, queue, threads=1)
    with client.requester(queue, settings={"send_attempts": 60}) as requester:
        pending = requester.request(SLOW, 7)
        assert until(lambda: bool(slow.begun), 20)
        before = pending.id
        kill_exchanges(queue)
        assert until(lambda: sent_once_more(pending, before), 40)
        other = requester.request(SLOW, 8)
        assert other.accepted is not None
        assert other.accepted.wait(10).ok
        slow.may_end.set()
        assert pending.result(20) == "7 after 1, ok"
        assert pending.id != before
        assert other.result(20) == "8 after 2, ok"
    assert slow.begun == [7, 8], "it ran once"
    assert slow.service.stats.elsewhere == 1
    slow.service.drain()


def test_an_instance_that_gets_a_request_that_it_runs_already_waits_for_that(
    client: roq.Cluster, queue: str
) -> None:
    slow = Slow(client, queue, threads=4)
    with client.requester(queue, settings={"send_attempts": 60}) as requester:
        pending = requester.request_many(SLOW, [7, 8])
        assert until(lambda: len(slow.begun) == 2, 20)
        before = pending[0].id
        kill_exchanges(queue)
        assert until(lambda: sent_once_more(pending[0], before), 40)
        assert until(lambda: client.describe_request(SLOW, pending[0].id).state == "running", 20)
        slow.may_end.set()
        assert pending.result(20) == ["7 after 2, ok", "8 after 2, ok"]
    assert sorted(slow.begun) == [7, 8], "each ran once"
    assert slow.service.stats.elsewhere == 2
    slow.service.drain()


def test_if_the_queue_says_so_answers_go_nowhere_else(client: roq.Cluster, queue: str) -> None:
    client.define_services(queue, {"slow": {"reply_attempts": 0, "send_attempts": 60}})
    slow = Slow(client, queue, threads=1)
    with client.requester(queue) as requester:
        pending = requester.request(SLOW, 7)
        assert until(lambda: bool(slow.begun), 20)
        before = pending.id
        kill_exchanges(queue)
        assert until(lambda: sent_once_more(pending, before), 40)
        slow.may_end.set()
        assert pending.result(30).startswith("7 after 2")
    assert slow.begun == [7, 7]
    assert (slow.service.stats.elsewhere, slow.service.stats.orphaned) == (0, 0)
    slow.service.drain()
