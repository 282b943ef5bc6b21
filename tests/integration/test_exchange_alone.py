"""An exchange process whose host manager is gone, whose monitor is, or which was replaced."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from answering import Answering
from exchange_process import QUEUE, Peers, Process, running
from waiting import eventually

from roq.model import Limits
from roq.protocol.channel import RESET
from roq.protocol.control import Control, ExchangeAck, ExchangeReport, Located
from roq.protocol.framing import split_answer

pytestmark = pytest.mark.integration
DEAD = "tcp://127.0.0.1:1"
SOON = {"manager": DEAD, "kpi_seconds": 0.25}
"""An answer counts within a period: long enough for one who has to wait for the processor."""
ANSWERED = 16
"""Questions until the first monitor is silent and the second one is there."""


@pytest.fixture
def world() -> Iterator[Answering]:
    with Answering() as world:
        yield world


def locating(monitor: Callable[[], str]) -> Callable[[Control], Control]:
    """A configuration manager that knows where the monitor is."""
    return lambda _: Located(
        QName="q", queue_id=QUEUE, monitor=monitor(), statistics="", limits=Limits()
    )


def reports(world: Answering, monitor: str) -> list[ExchangeReport]:
    return [each for each in world.asked_at(monitor) if isinstance(each, ExchangeReport)]


def serving(world: Answering, monitor: str, process: Process) -> None:
    """Let the process be found by what it reports."""
    world.run(lambda: reports(world, monitor))
    process.data = reports(world, monitor)[0].exchange.data


def test_it_finds_its_monitor_and_a_newer_one_without_its_host_manager(
    tmp_path: Path, world: Answering
) -> None:
    monitors = [
        world.server(lambda _: ExchangeAck(epoch=1) if len(world.asked) < ANSWERED else None),
        world.server(lambda _: ExchangeAck(epoch=2)),
    ]
    manager = world.server(locating(lambda: monitors[len(world.asked) > ANSWERED]))
    with running(tmp_path, monitor=DEAD, managers=[DEAD, manager], **SOON):
        world.run(lambda: len(reports(world, monitors[0])) > 5)
        world.run(lambda: len(reports(world, monitors[1])) > 5)
        world.run(lambda: reports(world, monitors[0])[-1].monitor == 2)


def test_it_lives_on_as_long_as_its_monitor_counts_on_it(tmp_path: Path, world: Answering) -> None:
    wanted = True
    monitor = world.server(lambda _: ExchangeAck(epoch=1) if wanted else None)
    with running(tmp_path, monitor=monitor, orphan_seconds=2.5, **SOON) as process:
        world.run(lambda: len(reports(world, monitor)) > 14)
        assert process.process.poll() is None
        wanted = False
        world.run(lambda: process.process.poll() is not None)
        assert process.wait() == 0
        assert "no word from the host manager" in process.log


def test_one_that_was_stopped_and_replaced_meanwhile_acknowledges_nothing_any_more(
    tmp_path: Path, world: Answering, peers: Peers
) -> None:
    replaced = False
    monitor = world.server(lambda _: ExchangeAck(code="stale_epoch" if replaced else "", epoch=1))
    with running(tmp_path, monitor=monitor, **SOON) as process:
        serving(world, monitor, process)
        publisher = peers.publisher(process)
        publisher.send(b"before")
        publisher.settle()
        os.kill(process.process.pid, signal.SIGSTOP)
        replaced = True
        began = time.monotonic()
        world.run(lambda: time.monotonic() - began > 1.0)
        os.kill(process.process.pid, signal.SIGCONT)
        world.run(lambda: process.process.poll() is not None)
        assert process.wait() == 0
        assert "newer process" in process.log


def test_without_a_descriptor_left_it_serves_whom_it_has_and_says_what_is_wrong(
    tmp_path: Path, peers: Peers
) -> None:
    with running(tmp_path) as process:
        publisher = peers.publisher(process)
        there = len(list(Path(f"/proc/{process.process.pid}/fd").iterdir()))
        few = (there + 4, there + 4)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, few)
        crowd = [peers.dealer(process.data) for _ in range(20)]
        eventually(lambda: "no descriptor is left" in process.log, "the line that says so")
        publisher.send(b"x")
        publisher.settle()
        for each in crowd:
            each.close(0)
        peers.publisher(process, "late").send(b"x")


def test_it_accepts_nothing_as_long_as_its_monitor_has_it_retired(
    tmp_path: Path, world: Answering, peers: Peers
) -> None:
    retire = True
    monitor = world.server(lambda _: ExchangeAck(epoch=1, retire=retire))
    with running(tmp_path, monitor=monitor, **SOON) as process:
        serving(world, monitor, process)
        world.run(lambda: reports(world, monitor)[-1].retired)
        publisher = peers.publisher(process)
        publisher.send(b"x")
        since = len(reports(world, monitor))
        world.run(lambda: len(reports(world, monitor)) > since + 4)
        assert reports(world, monitor)[-1].load.end_offset == 0
        retire = False
        world.run(lambda: not reports(world, monitor)[-1].retired)
        while split_answer(publisher.socket.recv())[0] != RESET:
            continue
        publisher.number = 0
        publisher.send(b"x")
        publisher.settle()
