"""Real exchanges whose logs are on the disk: killed, restarted, lost with their hosts, out of room.

`ROQ_DURABLE_KILLS=200` kills more often than the suite has time for; `--log-cli-level=INFO` shows
the figures.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from commands import roq as run_roq
from commands import until

import roq
from roq.protocol.public import DURABILITIES
from roq.testing import RunningCluster, cluster
from roq.testing.history import History

pytestmark = pytest.mark.integration
log = logging.getLogger(__name__)

KILLS = int(os.environ.get("ROQ_DURABLE_KILLS", "6"))
"""Of one exchange after the other, some of them twice."""
EXCHANGES = 4
KILL_SECONDS = (0.9, 1.7)
"""Between two."""
TOPICS = ("eu.be", "eu.nl", "us")
SMALL_DISK = "3m"
BEHIND = 120_000
"""Messages, of some 1,000 bytes each, by which a subscriber is behind: of each of two exchanges it
lacks more than it and the sockets hold."""
AWAY_SECONDS = 6.0


class Traffic:
    """Publishers that publish all the time, a subscriber, and what became of each message."""

    def __init__(
        self, running: RunningCluster, queue: str, publishers: int, padding: int = 0
    ) -> None:
        self._padding = bytes(padding)
        self._takes = threading.Event()
        self._takes.set()
        self._cluster = running.connect()
        self._history = History()
        self._sent = [History() for _ in range(publishers)]
        self._publishers = [self._cluster.publisher(queue) for _ in range(publishers)]
        self.subscriber = self._cluster.subscriber(queue, topic="", on_gap=self._gap)
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self.published = [0] * publishers
        self.longest = 0.0
        """Seconds that a call of publish() has taken at most."""
        self.received = 0
        self.told = 0
        self._history.subscribed("live")
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._publish, n))
            for n in range(publishers)
        ]
        self._reader = threading.Thread(target=self._guarded, args=(self._read, 0))
        for thread in (*self._threads, self._reader):
            thread.start()

    def pause(self, seconds: float) -> None:
        """Let time pass; an error of a client ends the test."""
        self._stop.wait(seconds)
        assert not self._errors, self._errors

    def rest(self) -> None:
        """The subscriber takes nothing: what is published waits in the logs."""
        self._takes.clear()

    def go_on(self) -> None:
        """It takes everything again."""
        self._takes.set()

    def finish(self) -> None:
        """Publish no more. What was published is acknowledged; the subscriber has it, once and in
        order, or was told that it lacks it.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads)
        wanted = sum(self.published)
        assert until(lambda: self.received + self.told >= wanted or bool(self._errors), 60)
        self._reader_ends()
        assert not self._errors, self._errors
        verdict = self._history.merge(*self._sent).check()
        wrong = (verdict.lost, verdict.duplicated, verdict.reordered, verdict.foreign)
        assert wrong == (0, 0, 0, 0), verdict

    def close(self) -> None:
        self._stop.set()
        for publisher in self._publishers:
            publisher.abort()
        for thread in self._threads:
            thread.join(60)
        self._reader_ends()
        self._cluster.close()

    def all_from_the_beginning(self, running: RunningCluster) -> None:
        """Who comes later gets everything, once and in order of each publisher and topic."""
        later = History()
        later.subscribed("later")
        wanted = sum(self.published)
        with (
            running.connect() as client,
            client.subscriber(
                "orders",
                topic="",
                start="earliest",
                timeout=60,
                on_gap=lambda gap: later.gap("later", gap),
            ) as subscriber,
        ):
            got = 0
            while got < wanted:
                message = subscriber.receive(timeout=60)
                assert message is not None, f"only {got} of {wanted}"
                later.received("later", message)
                got += 1
        verdict = later.merge(*self._sent).check()
        assert verdict.ok, verdict

    def _reader_ends(self) -> None:
        if self._reader.is_alive():
            self._takes.set()
            self.subscriber.close()
            self._reader.join(60)

    def _guarded(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - the thread that asserts tells it
            self._errors.append(error)

    def _publish(self, number: int) -> None:
        publisher, history = self._publishers[number], self._sent[number]
        while not self._stop.wait(0.002):
            for _ in range(10):
                serial = self.published[number]
                topic = TOPICS[serial % len(TOPICS)]
                payload = b"%d %d" % (number, serial) + self._padding
                history.sent(publisher.id, topic, payload)
                begun = time.monotonic()
                publisher.publish(payload, topic=topic)
                self.longest = max(self.longest, time.monotonic() - begun)
                self.published[number] += 1
        publisher.flush(timeout=60)

    def _read(self, _: int) -> None:
        try:
            for message in self.subscriber:
                self._takes.wait()
                self._history.received("live", message)
                self.received += 1
        except roq.Closed:
            return

    def _gap(self, gap: roq.Gap) -> None:
        self._history.gap("live", gap)
        self.told += gap.messages or 0


@contextmanager
def traffic(
    running: RunningCluster, queue: str = "orders", publishers: int = 3, padding: int = 0
) -> Iterator[Traffic]:
    made = Traffic(running, queue, publishers, padding)
    try:
        yield made
    finally:
        made.close()


def pid_of(client: roq.Cluster, name: str, queue: str = "orders") -> int:
    (pid,) = (each.pid for each in client.exchanges(queue) if each.name == name)
    assert pid > 0, "0 would be this process and all of its group"
    return pid


def states(client: roq.Cluster, queue: str = "orders") -> dict[str, str]:
    return {each.name: each.state for each in client.exchanges(queue)}


def host_state(client: roq.Cluster, host: str) -> str:
    return next(each.state for each in client.hosts() if each.host == host)


def health(running: RunningCluster) -> str:
    told = run_roq("health", cluster=running.address)
    return (told.stdout + told.stderr).decode()


def folders(running: RunningCluster, queue: str = "*") -> list[Path]:
    """The logs of a queue of this id."""
    return sorted(running.folder.glob(f"host-*/logs/{queue}/x*"))


@pytest.mark.long
@pytest.mark.parametrize("durability", ["flush", "async"])
@pytest.mark.timeout(300 + 10 * KILLS)
def test_what_was_acknowledged_outlives_kills_and_the_end_of_the_whole_cluster(
    tmp_path: Path, durability: str
) -> None:
    chance = random.Random()
    with cluster(data_dir=tmp_path) as running:
        with running.connect() as client:
            client.create_queue("orders", durability=durability)
            for _ in range(EXCHANGES - 1):
                client.add_exchange("orders")
            with traffic(running) as load:
                for turn in range(KILLS):
                    load.pause(chance.uniform(*KILL_SECONDS))
                    name = f"x{turn % EXCHANGES + 1}"
                    assert until(lambda name=name: states(client)[name] == "running")
                    os.kill(pid_of(client, name), signal.SIGKILL)
                load.finish()
            log.info(
                "%d kills, %d messages, %d told as lost, longest publish() %.2f s",
                KILLS, sum(load.published), load.told, load.longest,
            )  # fmt: skip
            assert load.told == 0
            assert until(lambda: set(states(client).values()) == {"running"})
            assert client.describe("orders").durability == durability
        assert len(folders(running)) == EXCHANGES
    with cluster(data_dir=tmp_path) as running:
        with running.connect() as client:
            # A log that comes late has what is older than what was read of the others by then.
            assert until(lambda: set(states(client).values()) == {"running"})
        load.all_from_the_beginning(running)
        with running.connect() as client:
            client.remove_queue("orders")
        assert until(lambda: not folders(running))


def test_a_queue_goes_on_without_a_lost_host_whose_log_comes_back_with_it() -> None:
    with cluster(hosts=2) as running, running.connect() as client:
        client.create_queue("orders", host="127.0.0.2", durability="flush")
        with traffic(running, publishers=1) as load:
            load.pause(0.5)
            manager = psutil.Process(running.pid("host 127.0.0.2"))
            children = manager.children(recursive=True)
            manager.suspend()
            try:
                for child in children:
                    child.kill()
                assert until(lambda: states(client) == {"x1": "away", "x2": "running"})
                assert "x1 is away: its log is on host 127.0.0.2" in health(running)
                load.pause(0.5)
            finally:
                manager.resume()
            assert until(lambda: states(client) == {"x1": "running", "x2": "running"})
            load.pause(0.5)
            load.finish()
        assert load.told == 0
        load.all_from_the_beginning(running)
        assert client.describe("orders").reasons == []


@pytest.mark.long
def test_a_queue_goes_on_without_a_disk_that_is_not_mounted_and_with_it_when_it_is(
    tmp_path: Path,
) -> None:
    logs, elsewhere = tmp_path / "host-127.0.0.2" / "logs", tmp_path / "elsewhere"
    with cluster(hosts=2, data_dir=tmp_path) as running, running.connect() as client:
        client.create_queue("orders", host="127.0.0.2", durability="flush")
        with traffic(running, publishers=1) as load:
            load.pause(0.5)
            load.finish()
    logs.rename(elsewhere)
    with cluster(hosts=2, data_dir=tmp_path) as running, running.connect() as client:
        assert until(lambda: states(client) == {"x1": "away", "x2": "running"})
        advice = "mount the disk, or give it up by `roq exchange forget orders x1`"
        (x1,) = (each for each in client.exchanges("orders") if each.name == "x1")
        assert f"the log of x1 is not in {logs}" in x1.reason
        assert advice in x1.reason
        assert advice in health(running)
        assert advice in (tmp_path / "log" / "host-127.0.0.2.log").read_text()
        with client.publisher("orders") as publisher:
            for _ in range(100):
                publisher.publish(b"m").result(10)
            assert not logs.exists(), "no other log was begun"
            elsewhere.rename(logs)
            assert until(lambda: states(client) == {"x1": "running", "x2": "running"}, 60)
            publisher.publish(b"m").result(10)
        with client.subscriber("orders", topic="", start="earliest", timeout=60) as subscriber:
            for _ in range(load.published[0] + 101):
                assert subscriber.receive(timeout=60) is not None
        assert client.describe("orders").reasons == []


def test_logs_that_were_removed_while_their_host_was_away_go_when_it_is_back() -> None:
    with cluster(hosts=2) as running, running.connect() as client:
        for name in ("gone", "made", "kept"):
            client.create_queue(name, host="127.0.0.1", durability="flush")
            client.add_exchange(name, host="127.0.0.2")
        ids = {name: client.describe(name).queue_id for name in ("gone", "made", "kept")}
        with client.publisher("kept") as publisher:
            for _ in range(100):
                publisher.publish(b"m").result(10)
        manager = psutil.Process(running.pid("host 127.0.0.2"))
        children = manager.children(recursive=True)
        manager.suspend()
        try:
            for child in children:
                child.kill()
            assert until(lambda: states(client, "kept")["x2"] == "away")
            assert until(lambda: host_state(client, "127.0.0.2") == "lost")
            for name in ("gone", "made"):
                assert client.remove_queue(name) == (
                    f"host 127.0.0.2 removes its logs of queue {name} when it is back"
                )
            client.create_queue("made", host="127.0.0.1", durability="flush")
            assert len(folders(running, ids["gone"])) == 1
            assert "queue gone on host 127.0.0.2" in health(running)
        finally:
            manager.resume()
        for name in ("gone", "made"):
            assert until(lambda name=name: not folders(running, ids[name]))
        assert until(lambda: states(client, "kept")["x2"] == "running")
        assert {"x1", "x2"} <= {each.name for each in folders(running, ids["kept"])}
        assert len(folders(running, client.describe("made").queue_id)) == 1
        assert until(lambda: "when their hosts are back" not in health(running))


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_live_subscriber_waits_for_an_exchange_that_is_away_and_loses_nothing(how: str) -> None:
    with cluster(hosts=2) as running, running.connect() as client:
        client.create_queue("orders", host="127.0.0.1", durability="flush")
        client.add_exchange("orders", host="127.0.0.2")
        with traffic(running, publishers=4, padding=1_000) as load:
            load.pause(0.5)
            load.rest()
            began = sum(load.published)
            assert until(lambda: sum(load.published) - began > BEHIND)
            manager = psutil.Process(running.pid("host 127.0.0.2"))
            exchange = psutil.Process(pid_of(client, "x2"))
            manager.suspend()
            exchange.kill() if how == "killed" else exchange.suspend()
            try:
                load.go_on()
                assert until(lambda: load.subscriber.trouble.startswith("away: x2; "), 30)
                waits = until(lambda: "messages have waited" in load.subscriber.trouble)
                assert waits, load.subscriber.trouble
                received = load.received
                load.pause(AWAY_SECONDS)
                assert load.received > received, "those of x1 do not wait"
                assert load.told == 0
            finally:
                if how == "stopped":
                    exchange.resume()
                manager.resume()
            assert until(lambda: "away" not in load.subscriber.trouble)
            load.finish()
        assert load.told == 0


@pytest.fixture
def running(emptied: RunningCluster) -> RunningCluster:
    return emptied


def logs(running: RunningCluster, client: roq.Cluster) -> list[str]:
    return [each.name for each in folders(running, client.describe("orders").queue_id)]


def test_the_log_of_a_removed_exchange_goes_with_it(
    running: RunningCluster, client: roq.Cluster
) -> None:
    client.create_queue("orders", durability="flush")
    client.add_exchange("orders")
    assert until(lambda: logs(running, client) == ["x1", "x2"])
    client.remove_exchange("orders", "x2")
    assert until(lambda: logs(running, client) == ["x1"])


def test_a_durable_queue_shrinks_when_the_logs_of_the_exchanges_that_rest_have_expired(
    running: RunningCluster, client: roq.Cluster
) -> None:
    client.create_queue("orders", durability="flush", limits={"log_seconds": 3})
    rules = roq.ScalingRules(
        name="small", exchange_bytes_per_minute=6_000_000, exchanges_max=2, cooldown_seconds=1
    )
    client.set_rules("orders", rules)
    payload = os.urandom(1_000)
    with client.publisher("orders") as one, client.publisher("orders") as other:

        def grown() -> bool:
            """Some 300 kB a second: three times what one exchange is to take."""
            for publisher in (one, other):
                publisher.publish_many([payload] * 5)
            return len(client.exchanges("orders")) == 2

        assert until(grown, 60)
    assert until(lambda: set(states(client)) == {"x1"}, 60)
    assert until(lambda: logs(running, client) == ["x1"])


@pytest.mark.long
def test_what_all_groups_have_done_leaves_and_an_exchange_that_rests_goes_with_it(
    running: RunningCluster, client: roq.Cluster
) -> None:
    """The log goes on after a kill, and no group has lost anything."""
    limits = {"log_until_done": 1, "log_bytes": 16 << 20, "ring_bytes": 1 << 20,
              "message_bytes": 1 << 16}  # fmt: skip
    client.create_queue("orders", durability="flush", limits=limits)
    client.set_rules("orders", roq.ScalingRules(
        name="small", exchange_bytes_per_minute=6_000_000, exchanges_max=2, cooldown_seconds=1
    ))  # fmt: skip
    payload = os.urandom(1_000)
    with (
        client.consumer("orders", group="billing") as billing,
        client.consumer("orders", group="audit") as audit,
        client.publisher("orders") as one,
        client.publisher("orders") as other,
    ):
        published, done = 0, {"billing": 0, "audit": 0}

        def work(most: float = 0.2) -> None:
            for member, name in ((billing, "billing"), (audit, "audit")):
                for batch in member.batches(wait=most):
                    done[name] += len(batch)
                    batch.ack()

        def grown() -> bool:
            nonlocal published
            for publisher in (one, other):
                published += 5
                publisher.publish_many([payload] * 5)
            return len(client.exchanges("orders")) == 2

        assert until(grown, 60)
        for _ in range(500):  # five megabytes, in files of two
            published += 10
            one.publish_many([payload] * 10)
        one.flush()
        other.flush()
        work(2.0)
        assert done == {"billing": published, "audit": published}
        assert until(lambda: set(states(client)) == {"x1"}, 120), "x2 waits for nobody"
        assert until(lambda: logs(running, client) == ["x1"])

        def left() -> bool:
            try:
                client.subscriber("orders", start={"x1": 0}, below_floor="error").close()
            except roq.NotKept:
                return True
            return False

        assert until(left, 120)
        os.kill(pid_of(client, "x1"), signal.SIGKILL)
        assert until(lambda: states(client) == {"x1": "running"}, 60)
        assert one.send(b"last")
        published += 1
        assert until(lambda: (work(), set(done.values()) == {published})[1], 60)
        assert all(group.expired == 0 == group.behind for group in client.groups("orders"))


def test_a_disk_that_is_full_is_named_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    logs = tmp_path / "host-127.0.0.1" / "logs"
    logs.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "none", str(logs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root: a small disk has to be mounted")
    try:
        with cluster(data_dir=tmp_path) as running, running.connect() as client:
            client.create_queue("orders", durability="flush")
            with client.publisher("orders", delivery_timeout=300) as publisher:
                receipts = [publisher.publish(os.urandom(50_000)) for _ in range(100)]
                assert until(lambda: "disk_full" in health(running), 90)
                assert until(lambda: "disk_full" in publisher.trouble, 30)
                assert str(logs) in publisher.trouble
                done = sum(receipt.done() for receipt in receipts)
                assert 0 < done < len(receipts)
                subprocess.run(["mount", "-o", "remount,size=64m", str(logs)], check=True)
                publisher.flush(timeout=60)
            with client.subscriber("orders", start="earliest") as subscriber:
                for _ in receipts:
                    assert subscriber.receive(timeout=30) is not None
    finally:
        subprocess.run(["umount", str(logs)], check=True)


def test_who_begins_below_what_is_kept_gets_what_it_has_chosen(
    roq_cluster: RunningCluster,
) -> None:
    with roq_cluster.connect() as client:
        client.create_queue(
            "short", durability="flush",
            limits={"log_bytes": 1 << 20, "ring_bytes": 1 << 23, "message_bytes": 1 << 16,
                    "exchanges_max": 1},
        )  # fmt: skip
        with client.publisher("short") as publisher:
            publisher.publish(b"first")
            publisher.flush()
            # Two segments of 64 MiB: the first one leaves when the second one is complete.
            for _ in range(2_200):
                publisher.publish(bytes(64_000))
            publisher.flush(timeout=60)
        with pytest.raises(roq.NotKept, match="keeps nothing below offset"):
            client.subscriber("short", start=0, below_floor="error")
        with client.subscriber("short", start=0) as reader:
            assert len(reader.receive(timeout=30).payload) == 64_000
        with client.subscriber("short", start={"x1": 0}, below_floor="latest") as reader:
            with client.publisher("short") as publisher:
                publisher.publish(b"last")
            assert reader.receive(timeout=30).payload == b"last"
        with pytest.raises(roq.InvalidRequest, match="below_floor 'newest'"):
            client.subscriber("short", start=0, below_floor="newest")
        client.remove_queue("short")


def test_as_shipped_a_queue_is_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROQ_GCM_QUEUES_DURABILITY")
    with cluster() as running, running.connect() as client:
        client.create_queue("orders")
        assert run_roq("queue", "create", "bills", cluster=running.address).returncode == 0
        client.create_queue("ticks", durability="none")
        assert {each.name: each.durability for each in client.queues()} == {
            "orders": "flush", "bills": "flush", "ticks": "none",
        }  # fmt: skip
        with client.publisher("orders") as publisher:
            assert publisher.send(b"one").flushed


def test_a_queue_keeps_the_durability_that_it_was_created_with(
    roq_cluster: RunningCluster,
) -> None:
    address = roq_cluster.address
    assert (
        run_roq("queue", "create", "kept", "--durability", "flush", cluster=address).returncode == 0
    )
    listed = json.loads(run_roq("queue", "list", "--json", cluster=address).stdout)
    (row,) = (each for each in listed if each["name"] == "kept")
    assert row["durability"] == "flush"
    assert b"flush" in run_roq("queue", "show", "kept", cluster=address).stdout
    wrong = run_roq("queue", "create", "other", "--durability", "eternal", cluster=address)
    assert wrong.returncode == 2
    assert all(each.encode() in wrong.stderr for each in DURABILITIES)
    with roq_cluster.connect() as client:
        client.create_queue("kept", durability="flush", exists_ok=True)
        client.create_queue("kept", exists_ok=True)
        client.create_queue("plain")
        with pytest.raises(roq.QueueExists, match="with durability none, and stays so"):
            client.create_queue("plain", durability="flush", exists_ok=True)
        with pytest.raises(roq.QueueExists, match="with durability flush, and stays so"):
            client.create_queue("kept", durability="none", exists_ok=True)
        client.create_queue("plain", durability="none", exists_ok=True)
        with pytest.raises(roq.QueueExists, match="exists already and is not ordered"):
            client.create_queue("kept", exists_ok=True, limits={"ordered": 1})
        with pytest.raises(roq.QueueExists, match=r"^queue 'kept' exists already$"):
            client.create_queue("kept")
        with pytest.raises(roq.InvalidRequest, match="only none, async, flush"):
            client.create_queue("odd", durability="eternal")
        # Dead letters of a queue in memory may be kept better than what they come from.
        client.create_queue("plain.dead", durability="flush")
        with client.publisher("plain") as publisher, client.consumer("plain", "g") as consumer:
            publisher.send(b"poison")
            consumer.receive(timeout=30).reject("bad")
            consumer.flush()
        with client.subscriber("plain.dead", start="earliest") as letters:
            assert letters.receive(timeout=30).payload == b"poison"
        for name in ("plain.dead", "plain", "kept"):
            client.remove_queue(name)
