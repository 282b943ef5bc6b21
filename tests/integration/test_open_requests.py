"""Requests that are open: how many, what they cost, who wants them, and who hears how they end."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from commands import roq as run_roq
from commands import until

import roq
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

SAY = roq.endpoint("held.say", request=bytes, response=bytes, idempotent=True)
WAIT = roq.endpoint("held.wait", request=bytes, response=str)
FAIL = roq.endpoint("held.fail", request=str, response=int)
OUTER = roq.endpoint("outer.ask", request=bool, response=str)
COUNT = 10_000
BYTES_MAX = 2_048
"""Of one open request."""


class Held:
    """An instance whose handlers of `WAIT`, and of what begins with `b"wait"`, wait for a gate."""

    def __init__(self, client: roq.Cluster, queue: str, **given: Any) -> None:
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.runs: Counter[str] = Counter()
        self.service = client.service("held", queue, **given)
        self.service.handler(SAY)(self.say)
        self.service.handler(WAIT)(self.wait)
        self.service.handler(FAIL)(self.fail)

    def say(self, data: bytes, _context: roq.RequestContext) -> bytes:
        if data.startswith(b"wait"):
            assert self.gate.wait(100)
        return data

    def wait(self, _data: bytes, context: roq.RequestContext) -> str:
        self.begun.release()
        assert until(lambda: self.gate.is_set() or context.cancelled, 60)
        return "cancelled" if context.cancelled else "done"

    def fail(self, text: str, _context: roq.RequestContext) -> int:
        self.runs[text] += 1
        raise ValueError(text)

    def __enter__(self) -> Held:
        self.service.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self.service.close()


@pytest.fixture(scope="module")
def running(own_cluster: RunningCluster) -> RunningCluster:
    return own_cluster


@pytest.fixture
def other(running: RunningCluster) -> Iterator[roq.Cluster]:
    """A second client."""
    with running.connect() as found:
        yield found


def accepted(pending: roq.Pending[Any]) -> str:
    """The id of a request that an exchange has."""
    assert pending.accepted is not None
    assert pending.accepted.wait(20).ok
    return pending.id


# --- ten thousand ---------------------------------------------------------------------------------


@pytest.mark.long
def test_ten_thousand_that_are_made_one_by_one_need_no_further_thread_and_little_memory(
    client: roq.Cluster, other: roq.Cluster, queue: str
) -> None:
    called: Counter[bytes] = Counter()
    patient = {"send_attempts": 1_000, "result_within": 300.0, "keep_result": 300.0}

    def note(done: roq.Pending[bytes]) -> None:
        called[done.result(0)] += 1

    def ask(data: bytes) -> None:
        requester.request(SAY, data).on_done(note)

    with (
        Held(other, queue, threads=1, prefetch=1) as held,
        client.requester(queue, settings=patient) as requester,
    ):
        ask(b"first")
        assert until(lambda: called[b"first"] == 1, 20), "all threads have begun"
        threads = threading.active_count()
        tracemalloc.start()
        try:
            for number in range(COUNT):
                ask(b"wait%d" % number)
            requester.flush(100)
            assert until(lambda: requester.open == COUNT, 60)
            gc.collect()
            each = tracemalloc.get_traced_memory()[0] / COUNT
            assert each <= BYTES_MAX, f"{each:.0f} bytes"
            assert threading.active_count() == threads
            assert requester.stats.kept_bytes >= COUNT * len(b"wait1")
            held.gate.set()
            assert until(lambda: called.total() > COUNT, 100)
            assert threading.active_count() == threads
            ask(b"last")
            assert until(lambda: called[b"last"] > 0, 20), "what would be called twice was by now"
            assert until(lambda: requester.open == 0)
            names = [b"first", b"last", *(b"wait%d" % number for number in range(COUNT))]
            assert called == Counter(names), "each callback once"
            called.clear()
            gc.collect()
            left = tracemalloc.get_traced_memory()[0] / COUNT
            assert left <= each / 5, f"{left:.0f} of {each:.0f} bytes stay of what has ended"
        finally:
            tracemalloc.stop()
        assert requester.stats == roq.RequesterStats(open=0, kept_bytes=0, not_kept=0)


# --- inside a handler -----------------------------------------------------------------------------


class Outer:
    """Another service: its handler requests `WAIT`, and notes how that has ended."""

    def __init__(self, client: roq.Cluster, requester: roq.Requester, queue: str) -> None:
        self.ends: list[str] = []
        self.ended = threading.Event()
        self.cancelled = threading.Event()
        self.service = client.service("outer", queue)
        self._requester = requester
        self.service.handler(OUTER)(self.ask)

    def ask(self, inherit: bool, context: roq.RequestContext) -> str:
        inner = self._requester.request(WAIT, b"", inherit=inherit)
        assert until(lambda: context.cancelled, 60)
        self.cancelled.set()
        try:
            self.ends.append(inner.result(60))
        except roq.NoResponse as error:
            self.ends.append(error.state)
        self.ended.set()
        return ""


@pytest.mark.parametrize("inherit", [True, False])
@pytest.mark.parametrize("end", ["cancelled", "late"])
def test_what_a_handler_requests_ends_with_its_own_request_unless_it_does_not_inherit(
    client: roq.Cluster, other: roq.Cluster, queue: str, end: str, inherit: bool
) -> None:
    with (
        Held(other, queue) as held,
        other.requester(queue) as inside,
        client.requester(queue) as requester,
    ):
        outer = Outer(other, inside, queue)
        with outer.service:
            pending = requester.request(OUTER, inherit, within=2.0 if end == "late" else None)
            assert held.begun.acquire(timeout=20)
            if end == "cancelled":
                pending.cancel()
            with pytest.raises(roq.NoResponse) as caught:
                pending.result(20)
            assert caught.value.state == end
            assert outer.cancelled.wait(20)
            if not inherit:
                held.gate.set()  # it is wanted, and there is no other end of it
            assert outer.ended.wait(20)
            assert outer.ends == [end if inherit else "done"]


# --- callbacks ------------------------------------------------------------------------------------


def test_a_callback_that_blocks_holds_up_the_callbacks_of_its_client_alone(
    client: roq.Cluster, other: roq.Cluster, queue: str
) -> None:
    gate, blocked = threading.Event(), threading.Event()
    called: Counter[str] = Counter()

    def blocks(_: object) -> None:
        blocked.set()
        assert gate.wait(60)
        called["blocks"] += 1

    with (
        Held(other, queue),
        client.requester(queue) as requester,
        other.requester(queue) as elsewhere,
    ):
        held_up = requester.request(SAY, b"a")
        held_up.on_done(blocks)
        assert blocked.wait(20)
        waiting = [requester.request(SAY, b"b") for _ in range(20)]
        for each in waiting:
            each.on_done(lambda _: called.update(["waits"]))
        assert [each.result(20) for each in waiting] == [b"b"] * 20, "results come"
        assert requester.request(SAY, b"c").future().result(20) == b"c"
        assert requester.request_many(SAY, [b"d"] * 3).result(20) == [b"d"] * 3
        seen = threading.Event()
        elsewhere.request(SAY, b"e").on_done(lambda _: seen.set())
        assert seen.wait(20), "callbacks of other clients are called"
        assert not called
        for each in (held_up, *waiting):  # nothing is confirmed before its callback has returned
            assert other.response(SAY, each.id).result(20) in {b"a", b"b"}
        gate.set()
        assert until(lambda: called == {"blocks": 1, "waits": 20}, 20), "each once"


KILLED = """
import os, sys, threading, roq
say = roq.endpoint("held.say", request=bytes, response=bytes, idempotent=True)
def note(done):
    print(done.id, done.result(0).decode(), flush=True)
    threading.Event().wait(0.5)  # far longer than a retrieval waits to be confirmed
    os.kill(os.getpid(), 9)
