"""What people and machines do to a cluster: it says clearly what is wrong, and the rest goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from commands import environment, roq, started, until
from kazoo.client import KazooClient

from roq.runtime import exits
from roq.testing import RunningCluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

CROWD = 1_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster(
        registry="zookeeper",
        hosts=2,
        restart=True,
        gcm={"zk": {"session_seconds": 2.0}},
        hcm={"children": {"crashes_most": 3, "crash_window_seconds": 600.0}},
    ) as made:
        with made.connect() as connection:
            connection.create_queue("steady", host="127.0.0.2")
        yield made


@pytest.fixture(autouse=True)
def nothing_else_is_affected(running: RunningCluster) -> Iterator[None]:
    """Whatever a test does: a message through a queue of its own arrives, before and after."""
    with (
        running.connect() as connection,
        connection.subscriber("steady") as subscriber,
        connection.publisher("steady") as publisher,
    ):
        publisher.publish(b"before")
        assert subscriber.receive(timeout=30).payload == b"before"
        yield
        publisher.publish(b"after")
        assert subscriber.receive(timeout=30).payload == b"after"


@contextmanager
def registry(running: RunningCluster) -> Iterator[KazooClient]:
    zookeeper = KazooClient(hosts=running.registry)
    zookeeper.start()
    try:
        yield zookeeper
    finally:
        zookeeper.stop()
        zookeeper.close()


def configuration(running: RunningCluster, host: str, folder: Path, **changes: str) -> Path:
    """The file of one of the host managers, with some lines changed."""
    lines = (running.folder / f"host-{host}.toml").read_text().splitlines()
    for key, value in changes.items():
        lines = [f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in lines]
    path = folder / "hcm.toml"
    path.write_text("\n".join(lines))
    return path


def health(running: RunningCluster) -> dict[str, dict[str, object]]:
    """Role and name → what `roq health` says."""
    document = json.loads(roq("health", "--json", cluster=running.address).stdout)
    return {f"{each['role']} {each['name']}": each for each in document["daemons"]}


def wrong(running: RunningCluster, daemon: str) -> str:
    """What it says to be wrong with itself; nothing if it does not answer in time."""
    return str(health(running).get(daemon, {}).get("wrong", ""))


def ready(running: RunningCluster, daemon: str) -> bool:
    return health(running).get(daemon, {}).get("ready") is True


def child(running: RunningCluster, name: str) -> psutil.Process | None:
    """The process of a monitor or exchange of this cluster."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if words and words[-1].startswith(str(running.folder)) and f"/{name}." in words[-1]:
            return process
    return None


# --- the registry ---------------------------------------------------------------------------------


def test_garbage_in_the_registry_costs_the_queue_that_it_stands_for(
    running: RunningCluster,
) -> None:
    with registry(running) as zookeeper:
        zookeeper.create("/RoQ/queues/broken", b"\xff not JSON")
        zookeeper.create("/RoQ/queues/broken/a\u00a0b", None)
        zookeeper.create("/RoQ/queues/nothing", None)
        zookeeper.create("/RoQ/queues/steady/foreign", b"what is this?")
        zookeeper.create("/RoQ/queues/no name!", b"that of no queue")
        zookeeper.create("/RoQ/hosts/ghost", b"garbage", ephemeral=True)
        zookeeper.create("/RoQ/candidates/zzz", b"\xff\xfe", ephemeral=True)
        copied = f"/RoQ/candidates/c-{0:032x}-{0:010}"
        zookeeper.create(copied, zookeeper.get("/RoQ/leader")[0])
        pid = running.pid("gcm")
        psutil.Process(pid).kill()
        assert until(lambda: running.pid("gcm") != pid)
        assert until(lambda: "ghost" in str(health(running).get("host ghost")))
        zookeeper.delete("/RoQ/hosts/ghost")
        waited = roq("health", "--wait", "35", "--hosts", "2", cluster=running.address)
        assert waited.returncode == 0, waited.stdout
        assert until(lambda: "broken" in wrong(running, f"gcm {running.address}"))
        refused = roq("queue", "create", "broken", cluster=running.address)
        assert refused.returncode == 1
        assert b"registry" in refused.stderr
        removed = roq("queue", "remove", "broken", cluster=running.address)
        assert removed.returncode == 0, removed.stderr
        assert roq("queue", "remove", "nothing", cluster=running.address).returncode == 0
        zookeeper.delete(copied)
        assert roq("queue", "create", "broken", cluster=running.address).returncode == 0
        assert roq("queue", "remove", "broken", cluster=running.address).returncode == 0


