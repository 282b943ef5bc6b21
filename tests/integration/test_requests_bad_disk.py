"""A service whose queue is on a disk that is full, or that does not keep what it was given: each
request has an outcome that says so, or is done later, and other queues go on."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from commands import until
from fake_control import ThreadExchange
from watched import Scene

import roq
from roq.log.disk import DiskFiles
from roq.testing import RunningCluster, cluster

pytestmark = pytest.mark.integration

AGAIN: Final = roq.endpoint("echo.again", request=bytes, response=int, idempotent=True)
ONCE: Final = roq.endpoint("echo.once", request=bytes, response=int)
SMALL_DISK: Final = "3m"
LARGE: Final = 50_000
MANY: Final = 80


@contextmanager
def serving(client: roq.Cluster, queue: str) -> Iterator[roq.Service]:
    service = client.service("echo", queue)
    service.handler(AGAIN)(lambda data, _: len(data))
    service.handler(ONCE)(lambda data, _: len(data))
    with service:
        yield service


def test_a_full_disk_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    logs = tmp_path / "host-127.0.0.1" / "logs"
    logs.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "none", str(logs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root: a small disk has to be mounted")
    try:
        with cluster(data_dir=tmp_path) as running:
            on_a_full_disk(running, logs)
    finally:
        subprocess.run(["umount", "-l", str(logs)], check=True)


def on_a_full_disk(running: RunningCluster, logs: Path) -> None:
    with running.connect() as client, running.connect() as services:
        client.create_queue("full", durability="flush")
        client.create_queue("memory", durability="none")
        with (
            serving(services, "full"),
            serving(services, "memory"),
            client.requester("memory") as other,
            client.requester("full") as requester,
        ):
            made = [
                requester.request(ONCE if each % 2 else AGAIN, os.urandom(LARGE))
                for each in range(MANY)
            ]
            assert until(lambda: "disk_full" in requester.trouble, 30)
            assert str(logs) in requester.trouble
            assert other.request(AGAIN, b"abc").result(5) == 3, "nobody else is affected"
            accepted = [each for each in made if each.accepted and each.accepted.done()]
            assert 10 < len(accepted) < MANY
            assert {each.result(20) for each in accepted} == {LARGE}, "what is accepted is done"
            late = requester.request(AGAIN, b"late", within=1)
            with pytest.raises(roq.Unavailable, match=r"time is over.*disk_full"):
                late.result(20)
            assert late.accepted.status is None
            assert other.request(ONCE, b"abcd").result(5) == 4
            subprocess.run(["mount", "-o", "remount,size=64m", str(logs)], check=True)
            assert {each.result(30) for each in made} == {LARGE}, "there is room: the rest as well"
            assert late.accepted.wait(20).ok, "it was refused no more"
            assert client.describe_request(AGAIN, late.id).state == "late", "nobody has begun it"


def test_a_disk_that_keeps_nothing_is_named_and_the_rest_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The syncs of one exchange fail from some moment on: another one takes what comes."""
    failing = threading.Event()
    sync, beside = DiskFiles.sync, DiskFiles.sync_beside

    def fails(call: Callable[[DiskFiles, str], None]) -> Callable[[DiskFiles, str], None]:
        def checked(files: DiskFiles, name: str) -> None:
            if failing.is_set():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            call(files, name)

        return checked

    monkeypatch.setattr(DiskFiles, "sync", fails(sync))
    monkeypatch.setattr(DiskFiles, "sync_beside", fails(beside))
    scene.exchanges[0].kill()
    scene.exchanges[0] = durable = ThreadExchange(scene.control, 1, 3, log=str(tmp_path / "log"))
    scene.serve(1, 2)
    with (
        roq.connect(scene.control.address) as services,
        roq.connect(scene.control.address) as client,
        serving(services, "orders"),
        client.requester("orders", settings={"send_attempts": 60}) as requester,
    ):
        assert requester.request(ONCE, b"kept").result(20) == 4
        failing.set()
        made = [requester.request(ONCE if each % 2 else AGAIN, bytes(each)) for each in range(10)]
        assert until(lambda: "cannot write its log" in durable.server._disk.failure, 20)
        # As its monitor does when it hears of it.
        scene.control.relocate(requester._publisher.id, scene.info(2))
        for size in range(0, 10, 2):
            assert made[size].result(20) == size, "what may be begun again is done elsewhere"
        # The others may be in its log, so they wait for it: for another process, and a disk that
        # keeps again what it is given.
        assert {each.done() for each in made[1::2]} == {False}
        durable.kill()
        failing.clear()
        scene.exchanges[0] = ThreadExchange(scene.control, 1, 4, log=str(tmp_path / "log"))
        scene.serve(1, 2)
        for size in range(1, 10, 2):
            with suppress(roq.RequestUnknown):
                assert made[size].result(40) == size
        assert {each.state for each in made[1::2]} <= {"done", "unknown"}
        assert requester.request(ONCE, b"next").result(20) == 4