pending = roq.connect(sys.argv[1]).requester(sys.argv[2]).request(say, b"there")
pending.on_done(note)
pending.result(20)
threading.Event().wait(60)
"""


@pytest.mark.parametrize("queue", ["none", "flush"], indirect=True)
def test_a_response_that_a_killed_requester_has_not_confirmed_is_fetched_by_another(
    running: RunningCluster, client: roq.Cluster, other: roq.Cluster, queue: str
) -> None:
    with Held(other, queue):
        made = subprocess.run(
            [sys.executable, "-c", KILLED, running.address, queue],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert made.returncode == -signal.SIGKILL, made.stderr
        name, value = made.stdout.split()
        assert value == "there", "it had arrived"
        assert client.response(SAY, name).result(20) == b"there"
        with pytest.raises(roq.ResponseRetrieved):
            client.response(SAY, name).result(20)


# --- by the id ------------------------------------------------------------------------------------


def test_a_request_is_described_from_its_beginning_until_it_is_gone(
    running: RunningCluster, client: roq.Cluster, other: roq.Cluster, queue: str
) -> None:
    def described(name: str) -> tuple[str, str]:
        found = client.describe_request(WAIT, name)
        assert found.id == name
        return found.state, found.outcome

    def stands(name: str, *wanted: str) -> bool:
        return until(lambda: described(name) == wanted, 20)

    settings = {"keep_result": 1.0}
    with (
        client.requester(queue, collect=False, settings=settings) as requester,
        Held(other, queue) as held,
    ):
        later = accepted(requester.request(WAIT, b"", delay=3_600))
        assert stands(later, "delayed", "open")
        name = accepted(requester.request(WAIT, b""))
        assert stands(name, "running", "open")
        found = client.describe_request(WAIT, name)
        assert (found.instance, found.attempts) == (held.service.instance, 1)
        assert found.since is not None
        shown = run_roq("request", "show", "held.wait", name, cluster=running.address)
        assert b"running" in shown.stdout, shown.stderr
        held.gate.set()
        assert stands(name, "done", "kept")
        assert stands(name, "expired", "gone")
        fetched = accepted(requester.request(WAIT, b""))
        assert client.response(WAIT, fetched).result(20) == "done"
        assert stands(fetched, "retrieved", "gone")
        failed = accepted(requester.request(FAIL, "no"))
        assert until(lambda: "ValueError: no" in client.describe_request(FAIL, failed).text, 20)
        told = run_roq("request", "show", "held.fail", failed, "--json", cluster=running.address)
        assert msgspec.json.decode(told.stdout)["state"] in {"failed", "expired"}
    assert described(name.rsplit("-", 2)[0] + "-999999-0") == ("never", "gone")
    assert described(f"{queue}/x0-1-0-0") == ("lost", "gone")
    with pytest.raises(roq.InvalidRequest, match="no id of a request"):
        described("7")
    with pytest.raises(roq.GroupNotFound):
        client.describe_request(OUTER, name)


def test_the_ids_of_a_queue_that_was_removed(
    client: roq.Cluster, other: roq.Cluster, running: RunningCluster
) -> None:
    client.create_queue("former")
    with Held(other, "former") as held, client.requester("former", collect=False) as requester:
        answered = accepted(requester.request(SAY, b"x"))
        assert until(lambda: client.describe_request(SAY, answered).state == "done", 20)
        with other.requester("former") as asking:
            left = asking.request(WAIT, b"")
            name = accepted(left)
            assert held.begun.acquire(timeout=20)
            client.remove_queue("former")
            with pytest.raises(roq.QueueNotFound):
                left.result(20)
    ids = [(SAY, answered), (WAIT, name)]
    for endpoint, each in ids:
        with pytest.raises(roq.QueueNotFound):
            client.response(endpoint, each).result(20)
        with pytest.raises(roq.QueueNotFound):
            client.describe_request(endpoint, each)
        told = run_roq("request", "show", endpoint.name, each, cluster=running.address)
        assert (told.returncode, told.stdout) == (1, b"")
    client.create_queue("former")
    try:
        with Held(other, "former"), client.requester("former") as requester:
            assert requester.request(SAY, b"y").result(20) == b"y", "and the name can be used again"
            for endpoint, each in ids:
                assert client.describe_request(endpoint, each).state == "lost"
                with pytest.raises(roq.ResponseLost):
                    client.response(endpoint, each).result(40)
    finally:
        client.remove_queue("former")


# --- errors that are run again --------------------------------------------------------------------


def test_an_error_is_run_again_as_often_as_it_may_and_only_if_its_pattern_is_found(
    client: roq.Cluster, other: roq.Cluster, queue: str
) -> None:
    texts = ["again please", "no", "x" * 200_000 + "again", "x" * 200_000 + "again" + "x" * 200_000]
    with (
        Held(other, queue, retry_on="ValueError: .*again", retries=2, retry=0.05) as held,
        client.requester(queue) as requester,
    ):
        for each in [requester.request(FAIL, text) for text in texts]:
            with pytest.raises(roq.RequestFailed, match="Traceback") as caught:
                each.result(30)
            assert len(str(caught.value).encode()) <= 65 * 1024, "what is told has a bound"
        assert [held.runs[text] for text in texts] == [3, 1, 1, 1], "what is cut is not seen"


PATTERN = """
import sys, roq
bad = roq.endpoint("bad.fail", request=bytes, response=bytes)
service = roq.connect(sys.argv[1]).service("bad", sys.argv[2], retry_on="(a+)+!", lease=2.0)
@service.handler(bad)
def fail(data, context):
    print("begun", flush=True)
    raise ValueError("a" * 60)  # no processor ever comes to the end of this search
service.start()
print("ready", flush=True)
service.run()
"""


@pytest.mark.long
def test_a_pattern_that_never_ends_stops_its_instance_alone(
    running: RunningCluster, client: roq.Cluster, other: roq.Cluster, queue: str
) -> None:
    bad = roq.endpoint("bad.fail", request=bytes, response=bytes)
    process = subprocess.Popen(
        [sys.executable, "-c", PATTERN, running.address, queue], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with client.requester(queue) as requester, Held(other, queue):
            stuck = requester.request(bad, b"x")
            assert process.stdout.readline() == b"begun\n"
            assert requester.request(SAY, b"x").result(20) == b"x", "others are answered"
            with pytest.raises(roq.RequestUnknown, match="lost"):
                stuck.result(40)
            assert requester.request(SAY, b"y").result(20) == b"y"
            assert process.poll() is None, "it searches on"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
