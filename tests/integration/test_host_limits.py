"""What a host manager does when its machine gives it nothing any more: no disk, no descriptors."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from reported import reported
from waiting import eventually

import roq
import roq.testing
from roq.errors import RoQError
from roq.protocol.public_answers import ProcessSummary
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration
DISK = "1m"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on a small disk of its own."""
    folder = tmp_path_factory.mktemp("small-disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root: a small disk has to be mounted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def running(disk: Path) -> Iterator[RunningCluster]:
    with roq.testing.cluster(hcm={"data": {"dir": str(disk)}}) as found:
        yield found


def is_tried_in_vain(child: ProcessSummary) -> bool:
    return child.state == "restarting" and "Too many open files" in child.reason


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Nothing can be written there."""
    filler = disk / "filler"
    try:
        filler.write_bytes(bytes(shutil.disk_usage(disk).free))
        yield
    finally:
        filler.unlink()


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """A process may open nothing more."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_now = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_on_a_full_disk_a_start_fails_with_the_reason_and_nobody_else_is_touched(
    cluster: roq.Cluster, disk: Path
) -> None:
    cluster.create_queue("here")
    names = ("here.monitor", "here.x1")
    eventually(lambda: {reported(cluster, name).state for name in names} == {"running"})
    before = [reported(cluster, name) for name in names]
    with full(disk):
        with pytest.raises(RoQError, match="No space left on device; make room"):
            cluster.create_queue("there")
        assert [reported(cluster, name) for name in names] == before
    cluster.create_queue("there")
    cluster.remove_queue("there")
    cluster.remove_queue("here")


def test_without_descriptors_a_child_is_tried_again_until_there_are_some(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    cluster.create_queue("tried")
    before = reported(cluster, "tried.x1")
    manager = running.pid("host 127.0.0.1")
    with no_descriptors(manager):
        os.kill(before.pid, signal.SIGKILL)
        eventually(lambda: is_tried_in_vain(reported(cluster, "tried.x1")))
        with pytest.raises(RoQError, match="LimitNOFILE"):
            cluster.create_queue("refused")
        assert psutil.pid_exists(manager)
    eventually(lambda: reported(cluster, "tried.x1").state == "running")
    cluster.remove_queue("tried")
