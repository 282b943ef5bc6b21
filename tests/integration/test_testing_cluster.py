"""`roq.testing.cluster()`: what tests of other programs rely on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from commands import until

from roq.errors import ConfigError, InvalidRequest, Unavailable
from roq.local.launcher import StartFailed
from roq.testing import RunningCluster, cluster

pytestmark = pytest.mark.integration


def test_another_cluster_runs_beside_the_first_one(roq_cluster: RunningCluster) -> None:
    with cluster(hosts=1, gcm={"broadcast": {"period": 200}}) as second:
        assert second.hosts == ("127.0.0.1",)
        assert second.address != roq_cluster.address
        with second.connect() as one, roq_cluster.connect() as other:
            one.create_queue("only-here")
            assert one.queue_exists("only-here")
            assert not other.queue_exists("only-here")
        folder = second.folder
        pids = [second.pid(part) for part in ("gcm", "host 127.0.0.1")]
        assert all(psutil.pid_exists(pid) for pid in pids)
        with pytest.raises(InvalidRequest, match=r"host 127\.0\.0\.1"):
            second.pid("host 127.0.0.9")
        second.stop()
        second.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not folder.exists()


def test_a_part_that_ends_unasked_is_told_and_the_rest_is_still_stopped() -> None:
    with cluster(registry="zookeeper") as running:
        os.kill(running.pid("gcm"), signal.SIGKILL)
        assert until(lambda: running.ended() == ["gcm"])
        zookeeper = running.pid("zookeeper")
    assert not psutil.pid_exists(zookeeper)


def test_what_cannot_start_is_raised_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(StartFailed, match="broadcast"), cluster(gcm={"broadcast": {"period": 1}}):
        pytest.fail("it started")
    with pytest.raises(ConfigError, match="1 to 250"), cluster(hosts=0):
        pytest.fail("it started")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(Unavailable, match="JAVA_HOME"), cluster(registry="zookeeper"):
        pytest.fail("it started")
    assert list(tmp_path.iterdir()) == []
