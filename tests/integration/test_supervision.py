"""`roq up` keeps its cluster running: what dies is started again, what keeps dying is told."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import alive, environment, family, gone, read_line, read_ready, roq, started, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

WORDS = {"zookeeper": "QuorumPeerMain", "gcm": "roq.gcm", "host 127.0.0.1": "roq.hcm"}


def processes(up: subprocess.Popen[bytes], word: str) -> list[psutil.Process]:
    """The live processes of a cluster that have this word on their command line."""
    found = []
    for process in family(up.pid):
        try:
            if alive(process) and word in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def kill_all(up: subprocess.Popen[bytes], word: str) -> bool:
    """Kill those of a cluster that have this word on their command line; whether there was one."""
    found = processes(up, word)
    for process in found:
        process.kill()
    return bool(found)


def configuration(process: psutil.Process) -> list[str]:
    """The files that it was started with."""
    return [word for word in process.cmdline() if word.endswith((".toml", ".cfg"))]


def is_done(*arguments: str, cluster: str) -> bool:
    return roq(*arguments, cluster=cluster).returncode == 0


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    env = environment(ROQ_GCM_ZK_SESSION_SECONDS="3")
    with started("up", "--port-base", "0", "--registry", "zookeeper", env=env) as process:
        yield process, read_ready(process)["client"]
        process.terminate()
        assert process.wait(40) == 0


@pytest.mark.parametrize("part", list(WORDS))
def test_a_part_that_dies_is_started_again_where_it_was(
    part: str, up: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, cluster = up
    (old,) = processes(process, WORDS[part])
    files = configuration(old)
    old.kill()
    assert read_line(process.stderr).startswith(f"{part} was ended by SIGKILL; it is".encode())
    new: list[psutil.Process] = []

    def is_back() -> bool:
        # Java executes itself once more when it starts, and has no command line for a moment.
        new[:] = new or processes(process, WORDS[part])
        return bool(new)

    assert until(is_back)
    assert until(lambda: configuration(new[0]) == files)
    if part != "zookeeper":  # which says nothing; that changes are possible shows it
        assert read_line(process.stderr) == f"{part} serves again\n".encode()
    name = f"after-{WORDS[part]}"
    assert until(lambda: is_done("queue", "create", name, "--exists-ok", cluster=cluster))


def test_what_goes_on_dying_ends_the_cluster_and_its_log_stays(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    with started("up", "--port-base", "0", env=env) as up:
        read_ready(up)
        everything = family(up.pid)
        for _ in range(5):
            assert until(lambda: bool(processes(up, "roq.gcm")) or up.poll() is not None)
            for process in processes(up, "roq.gcm"):
                everything.append(process)
                process.kill()
                gone([process])
        _, err = up.communicate(timeout=40)
        assert up.returncode == 70
        last = err.decode().split("giving up")[1]
        assert "gcm was ended by SIGKILL and has ended 5 times within 60 s" in err.decode()
        assert gone(everything)
        log = Path(last.split("Its log is ")[1].splitlines()[0])
        assert log.is_relative_to(tmp_path)
        assert log.exists()


def test_nothing_is_left_of_a_host_whose_manager_is_dead_at_the_end(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    with started("up", "--port-base", "0", "--hosts", "2", env=env) as up:
        cluster = read_ready(up)["client"]
        assert is_done("queue", "create", "orders", "--host", "127.0.0.2", cluster=cluster)
        everything = family(up.pid)
        # Twice: the second time there is a pause before it is started again.
        for _ in range(2):
            assert until(lambda: kill_all(up, "host-127.0.0.2.toml"))
            while b"was ended by SIGKILL" not in (line := read_line(up.stderr)):
                assert b"serves again" in line  # it was faster than the signal
            everything += family(up.pid)
        up.send_signal(signal.SIGINT)
        assert up.wait(40) == 0
        assert gone(everything)
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_stop_is_named_and_killed(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    with started("up", "--port-base", "0", env=env) as up:
        read_ready(up)
        everything = family(up.pid)
        (manager,) = processes(up, "roq.gcm")
        manager.suspend()
        up.send_signal(signal.SIGINT)
        assert read_line(up.stderr) == b"gcm has not stopped within 10 s and is killed\n"
        assert up.wait(60) == 0
        assert gone(everything)


def test_an_even_number_of_servers_is_refused_with_the_reason(tmp_path: Path) -> None:
    refused = roq(
        "up", "--port-base", "0", "--zookeepers", "2", env=environment(TMPDIR=str(tmp_path))
    )
    assert refused.returncode == 78
    assert b"more than half" in refused.stderr
    assert list(tmp_path.iterdir()) == []
