"""Settings of services that a queue defines, with real processes: at every exchange of the queue,
also at new ones and those that start again, without a client that brings any."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from commands import roq as run_roq
from commands import until

import roq
from roq.client.consume.groups import read
from roq.client.io.exchange_questions import ask_all
from roq.protocol.requesting import REQUESTS, Requests, RequestsQuery
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

SAY = roq.endpoint("echo.say", request=int, response=int, idempotent=True)


@pytest.fixture(scope="module")
def running(own_cluster: RunningCluster) -> RunningCluster:
    return own_cluster


def in_force(client: roq.Cluster, queue: str, name: str) -> list[float]:
    """What a setting is at each exchange that answers and has the service."""
    described = client.describe(queue)
    query = RequestsQuery(id=1, queue=bytes.fromhex(described.queue_id), service="echo")
    told = ask_all(client._engine, described, REQUESTS, query, 3.0)
    found, _ = read(told, REQUESTS, Requests)
    return [getattr(each.settings, name) for each in found.values()]


def test_they_hold_at_exchanges_that_start_again_and_at_new_ones_and_change_while_all_runs(
    running: RunningCluster,
    client: roq.Cluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "services.json"
    file.write_text(json.dumps({"echo": {"keep_result": 77}, "*": {"send_attempts": 9}}))
    at = ("--cluster", running.address)
    made = run_roq("queue", "create", "work", "--durability", "none", "--requests", str(file), *at)
    assert made.returncode == 0, made.stderr
    told = json.loads(run_roq("queue", "show", "work", "--json", *at).stdout)["services"]
    assert told == {"*": {"send_attempts": 9}, "echo": {"keep_result": 77}}
    service = client.service("echo", "work")
    service.handler(SAY)(lambda number, _: 2 * number)
    with service, client.requester("work") as requester:
        assert requester.request(SAY, 1).result(10) == 2

        def hold(keep: float, exchanges: int, attempts: int = 9) -> bool:
            kept = in_force(client, "work", "keep_result") == [keep] * exchanges
            return kept and in_force(client, "work", "send_attempts") == [attempts] * exchanges

        assert hold(77, 1)
        with client.requester("work", settings={"keep_result": 3}) as other:
            other.prepare("echo")
        assert "queue work defines that keep_result is 77, not 3" in caplog.text
        assert hold(77, 1)
        shown = run_roq("service", "show", "work", "echo", *at).stdout.decode()
        assert "77 s, as the queue defines" in shown
        client.add_exchange("work")
        assert until(lambda: hold(77, 2), 10)
        before = {each.pid for each in client.exchanges("work")}
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert until(lambda: before.isdisjoint(e.pid for e in client.exchanges("work")), 20)
        assert until(lambda: hold(77, 2), 20)
        file.write_text('{"echo": {"keep_result": 5, "delay": 1.5}}')
        changed = run_roq("queue", "change", "work", "--requests", str(file), *at)
        assert changed.returncode == 0, changed.stderr
        assert until(lambda: hold(5, 2, attempts=4), 3)
        begun = time.monotonic()
        assert requester.request(SAY, 2).result(10) == 4
        assert time.monotonic() - begun >= 1.4, "the requester has heard of it without asking"
