"""Requests and responses with real processes: instances, requesters and exchanges that die."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import roq as run_roq
from commands import until
from serving import AGAIN, ONCE

import roq
import roq.aio
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parent.parent / "support" / "serving.py"
ECHO = roq.endpoint("echo.say", request=bytes, response=bytes, idempotent=True)
SLOW = roq.endpoint("echo.slow", request=float, response=str)
FAIL = roq.endpoint("echo.fail", request=str, response=int)
ALL = roq.endpoint("echo.all", request=int, response=int)
GONE = roq.endpoint("echo.gone", request=bytes, response=bytes)
BOTH = pytest.mark.parametrize("queue", ["none", "flush"], indirect=True)


@pytest.fixture(scope="module")
def running(own_cluster: RunningCluster) -> RunningCluster:
    return own_cluster


def echo(client: roq.Cluster, queue: str, **given: Any) -> roq.Service:
    """A service of this process."""
    service = client.service("echo", queue, **given)

    @service.handler(ECHO)
    def say(data: bytes, context: roq.RequestContext) -> bytes:
        return data + context.headers.get("mark", "").encode()

    @service.handler(SLOW)
    def slow(seconds: float, context: roq.RequestContext) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not context.cancelled:
            threading.Event().wait(0.01)
        return "cancelled" if context.cancelled else "done"

    @service.handler(ALL, batch=100)
    def all_of(numbers: list[int], contexts: list[roq.RequestContext]) -> list[int | BaseException]:
        assert len(numbers) == len(contexts) <= 100
        return [ValueError(n) if n == 13 else n + 1 for n in numbers]

    @service.handler(FAIL)
    async def fail(text: str, context: roq.RequestContext) -> int:
        if context.attempt > 1:
            return context.attempt
        raise ValueError(text)

    return service


class Instance:
    """An instance in a process of its own."""

    def __init__(
        self, running: RunningCluster, queue: str, path: Path, seconds: float = 0.0,
        *prefetch: int, flags: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *flags, running.address, queue, str(path), str(seconds),
             *map(str, prefetch)]
        )  # fmt: skip
        assert until(lambda: "ready" in self.lines(), 20)

    def lines(self) -> list[str]:
        return self.path.read_text().split("\n") if self.path.exists() else []

    def begun(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith("begin")]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        assert self.process.wait(20) == 0


# --- ways to the response -------------------------------------------------------------------------


def test_many_large_responses_and_one_that_no_message_holds(client: roq.Cluster) -> None:
    limits = {"message_bytes": 200_000, "batch_bytes": 1_000}
    client.create_queue("large", limits=limits)
    service = client.service("large", "large", threads=2)
    endpoint = roq.endpoint("large.make", request=int, response=bytes, idempotent=True)
    service.handler(endpoint)(lambda size, _: bytes(size))
    with service, client.requester("large") as requester:
        made = [requester.request(endpoint, 150_000) for _ in range(20)]
        too_large = requester.request(endpoint, 300_000)
        assert [len(each.result(20)) for each in made] == [150_000] * 20
        with pytest.raises(roq.RequestFailed, match="its response has 300000 bytes"):
            too_large.result(20)
    client.remove_queue("large")


@BOTH
def test_a_response_comes_by_result_future_callback_and_id(
    client: roq.Cluster, running: RunningCluster, queue: str
) -> None:
    with echo(client, queue), client.requester(queue) as requester:
        assert requester.request(ECHO, b"a", headers={"mark": "!"}).result(10) == b"a!"
        assert requester.request(ECHO, b"b").future().result(10) == b"b"
        called: list[bytes] = []
        ready = threading.Event()

        def note(done: roq.Pending[bytes]) -> None:
            called.append(done.result())
            ready.set()

        requester.request(ECHO, b"c").on_done(note)
        assert ready.wait(10)
        assert called == [b"c"]
        pending, fetched = requester.request(SLOW, 0.3), threading.Event()
        pending.on_done(lambda _: fetched.wait(20))  # its retrieval is confirmed afterwards
        assert pending.accepted is not None
        assert pending.accepted.wait(10).ok
        with running.connect() as other:
            assert other.response(SLOW, pending.id).result(10) == "done"
        fetched.set()
        assert pending.result(10) == "done"
        assert requester.send(ECHO, b"nobody waits").wait(10).ok
        began = time.monotonic()
        delayed = requester.request(ECHO, b"d", headers={"mark": "?"}, delay=1.0)
        unwanted = requester.request(ECHO, b"e", delay=3600.0)
        assert unwanted.accepted is not None
        assert unwanted.accepted.wait(10).ok
        unwanted.cancel()
        with pytest.raises(roq.RequestCancelled):
            unwanted.result(10)
        assert delayed.result(20) == b"d?"
        assert time.monotonic() - began >= 0.9, "nobody has had it before"
        many = requester.request_many(ECHO, [b"%d" % n for n in range(300)])
        assert [each.result(10) for each in many] == [b"%d" % n for n in range(300)]
        some = requester.request_many(ALL, list(range(1_000)))
        results = some.results(20)
        assert isinstance(results[13], roq.RequestFailed)
        assert "ValueError: 13" in str(results[13]), "one fails alone"
        assert results[:13] + results[14:] == [n + 1 for n in range(1_000) if n != 13]


@BOTH
def test_of_what_waits_for_an_instance_the_highest_priority_goes_first(
    client: roq.Cluster, queue: str
) -> None:
    begun: list[bytes] = []
    may_end = threading.Event()
    service = client.service("echo", queue, threads=1, prefetch=1)

    @service.handler(ECHO)
    def say(data: bytes, context: roq.RequestContext) -> bytes:
        begun.append(data + context.headers.get("mark", "").encode())
        assert may_end.wait(30)
        return data

    def waiting() -> int:
        return next(each.waiting for each in client.groups(queue, "echo"))

    with service, client.requester(queue) as requester:
        made = [requester.request(ECHO, b"first")]
        assert until(lambda: begun == [b"first"], 20)
        made += [requester.request(ECHO, b"low %d" % n) for n in range(3)]
        made.append(requester.request(ECHO, b"delayed", priority=5, delay=0.1))
        many = requester.request_many(ECHO, [b"high", b"high"], priority=9, headers={"mark": "!"})
        assert requester.send(ECHO, b"sent", priority=7).wait(10).ok
        assert until(lambda: waiting() == 7, 20), "the exchange has looked at all of them"
        may_end.set()
        assert [each.result(20) for each in made] == [
            b"first", b"low 0", b"low 1", b"low 2", b"delayed"
        ]  # fmt: skip
        assert many.result(20) == [b"high", b"high"]
    assert begun == [
        b"first", b"high!", b"high!", b"sent", b"delayed", b"low 0", b"low 1", b"low 2"
    ]  # fmt: skip


@pytest.mark.long
def test_ten_thousand_open_requests_need_no_further_thread(client: roq.Cluster, queue: str) -> None:
    with client.requester(queue, settings={"result_within": 3.0, "send_attempts": 100}) as made:
        made.request(ECHO, b"first")
        threads = threading.active_count()
        pendings = made.request_many(ECHO, [b"x"] * 10_000)
        made.flush()
        assert threading.active_count() == threads
        assert until(lambda: all(each.done() for each in pendings), 20)
        assert {each.state for each in pendings} == {"late"}
        assert made.open == 0


def test_asyncio_has_the_same(running: RunningCluster, queue: str) -> None:
    async def play() -> None:
        async with roq.aio.connect(running.address) as client:
            service = client.service("echo", queue)

            @service.handler(ECHO)
            async def say(data: bytes, context: roq.RequestContext) -> bytes:
                return data.upper()

            async with service, await client.requester(queue) as requester:
                assert await (await requester.request(ECHO, b"a")) == b"A"
                pending = await requester.request(ECHO, b"b")
                assert pending.accepted is not None
                assert (await pending.accepted).ok
                called = asyncio.Event()

                async def note(done: roq.aio.Pending[bytes]) -> None:
                    called.set()

                pending.on_done(note)
                assert await pending.result(10) == b"B"
                async with asyncio.timeout(10):
                    await called.wait()
                many = await requester.request_many(ECHO, [b"x"] * 100)
                assert [await each for each in many] == [b"X"] * 100
                assert await many == [b"X"] * 100
                assert await many.result(10) == [b"X"] * 100

    asyncio.run(play())


# --- each end -------------------------------------------------------------------------------------


def test_what_a_handler_raises_fails_and_may_be_run_again(client: roq.Cluster, queue: str) -> None:
    with (
        echo(client, queue, retry_on="again please", retries=1, retry=0.1),
        client.requester(queue) as requester,
    ):
        with pytest.raises(roq.RequestFailed, match="ValueError: no") as caught:
            requester.request(FAIL, "no").result(10)
        assert "Traceback" in str(caught.value)
        assert requester.request(FAIL, "again please").result(10) == 2
        with pytest.raises(roq.RequestFailed, match=r"\.\.\."):
            requester.request(FAIL, "x" * 200_000).result(10)


@pytest.mark.long
def test_each_reason_for_which_a_request_is_discarded(client: roq.Cluster, queue: str) -> None:
    settings = {"send_attempts": 2, "send_wait": 0.5, "confirm_within": 0.5}
    with client.requester(queue, settings=settings) as requester:
        with pytest.raises(roq.RequestDiscarded, match="no instance of service echo is registered"):
            requester.request(ECHO, b"x").result(10)
        with echo(client, queue, available=lambda _: False):
            assert until(lambda: "unavailable" in told(requester), 20)
        with echo(client, queue, threads=1, prefetch=1):
            slow = requester.request(SLOW, 20.0)
            assert until(lambda: "busy" in told(requester), 20)
            slow.cancel()
            with pytest.raises(roq.RequestCancelled):
                slow.result(10)
            assert until(lambda: not told(requester), 20)
            with pytest.raises(roq.RequestDiscarded, match=r"has no endpoint echo\.gone"):
                requester.request(GONE, b"x").result(10)


def told(requester: roq.Requester) -> str:
    """What is told of a request now."""
    try:
        requester.request(ECHO, b"x").result(10)
    except roq.NoResponse as error:
        return str(error)
    return ""


@pytest.mark.long
def test_an_instance_that_confirms_nothing_loses_what_it_was_offered(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    instance = Instance(running, queue, tmp_path / "a")
    try:
        with client.requester(queue) as requester:
            assert requester.request(AGAIN, 1).result(10) == 2, "it may take a while to be known"
        settings = {"send_attempts": 1, "confirm_within": 0.5}
        with client.requester(queue, settings=settings) as requester:
            instance.process.send_signal(signal.SIGSTOP)
            stopped = psutil.Process(instance.process.pid)
            assert until(lambda: stopped.status() == psutil.STATUS_STOPPED)
            with pytest.raises(roq.RequestDiscarded, match="not confirmed within"):
                requester.request(AGAIN, 2).result(10)
    finally:
        instance.end()


def test_an_instance_that_comes_in_time_is_used(client: roq.Cluster, queue: str) -> None:
    with client.requester(queue) as requester:
        pending = requester.request(ECHO, b"x")
        assert pending.accepted is not None
        pending.accepted.wait(5)
        with echo(client, queue):
            assert pending.result(10) == b"x"


def test_lives_end(client: roq.Cluster, queue: str) -> None:
    settings = {"keep_result": 0.5, "result_within": 5.0}
    with echo(client, queue), client.requester(queue, settings=settings) as requester:
        late = requester.request(SLOW, 20.0, within=0.5)
        with pytest.raises(roq.RequestLate):
            late.result(10)
        early = requester.request(SLOW, 20.0)
        assert early.accepted is not None
        early.accepted.wait(5)
        early.cancel()
        with pytest.raises(roq.RequestCancelled):
            early.result(10)
        assert until(lambda: client.describe_service(queue, "echo").stored == 0)
        with pytest.raises(roq.ResponseRetrieved):
            client.response(SLOW, early.id).result(10)
        left = requester.request(SLOW, 0.5)
        assert left.accepted is not None
        left.accepted.wait(5)
    with client.requester(queue) as other, echo(client, queue):
        assert other.request(ECHO, b"x").result(10) == b"x"
        # It was running when its service closed, and must not be run again. Nobody has fetched it.
        assert until(lambda: client.describe_service(queue, "echo").open == 0)
        assert until(lambda: client.describe_service(queue, "echo").stored == 0)
        with pytest.raises((roq.RequestUnknown, roq.ResponseExpired)):
            client.response(SLOW, left.id).result(10)
        never = left.id.rsplit("-", 2)[0] + "-999999-0"
        with pytest.raises(roq.NeverRequested):
            client.response(SLOW, never).result(10)
        lost = f"{queue}/x0-1-0-0"
        with pytest.raises(roq.ResponseLost):
            client.response(SLOW, lost).result(10)


@pytest.mark.parametrize("within", [0, -1, 1e9, float("nan"), "soon"])
def test_times_that_cannot_be(client: roq.Cluster, queue: str, within: Any) -> None:
    with client.requester(queue) as requester, pytest.raises(roq.InvalidRequest, match="within"):
        requester.request(ECHO, b"x", within=within)


def test_bad_input_is_named(client: roq.Cluster, queue: str) -> None:
    with pytest.raises(roq.InvalidRequest, match="no setting of a service: speed"):
        client.requester(queue, settings={"speed": 1})
    with pytest.raises(roq.InvalidRequest, match="settings of a service"):
        client.requester(queue, settings={"keep_result": -1})
    with pytest.raises(roq.InvalidRequest, match="no regular expression"):
        client.service("echo", queue, retry_on="(")
    with pytest.raises(roq.InvalidRequest, match="threads"):
        client.service("echo", queue, threads=0)
    with pytest.raises(roq.InvalidRequest, match="has no handler"):
        client.service("echo", queue).start()
    with pytest.raises(roq.InvalidRequest, match="not one of service"):
        client.service("other", queue).handler(ECHO)(lambda data, _: data)
    bulk = roq.endpoint("bulk.say", request=bytes, response=bytes)
    with client.requester(queue) as requester, pytest.raises(roq.MessageTooLarge):
        requester.request(bulk, bytes(100_000_000))
    with pytest.raises(roq.QueueNotFound):
        client.response(ECHO, "removed/x1-1-0-0").result(10)
    with client.consumer(queue, "echo"):
        with pytest.raises(roq.InvalidRequest, match="consumer group"):
            echo(client, queue).start()
        with (
            client.requester(queue) as requester,
            pytest.raises(roq.InvalidRequest, match="consumer group"),
        ):
            requester.request(ECHO, b"x")
        with pytest.raises(roq.GroupNotFound, match="has no service echo"):
            client.describe_service(queue, "echo")


def test_what_cannot_be_read_or_encoded_fails_and_harms_nobody(
    client: roq.Cluster, queue: str
) -> None:
    other_type = roq.endpoint("echo.fail", request=int, response=int)
    bad = roq.endpoint("echo.bad", request=bytes, response=int)
    service = echo(client, queue)

    @service.handler(bad)
    def answer_badly(data: bytes, context: roq.RequestContext) -> int:
        return data  # type: ignore[return-value]

    with service, client.requester(queue) as requester:
        with pytest.raises(roq.RequestFailed, match="the request is no"):
            requester.request(other_type, 7).result(10)
        with pytest.raises(roq.RequestFailed, match="TypeError: it is bytes, not int"):
            requester.request(bad, b"x").result(10)
        with pytest.raises(roq.InvalidRequest, match="cannot be encoded"):
            requester.request(ECHO, 7)  # type: ignore[arg-type]
        with client.publisher(queue) as publisher:
            publisher.send(b"", topic="echo/say")
            publisher.send(b"no envelope at all", topic="echo/say")
        assert requester.request(ECHO, b"x").result(10) == b"x"


@pytest.mark.long
def test_an_availability_function_that_raises_makes_its_instance_unavailable(
    client: roq.Cluster, queue: str
) -> None:
    def raises(state: roq.InstanceState) -> bool:
        raise RuntimeError("broken")

    settings = {"send_attempts": 2, "send_wait": 0.5}
    with (
        echo(client, queue, available=raises),
        client.requester(queue, settings=settings) as requester,
    ):
        assert until(lambda: "RuntimeError: broken" in told(requester), 20)


def test_a_callback_that_raises_or_blocks_harms_nobody(client: roq.Cluster, queue: str) -> None:
    gate = threading.Event()

    def blocks(_: object) -> None:
        assert gate.wait(20)
        raise RuntimeError("a callback of a test")

    with echo(client, queue), client.requester(queue) as requester:
        requester.request(ECHO, b"a").on_done(blocks)
        assert requester.request(ECHO, b"b").result(10) == b"b"
        gate.set()
        assert requester.request(ECHO, b"c").result(10) == b"c"


# --- who hangs, or is slow ------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("endpoint", [AGAIN, ONCE], ids=["again", "once"])
@pytest.mark.parametrize("prefetch", [None, 8])
def test_what_is_behind_handlers_that_hang_is_run_elsewhere(
    running: RunningCluster, client: roq.Cluster, queue: str,
    endpoint: roq.Endpoint[int, int], prefetch: int | None,
) -> None:  # fmt: skip
    gate = threading.Event()

    def hang(number: int, _: roq.RequestContext) -> int:
        gate.wait(30)
        return -number

    hung = client.service("test", queue, threads=2, prefetch=prefetch)
    hung.handler(endpoint)(hang)
    with running.connect() as other, client.requester(queue) as requester, hung:
        first = [requester.request(endpoint, number) for number in range(12)]
        held = (prefetch or 2) if endpoint is AGAIN else 2  # the others are not begun
        assert until(lambda: hung.state.busy == 2 and hung.stats.received >= held, 20)
        idle = other.service("test", queue, threads=2)
        idle.handler(endpoint)(lambda number, _: 2 * number)
        with idle:
            began = time.monotonic()
            rest = first + [requester.request(endpoint, number) for number in range(12, 40)]
            assert until(lambda: sum(each.done() for each in rest) == 38, 20)
            assert time.monotonic() - began < 3.0
            received = hung.stats.received
            threading.Event().wait(1.5)
            assert hung.stats.received <= received + 1, "it is given nothing that it cannot begin"
            gate.set()
            results = [each.result(20) for each in rest]
            assert sorted(results) == sorted(
                -n if result < 0 or not n else 2 * n for n, result in enumerate(results)
            )
            assert sum(each == -n for n, each in enumerate(results) if n) <= 2


def test_an_instance_that_was_slow_takes_requests_again(
    client: roq.Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roq.client.request.handling.LATELY_SECONDS", 2.0)
    patient = {"send_attempts": 100}
    with (
        echo(client, queue, available=lambda state: state.response_ms < 100) as service,
        client.requester(queue, settings=patient) as requester,
    ):
        assert requester.request(SLOW, 0.5).result(10) == "done"
        assert until(
            lambda: not client.describe_service(queue, "echo").instances[0].figures.available, 20
        )
        assert requester.request(ECHO, b"x").result(20) == b"x"
        assert service.state.response_ms < 100


# --- who dies -------------------------------------------------------------------------------------


@pytest.mark.long
@BOTH
def test_instances_that_are_killed(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    """Each request has one end; what may be run again is done, what may not is run once at most."""
    first = Instance(running, queue, tmp_path / "a", 0.05)
    second = Instance(running, queue, tmp_path / "b", 0.05)
    with client.requester(queue, settings={"run_attempts": 5, "send_attempts": 20}) as requester:
        again = [requester.request(AGAIN, number) for number in range(100)]
        once = [requester.request(ONCE, number) for number in range(1_000, 1_100)]
        assert until(lambda: len(first.begun()) >= 10, 20)
        first.kill()
        assert [each.result(30) for each in again] == [2 * number for number in range(100)]
        ends: Counter[str] = Counter()
        for number, each in enumerate(once, start=1_000):
            with suppress(roq.RequestUnknown):
                assert each.result(30) == 2 * number
            ends[each.state] += 1
        assert ends["done"] + ends["unknown"] == 100
        assert ends["unknown"] <= 8
    begun = Counter(n for n in first.begun() + second.begun() if n >= 1_000)
    assert max(begun.values()) == 1, "nothing is begun twice that must not be"
    second.end()


@pytest.mark.parametrize(
    ("endpoint", "seconds"), [(AGAIN, 0.8), (ONCE, 0.8), (ONCE, 0.0)], ids=["again", "once", "soon"]
)
def test_what_an_instance_held_and_never_began_is_run_elsewhere_when_it_is_killed(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path,
    endpoint: roq.Endpoint[int, int], seconds: float,
) -> None:  # fmt: skip
    first = Instance(running, queue, tmp_path / "a", 60.0, 40)
    patient = {"run_attempts": 1, "send_wait": 10.0}  # the second one may take its time to begin
    with client.requester(queue, settings=patient) as requester:
        made = [requester.request(endpoint, number) for number in range(20)]
        assert until(lambda: len(first.begun()) == 4, 20)
        threading.Event().wait(seconds)  # it is looked at what runs
        first.kill()
        second = Instance(running, queue, tmp_path / "b")
        assert until(lambda: all(each.done() for each in made), 20)
        ends = {number: each.state for number, each in enumerate(made)}
        assert {number for number in ends if ends[number] == "unknown"} == set(first.begun())
        assert Counter(ends.values()) == {"unknown": 4, "done": 16}
        second.end()


@pytest.mark.long
def test_an_instance_that_stood_still_can_neither_begin_nor_answer(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    instance = Instance(running, queue, tmp_path / "a", 0.2)
    with client.requester(queue) as requester:
        once = [requester.request(ONCE, number) for number in range(4)]
        assert until(lambda: len(instance.begun()) == 4, 20)
        instance.process.send_signal(signal.SIGSTOP)
        for each in once:
            with pytest.raises(roq.RequestUnknown):
                each.result(20)
        instance.process.send_signal(signal.SIGCONT)
        assert requester.request(AGAIN, 7).result(20) == 14
        assert [each.state for each in once] == ["unknown"] * 4
    instance.end()
    assert len(instance.begun()) == 5


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), ("--asyncio",)], ids=["threads", "asyncio"])
def test_an_instance_that_is_told_to_end_finishes_and_gives_back(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path, flags: Sequence[str]
) -> None:
    first = Instance(running, queue, tmp_path / "a", 0.3, flags=flags)
    patient = {"send_wait": 10.0}  # the second one may take its time to begin
    with client.requester(queue, settings=patient) as requester:
        once = [requester.request(ONCE, number) for number in range(12)]
        assert until(lambda: len(first.begun()) >= 2, 20)
        first.process.terminate()
        second = Instance(running, queue, tmp_path / "b")
        assert [each.result(20) for each in once] == [2 * number for number in range(12)]
    assert first.process.wait(20) == 0
    second.end()
    assert max(Counter(first.begun() + second.begun()).values()) == 1


@pytest.mark.parametrize("queue", ["flush"], indirect=True)
def test_an_exchange_that_is_killed_goes_on_with_its_log(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    instance = Instance(running, queue, tmp_path / "a", 0.1)
    settings = {"send_attempts": 60, "keep_result": 60.0}
    with client.requester(queue, settings=settings) as requester:
        kept = requester.request(AGAIN, 77)
        assert kept.accepted is not None
        assert kept.accepted.wait(10).ok
        requests = [requester.request(AGAIN, number) for number in range(40)]
        once = [requester.request(ONCE, number) for number in range(1_000, 1_040)]
        assert until(lambda: len(instance.begun()) >= 8, 20)
        kill_exchange(queue)
        assert [each.result(40) for each in requests] == [2 * n for n in range(40)]
        states: Counter[str] = Counter()
        for each in once:
            with suppress(roq.NoResponse):
                each.result(40)
            states[each.state] += 1
        assert set(states) <= {"done", "unknown"}
    begun = Counter(number for number in instance.begun() if number >= 1_000)
    assert max(begun.values()) == 1
    instance.end()


@pytest.mark.long
def test_a_volatile_exchange_that_is_killed_takes_its_requests_along(
    running: RunningCluster, client: roq.Cluster, queue: str, tmp_path: Path
) -> None:
    """What may be run again is sent once more; of the rest it is said that it may have run."""
    instance = Instance(running, queue, tmp_path / "a", 1.0)
    with client.requester(queue, settings={"send_attempts": 60}) as requester:
        again = [requester.request(AGAIN, number) for number in range(4)]
        once = [requester.request(ONCE, number) for number in range(1_000, 1_004)]
        requester.flush()
        assert until(lambda: len(instance.begun()) >= 4, 20)
        kill_exchange(queue)
        assert [each.result(40) for each in again] == [2 * n for n in range(4)]
        for each in once:
            with pytest.raises(roq.RequestUnknown):
                each.result(40)
    begun = Counter(number for number in instance.begun() if number >= 1_000)
    assert max(begun.values(), default=1) == 1
    instance.end()


@BOTH
def test_a_requester_that_is_killed_leaves_its_response_to_another(
    running: RunningCluster, client: roq.Cluster, queue: str
) -> None:
    program = (
        "import os, sys, roq\n"
        "slow = roq.endpoint('echo.slow', request=float, response=str)\n"
        "cluster = roq.connect(sys.argv[1])\n"
        "pending = cluster.requester(sys.argv[2]).request(slow, 0.5)\n"
        "pending.accepted.wait(10)\n"
        "print(pending.id, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with echo(client, queue):
        made = subprocess.run(
            [sys.executable, "-c", program, running.address, queue],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert made.returncode == -signal.SIGKILL
        assert client.response(SLOW, made.stdout.strip()).result(10) == "done"


def test_many_threads_share_one_requester(client: roq.Cluster, queue: str) -> None:
    with (
        echo(client, queue),
        client.requester(queue) as requester,
        ThreadPoolExecutor(8) as pool,
    ):
        payloads = [b"%d" % number for number in range(800)]
        found = list(pool.map(lambda data: requester.request(ECHO, data).result(20), payloads))
        assert found == payloads


def exchanges_of(queue: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if "roq.exchange" in line and f"{queue}.x" in line:
            found.append(process)
    return found


def kill_exchange(queue: str) -> None:
    """Its process ends at once; its host manager starts the next one."""
    before = exchanges_of(queue)
    assert before, "an exchange runs"
    for process in before:
        process.kill()


def test_requests_are_made_and_seen_from_the_command_line(
    running: RunningCluster, client: roq.Cluster, queue: str
) -> None:
    anything = roq.endpoint("desk.double", request=int, response=int)
    desk = client.service("desk", queue)
    headers: list[dict[str, str]] = []

    @desk.handler(anything)
    def double(number: int, context: roq.RequestContext) -> int:
        headers.append(dict(context.headers))
        return 2 * number

    with desk:
        sent = run_roq("request", "send", queue, "desk.double", "21", cluster=running.address)
        assert sent.stdout.split() == [b"42"], sent.stderr
        marked = run_roq(
            "request", "send", queue, "desk.double", "3", "--priority", "5", "--header", "a=b=c",
            "--header", "by=me", cluster=running.address,
        )  # fmt: skip
        assert marked.stdout.split() == [b"6"], marked.stderr
        assert headers == [{}, {"a": "b=c", "by": "me"}]
        told = run_roq(
            "request", "send", queue, "desk.double", "4", "--wait", "0", cluster=running.address
        )
        name = told.stdout.decode().strip()
        assert until(lambda: client.describe_service(queue, "desk").stored == 1)
        [row] = client.describe_service(queue, "desk").requests
        assert (row.id, row.state) == (name, "done")
        fetched = run_roq("response", "get", "desk.double", name, cluster=running.address)
        assert fetched.stdout.split() == [b"8"], fetched.stderr
        again = run_roq("response", "get", "desk.double", name, cluster=running.address)
        assert b"fetched already" in again.stderr
        for arguments in ((), ("--json",)):
            gone = run_roq(
                "request", "cancel", "desk.double", name, *arguments, cluster=running.address
            )
            assert (gone.returncode, gone.stdout) == (1, b"")
            assert b"fetched already" in gone.stderr
        assert client.services(queue) == ["desk"]
        shown = run_roq("service", "show", queue, "desk", cluster=running.address)
        assert b"available" in shown.stdout
        assert b"desk.double" in shown.stdout
        failed = roq.endpoint("desk.double", request=str, response=int)
        with client.requester(queue, collect=False) as requester:
            name = requester.request(failed, "no number")
            requester.flush(10)
        assert until(lambda: client.describe_service(queue, "desk").counts.get("failed") == 1)
        for arguments in (
            ("request", "retry", "desk.double", name.id),
            ("service", "flag", queue, "desk", "--off"),
        ):
            told = run_roq(*arguments, cluster=running.address)
            assert told.returncode == 0, told.stderr
        assert until(lambda: client.describe_service(queue, "desk").counts.get("failed") == 2)
        assert until(lambda: not desk.state.flag)
        told = run_roq("service", "drain", queue, "desk", cluster=running.address)
        assert told.stdout.decode().split()[-1] == desk.instance, told.stderr
        desk.wait_stopped()
