"""Every command against a running cluster."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from commands import read_line, roq, started, until

from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

_serial = count(1)


@pytest.fixture
def queue(roq_cluster: RunningCluster) -> Iterator[str]:
    name = f"commands-{next(_serial)}"
    with roq_cluster.connect() as cluster:
        cluster.create_queue(name, host=roq_cluster.hosts[0])
        yield name
        cluster.remove_queue(name)


def test_the_life_of_a_queue(roq_cluster: RunningCluster) -> None:
    address = roq_cluster.address

    def states() -> dict[str, str]:
        listed = roq("queue", "list", "--json", cluster=address)
        return {row["name"]: row["state"] for row in json.loads(listed.stdout)}

    limits = ("--limit", "ring_bytes=1048576", "--limit", "exchanges_max=1")
    created = roq("queue", "create", "life", *limits, cluster=address)
    assert (created.returncode, created.stdout) == (0, b"queue life is running\n")
    again = roq("queue", "create", "life", cluster=address)
    assert again.returncode == 1
    assert b"--exists-ok" in again.stderr
    assert roq("queue", "create", "life", "--exists-ok", cluster=address).returncode == 0
    shown = json.loads(roq("queue", "show", "life", "--json", cluster=address).stdout)
    assert shown["limits"]["ring_bytes"] == 1_048_576
    assert shown["limits"]["exchanges_max"] == 1
    assert roq("queue", "stop", "life", cluster=address).returncode == 0
    assert states()["life"] == "stopped"
    assert roq("queue", "start", "life", cluster=address).returncode == 0
    assert states()["life"] == "running"
    removed = roq("queue", "remove", "life", "--json", cluster=address)
    assert json.loads(removed.stdout) == {"ok": True, "queue": "life"}
    assert "life" not in states()


def test_exchanges_and_hosts_are_listed(roq_cluster: RunningCluster, queue: str) -> None:
    address = roq_cluster.address
    for _ in range(2):
        added = roq(
            "exchange", "add", queue, "--host", "127.0.0.2", "--transaction", queue, cluster=address
        )
        assert added.returncode == 0, added.stderr
    rows = json.loads(roq("exchange", "list", queue, "--json", cluster=address).stdout)
    assert [(row["name"], row["host"]) for row in rows] == [
        ("x1", "127.0.0.1"),
        ("x2", "127.0.0.2"),
    ]
    table = roq("exchange", "list", queue, cluster=address).stdout.decode()
    assert table.startswith("EXCHANGE")
    assert "x2" in table
    assert "creation" in table
    assert "manual" in table
    hosts = json.loads(roq("host", "list", "--json", cluster=address).stdout)
    assert [(row["host"], row["state"]) for row in hosts] == [
        ("127.0.0.1", "live"),
        ("127.0.0.2", "live"),
    ]
    assert "127.0.0.2" in roq("host", "list", cluster=address).stdout.decode()
    assert queue in roq("queue", "show", queue, cluster=address).stdout.decode()


def test_rules_are_set_and_shown(roq_cluster: RunningCluster, queue: str) -> None:
    address = roq_cluster.address
    none = json.loads(roq("rules", "show", queue, "--json", cluster=address).stdout)
    assert (none["set"], none["policy"], none["exchanges_max"]) == (False, "balanced", 4)
    given = ("--host-cpu", "80", "--name", "mine", "--policy", "static", "--max", "7")
    done = roq("rules", "set", queue, *given, cluster=address)
    assert done.returncode == 0, done.stderr
    shown = json.loads(roq("rules", "show", queue, "--json", cluster=address).stdout)
    assert (shown["set"], shown["name"], shown["host_cpu_percent"]) == (True, "mine", 80)
    assert (shown["policy"], shown["exchanges_max"]) == ("static", 7)
    assert b"80 %" in roq("rules", "show", queue, cluster=address).stdout


def test_lines_go_in_and_come_out(roq_cluster: RunningCluster, queue: str, tmp_path: Path) -> None:
    address = roq_cluster.address
    lines = [f"line {number} \u00e9".encode() for number in range(20_000)]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines))
    with started("sub", queue, "--topic", "a.", "--count", "20001", cluster=address) as sub:
        assert sub.stderr is not None
        assert b"Subscribed" in read_line(sub.stderr)
        assert roq("pub", queue, "--topic", "b", cluster=address, stdin=b"other\n").returncode == 0
        done = roq("pub", queue, str(path), "--topic", "a.1", cluster=address)
        assert done.returncode == 0, done.stderr
        assert done.stdout == b""
        assert b"Published 20,000 messages" in done.stderr
        last = roq("pub", queue, "--topic", "a.2", "--json", cluster=address, stdin=b"\xff\n")
        assert json.loads(last.stdout)["messages"] == 1
        out, _ = sub.communicate(timeout=60)
        assert sub.returncode == 0
    received = out.split(b"\n")
    assert received[:20_000] == lines
    assert received[20_000:] == [b"\xff", b""]


def test_what_is_still_there_can_be_read_as_json(roq_cluster: RunningCluster, queue: str) -> None:
    address = roq_cluster.address
    assert roq("pub", queue, "--topic", "t", cluster=address, stdin=b"one\n\xfftwo").returncode == 0
    read = roq("sub", queue, "--from", "earliest", "--count", "2", "--json", "-q", cluster=address)
    assert read.stderr == b""
    first, second = map(json.loads, read.stdout.splitlines())
    assert (first["topic"], first["payload"], first["sequence"]) == ("t", "one", 0)
    assert second["payload_base64"] == "/3R3bw=="
    assert second["publisher"] == first["publisher"]


def test_attributes_go_in_and_come_out(roq_cluster: RunningCluster, queue: str) -> None:
    address = roq_cluster.address
    given = ("--key", "4711", "--tag", "paid", "--tag", "eu", "--property", "till=7=8")
    assert roq("pub", queue, *given, cluster=address, stdin=b"one\ntwo\n").returncode == 0
    assert roq("pub", queue, cluster=address, stdin=b"plain\n").returncode == 0
    read = roq("sub", queue, "--from", "earliest", "--count", "3", "--json", "-q", cluster=address)
    rows = {row["payload"]: row for row in map(json.loads, read.stdout.splitlines())}
    for payload in ("one", "two"):
        told = [rows[payload][name] for name in ("key", "tags", "properties")]
        assert told == ["4711", ["paid", "eu"], {"till": "7=8"}]
    assert not rows["plain"].keys() & {"key", "tags", "properties"}
    wrong = roq("pub", queue, "--property", "till", cluster=address, stdin=b"one\n")
    assert (wrong.returncode, b"'till' is not of the form NAME=TEXT" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_sub_ends_quietly_at_a_signal(
    roq_cluster: RunningCluster, queue: str, number: signal.Signals
) -> None:
    with started("sub", queue, cluster=roq_cluster.address) as sub:
        assert sub.stderr is not None
        assert b"Subscribed" in read_line(sub.stderr)
        sub.send_signal(number)
        out, err = sub.communicate(timeout=60)
        assert (sub.returncode, out, err) == (0, b"", b"")


def test_sub_ends_quietly_when_its_reader_has_gone(roq_cluster: RunningCluster, queue: str) -> None:
    with started("sub", queue, "-q", "--from", "earliest", cluster=roq_cluster.address) as sub:
        assert sub.stdout is not None
        assert sub.stderr is not None
        sub.stdout.close()

        def ended_after_another_line() -> bool:
            roq("pub", queue, "-q", cluster=roq_cluster.address, stdin=b"x\n")
            return sub.poll() is not None

        assert until(ended_after_another_line)
        assert (sub.returncode, sub.stderr.read()) == (0, b"")


def test_watch_tells_the_configuration(roq_cluster: RunningCluster, queue: str) -> None:
    told = roq("watch", "--count", "1", "--json", cluster=roq_cluster.address)
    state = json.loads(told.stdout)
    assert queue in [row["name"] for row in state["queues"]]
    assert state["hosts"] == ["127.0.0.1", "127.0.0.2"]
    assert queue in roq("watch", "--count", "1", cluster=roq_cluster.address).stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["queue", "show", "nothing"], 1, b"roq queue list"),
        (["queue", "remove", "nothing"], 1, b"roq queue list"),
        (["queue", "create", "a/b"], 2, b"valid queue name"),
        (["queue", "create", "q", "--host", "127.0.0.9"], 1, b"roq host list"),
        (["pub", "nothing"], 1, b"roq queue list"),
        (["sub", "nothing"], 1, b"roq queue list"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_is_one_clear_line(
    roq_cluster: RunningCluster, arguments: list[str], code: int, words: bytes
) -> None:
    ended = roq(*arguments, cluster=roq_cluster.address)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == b""
    assert words in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_cluster_that_is_not_there_is_said_to_be_so() -> None:
    ended = roq("queue", "list", "--cluster", "127.0.0.1:1", "--timeout", "0.5")
    assert ended.returncode == 1
    assert b"127.0.0.1:1" in ended.stderr
    assert b"roq up" in ended.stderr
