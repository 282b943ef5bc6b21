"""`roq top` and the statistics stream against a real cluster."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest
from commands import DEADLINE_SECONDS, ROQ, environment, read_line, roq, started, until

from roq.client.admin.statistics import StreamState
from roq.protocol.kpi import ExchangeKpi, QueueKpi
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def queue(roq_cluster: RunningCluster) -> Iterator[str]:
    name = "top"
    with roq_cluster.connect() as cluster:
        cluster.create_queue(name)
        yield name
        cluster.remove_queue(name)


def test_one_picture_shows_exchanges_publishers_and_subscribers(
    roq_cluster: RunningCluster, queue: str
) -> None:
    address = roq_cluster.address
    with roq_cluster.connect() as cluster:
        with (
            cluster.publisher(queue, name="till-7") as publisher,
            cluster.subscriber(queue) as subscriber,
        ):
            publisher.publish(b"x" * 1_000)
            assert subscriber.receive(30) is not None
            text = ""

            def is_complete() -> bool:
                nonlocal text
                text = roq("top", queue, "--once", cluster=address).stdout.decode()
                return "1 exchange · 1 publisher · 1 subscriber" in text

            assert until(is_complete), text
            shown = json.loads(roq("top", queue, "--once", "--json", cluster=address).stdout)
        assert "till-7" in text
        assert shown["state"] == "running"
        [row] = shown["view"]["exchanges"]
        assert (row["exchange"], row["publishers"], row["subscribers"]) == ("x1", 1, 1)


def test_the_overview_has_a_line_for_each_queue(roq_cluster: RunningCluster, queue: str) -> None:
    def is_running() -> bool:
        text = roq("top", "--once", cluster=roq_cluster.address).stdout.decode()
        [line] = [line for line in text.splitlines() if line.startswith(f"{queue} ")]
        return "running" in line

    assert until(is_running)


def test_a_queue_that_is_not_there_is_an_error(roq_cluster: RunningCluster) -> None:
    done = roq("top", "nothing", cluster=roq_cluster.address)
    assert done.returncode == 1
    assert b"roq queue list" in done.stderr


def test_it_goes_on_while_the_queue_stops_and_starts_and_ends_with_ctrl_c(
    roq_cluster: RunningCluster, queue: str
) -> None:
    with started(
        "top", queue, "--json", "--interval", "0.1",
        env=environment(ROQ_CLUSTER=roq_cluster.address),
    ) as top, roq_cluster.connect() as cluster:  # fmt: skip

        def says(state: str, exchanges: int) -> bool:
            document = json.loads(read_line(top.stdout))
            return document["state"] == state and len(document["view"]["exchanges"]) == exchanges

        assert until(lambda: says("running", 1))
        cluster.stop_queue(queue)
        assert until(lambda: says("stopped", 0))
        cluster.start_queue(queue)
        assert until(lambda: says("running", 1))
        top.send_signal(signal.SIGINT)
        _, err = top.communicate(timeout=40)
        assert top.returncode == 0
        assert err == b""


def test_queue_show_tells_throughput_and_publishers(
    roq_cluster: RunningCluster, queue: str
) -> None:
    address = roq_cluster.address
    with roq_cluster.connect() as cluster, cluster.publisher(queue) as publisher:
        publisher.publish(b"x")
        publisher.flush()
        assert until(
            lambda: (
                json.loads(roq("queue", "show", queue, "--json", cluster=address).stdout)[
                    "activity"
                ]["publisher_count"]
                == 1
            )
        )
        assert "Throughput in" in roq("queue", "show", queue, cluster=address).stdout.decode()


def test_the_stream_says_whether_its_queue_is_there(
    roq_cluster: RunningCluster, queue: str
) -> None:
    with roq_cluster.connect() as cluster:
        with cluster.statistics(queue) as statistics:
            kinds: set[type] = set()
            while not {ExchangeKpi, QueueKpi} <= kinds:
                sample = statistics.receive(30)
                assert sample is not None, kinds
                kinds.add(type(sample.document))
            assert statistics.state is StreamState.LIVE
            assert statistics.limits is not None
        with cluster.statistics("nothing") as statistics:
            assert until(lambda: statistics.state is StreamState.MISSING)
            assert "nothing" in statistics.reason


def test_keys_show_another_queue_and_the_help_and_q_quits(
    roq_cluster: RunningCluster, queue: str
) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen = b""

    def shows(text: bytes) -> bool:
        nonlocal seen
        if select.select([controller], [], [], 0.1)[0]:
            seen += os.read(controller, 65_536)
        return text in seen

    def press(key: bytes, text: bytes) -> None:
        nonlocal seen
        seen = b""
        pressed = time.monotonic()
        os.write(controller, key)
        while not shows(text):
            assert time.monotonic() - pressed < DEADLINE_SECONDS, seen

    env = environment(ROQ_CLUSTER=roq_cluster.address, TERM="xterm")
    command = [*ROQ, "top", "--interval", "0.2"]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=env
    ) as process:
        try:
            assert until(lambda: shows(queue.encode()))
            press(b"?", b"KEYS")
            press(b"x", b"QUEUE")
            press(b"n", b"/min each")
            os.write(controller, b"q")
            assert until(lambda: shows(b"\0never\0") or process.poll() is not None)
            assert process.returncode == 0
        finally:
            if process.poll() is None:
                process.kill()
    os.close(controller)
    os.close(terminal)