def test_what_is_deleted_in_the_registry_is_there_again_and_all_goes_on(
    running: RunningCluster,
) -> None:
    with registry(running) as zookeeper:

        def queue() -> object:
            node = "/RoQ/queues/steady"
            found = json.loads(zookeeper.get(node)[0]) if zookeeper.exists(node) else {}
            return found.get("queue_id")

        def identity() -> bytes:
            node = "/RoQ/cluster"
            return zookeeper.get(node)[0] if zookeeper.exists(node) else b""

        before = (queue(), identity())
        for path in ("/RoQ/queues", "/RoQ/cluster", "/RoQ/leader", "/RoQ/hosts/127.0.0.2"):
            delete(zookeeper, path)
            assert until(lambda: (queue(), identity()) == before)
        waited = roq("health", "--wait", "35", "--hosts", "2", cluster=running.address)
        assert waited.returncode == 0, waited.stdout
        assert roq("queue", "create", "later", cluster=running.address).returncode == 0
        assert roq("queue", "remove", "later", cluster=running.address).returncode == 0


def delete(zookeeper: KazooClient, path: str) -> None:
    """A node with all below it, at once: nobody writes anything back in the meantime."""
    below = [path]
    for each in below:
        below += [f"{each}/{name}" for name in zookeeper.get_children(each)]
    transaction = zookeeper.transaction()
    for each in reversed(below):
        transaction.delete(each)
    assert transaction.commit() == [True] * len(below)


# --- host managers --------------------------------------------------------------------------------


def test_a_host_manager_with_a_name_that_is_taken_ends_and_says_by_whom(
    running: RunningCluster, tmp_path: Path
) -> None:
    path = configuration(
        running, "127.0.0.2", tmp_path, port="0", dir=json.dumps(str(tmp_path / "data"))
    )
    with started("host", "--config", str(path)) as second:
        assert second.wait(40) == exits.CONFIG
        assert second.stderr is not None
        assert b"is host 127.0.0.2 already, and it answers" in second.stderr.read()


def test_a_child_that_ends_at_once_every_time_is_given_up_and_named(
    running: RunningCluster,
) -> None:
    with running.connect() as connection:
        connection.create_queue("dying", host="127.0.0.1")

        def is_given_up() -> bool:
            victim = child(running, "dying.x1")
            if victim is not None:
                victim.kill()
            rows = {row.host: row for row in connection.hosts()}
            states = {each.child: each for each in rows["127.0.0.1"].children}
            return states["dying.x1"].state == "failed"

        assert until(is_given_up)
        said = "dying.x1 is failed: ended 3 times within 600 s"
        assert until(lambda: said in wrong(running, "host 127.0.0.1"))
        assert not ready(running, "host 127.0.0.1")

        def is_listed() -> bool:
            listed = roq("queue", "list", cluster=running.address).stdout.decode()
            return "degraded" in listed and "dying: x1 has failed" in listed

        assert until(is_listed)
        connection.start_queue("dying")
        assert until(lambda: ready(running, "host 127.0.0.1"))
        connection.remove_queue("dying")


def test_a_host_whose_clock_is_a_day_ahead_works_like_any_other(
    running: RunningCluster, tmp_path: Path
) -> None:
    library = _a_day_ahead(tmp_path)
    path = configuration(
        running,
        "127.0.0.2",
        tmp_path,
        port="0",
        bind='"127.0.0.3"',
        dir=json.dumps(str(tmp_path / "data")),
    )
    env = environment(LD_PRELOAD=str(library))
    with started("host", "--config", str(path), env=env) as late, running.connect() as connection:
        assert until(
            lambda: ("127.0.0.3", "live") in {(row.host, row.state) for row in connection.hosts()}
        )
        connection.create_queue("tomorrow", host="127.0.0.3")
        with (
            connection.subscriber("tomorrow") as subscriber,
            connection.publisher("tomorrow") as publisher,
        ):
            publisher.publish(b"x")
            assert subscriber.receive(timeout=30).payload == b"x"
        # Several reports and looks of the leader later it is still there.
        assert until(lambda: ready(running, "host 127.0.0.3"))
        connection.remove_queue("tomorrow")
        late.terminate()
        assert late.wait(40) == exits.STOPPED
        assert late.stderr is not None
        assert time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86_400)) in (
            late.stderr.read().decode()
        )


def _a_day_ahead(folder: Path) -> Path:
    """A library that puts the wall clock of a process a day ahead."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for a clock that is wrong")
    source, library = folder / "ahead.c", folder / "ahead.so"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <time.h>\n"
        "int clock_gettime(clockid_t clock, struct timespec *found) {\n"
        "    static int (*real)(clockid_t, struct timespec *);\n"
        '    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");\n'
        "    int result = real(clock, found);\n"
        "    if (clock == CLOCK_REALTIME) found->tv_sec += 86400;\n"
        "    return result;\n}\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
