"""Chaos with real processes, for some minutes; `make chaos` goes on for an hour."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from commands import family, gone, read_line
from scenarios import played

from roq.simulation.real import machines
from roq.testing import namespaces

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]

PATIENT = ("--patience", "3")
"""The machine may do other work."""
SEED = os.environ.get("ROQ_CHAOS_SEED", "1")


def wrong(outcome: dict[str, object]) -> str:
    """What was wrong, with the steps in which it was."""
    steps = outcome["steps"]
    assert isinstance(steps, list)
    return "\n".join(
        f"step {step['number']}: {', '.join(step['faults'])}: {text}"
        for step in steps
        for text in step["violations"]
    )


NETWORK = (
    "exchange-mute", "zookeeper", "registry-part", "host", "link", "line", "clock", "disk",
    "instance-cut", "requester-cut",
)  # fmt: skip
"""What can happen to hosts of a network, or to several servers of ZooKeeper, alone."""
ANYWHERE = (
    "exchange", "monitor", "host", "registry", "gcm", "hcm", "member", "instance", "requester",
)  # fmt: skip
LONG = ("--seconds", "300")
"""It ends when each kind of fault, or as many as there is time for, has come once."""


def only(kinds: tuple[str, ...]) -> list[str]:
    return [word for kind in kinds for word in ("--only", kind)]


def happened(outcome: dict[str, object]) -> set[str]:
    """The kinds of faults."""
    steps = outcome["steps"]
    assert isinstance(steps, list)
    return {kind for step in steps for kind in step["kinds"]}


@pytest.mark.netns
@pytest.mark.timeout(480)
def test_whatever_happens_to_hosts_of_a_network_every_message_arrives_and_requests_end_once(
    tmp_path: Path,
) -> None:
    """A service, its queue and its requesters are on different hosts."""
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    outcome = played(
        "chaos", "--requests", "--seed", SEED, "--steps", "9", "--more", "1", *LONG,
        *only(NETWORK), *PATIENT, output=tmp_path, seconds=450,
    )  # fmt: skip
    assert not wrong(outcome)
    assert outcome["networked"]
    assert outcome["tally"]["received"] > 0
    assert len(happened(outcome)) >= 10
    assert {"link-cut", "instance-cut", "requester-cut"} <= happened(outcome)
    requests = outcome["requests"]
    assert isinstance(requests, dict)
    assert all(each["done"] > 0 for each in requests.values())


def test_and_on_loopback_addresses_without_any_rights(tmp_path: Path) -> None:
    outcome = played(
        "chaos", "--local", "--zookeepers", "1", "--seed", SEED, "--seconds", "12",
        "--only", "exchange", "--only", "monitor", "--only", "hcm-kill", "--only", "publisher-kill",
        "--only", "link-cut", *PATIENT, output=tmp_path,
    )  # fmt: skip
    assert not wrong(outcome)
    assert not outcome["networked"]
    assert any(text.startswith("link-cut") for text in outcome["skipped"])


@pytest.mark.timeout(480)
def test_and_of_durable_queues_nothing_is_lost_their_groups_have_all_and_requests_end_once(
    tmp_path: Path,
) -> None:
    """The registry is a file, and goes as well."""
    outcome = played(
        "chaos", "--local", "--zookeepers", "0", "--durability", "flush", "--groups",
        "--requests", "--seed", SEED, "--steps", "9", "--more", "1", *LONG, *only(ANYWHERE),
        *PATIENT, output=tmp_path, seconds=450,
    )  # fmt: skip
    assert not wrong(outcome)
    assert outcome["tally"]["counted_lost"] == 0
    assert not any("zookeeper" in kind for kind in outcome["kinds"])
    groups = outcome["groups"]
    assert isinstance(groups, dict)
    assert sorted(groups) == ["solo", "trio"]
    assert all(group["delivered"] > 0 for group in groups.values())
    requests = outcome["requests"]
    assert isinstance(requests, dict)
    assert all(each["done"] > 0 for each in requests.values())
    assert {"registry-removed", "host-kill", "member-kill", "instance-kill"} <= happened(outcome)


@contextmanager
def running(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that has begun to break things."""
    argv = [
        sys.executable,
        "-m",
        "roq.simulation.experiments.chaos",
        "--zookeepers",
        "1",
        "--seconds",
        "60",
    ]
    with subprocess.Popen(
        [*argv, *arguments, "--output", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        for line in iter(lambda: read_line(process.stdout), b""):
            if b"exchange-pause" in line:
                break
        yield process


def left(pid: int) -> list[str]:
    """What is left of the run of this process."""
    folders = [
        str(path) for path in machines.folders() if path.name.startswith(f"roq-chaos-{pid}-")
    ]
    mounts = [each.mountpoint for each in psutil.disk_partitions(all=True)]
    found = [mount for mount in mounts if f"roq-chaos-{pid}-" in mount]
    if os.geteuid() == 0:
        found += [str(path) for path in Path("/run/netns").glob(f"roq-{pid}-*")]
    return found + folders


def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path, "--only", "exchange-pause") as process:
        processes = family(process.pid)
        assert len(processes) > 10
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=40)
        assert process.returncode == 1
        assert gone(processes)
        assert not left(process.pid)


def test_the_next_run_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    with running(tmp_path, "--only", "exchange-pause") as process:
        processes = family(process.pid)
        process.kill()
        process.communicate(timeout=40)
        assert left(process.pid)
        assert machines.sweep()
        assert gone(processes)
        assert not left(process.pid)
