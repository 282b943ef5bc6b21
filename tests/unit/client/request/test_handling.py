"""What becomes of the runs of handlers: in threads and in a loop, whatever handlers do."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from time import monotonic, time_ns
from typing import Any, NoReturn, cast

import msgspec
import pytest
from commands import until

import roq
from roq.client.consume.holding import RETURNED
from roq.client.consume.message import Settlement
from roq.client.request.context import CURRENT
from roq.client.request.endpoint import endpoint
from roq.client.request.handling import LATELY_SECONDS, Handling
from roq.client.request.instance_shell import InstanceShell
from roq.client.request.request_holding import HandlerResult, RequestHolding
from roq.errors import brief
from roq.model import LogId, PublisherId
from roq.protocol.requesting import ENVELOPE, ENVELOPE_VERSION, SILENT, RequestState
from roq.read.message import Batch

TEXT = endpoint("s.text", request=str, response=str)


class Mute(ValueError):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS = [
    SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), Mute(),
    OSError("\ud800"),
]  # fmt: skip


class Unreadable:
    """A codec for which nothing is a request."""

    def encode(self, value: Any) -> bytes:
        return cast("bytes", value)

    def decode(self, data: bytes, kind: Any) -> NoReturn:
        raise Mute


class PaperShell:
    """Notes what is told of requests, in order."""

    def __init__(self) -> None:
        self.told: SimpleQueue[HandlerResult | Settlement] = SimpleQueue()
        self.runs: SimpleQueue[list[tuple[int, HandlerResult | Settlement]]] = SimpleQueue()

    def answer(self, _holding: object, index: int, answers: list[HandlerResult]) -> None:
        self.runs.put(list(enumerate(answers, index)))
        for answered in answers:
            self.told.put(answered)

    def settle(self, holding: Any, index: int, count: int, verdict: Settlement) -> None:
        assert not verdict.counted
        assert holding.settle(index, count, RETURNED) == count
        self.runs.put([(each, verdict) for each in range(index, index + count)])

    def give_back(self, _holding: object, index: int, verdict: Settlement) -> None:
        self.runs.put([(index, verdict)])
        self.told.put(verdict)


class Instance:
    """One thread for handlers, and one loop."""

    def __init__(self) -> None:
        self.shell = PaperShell()
        self.now = 0.0
        self.handling = Handling(
            "s", "work", "here", 1, re.compile("again"), 1, lambda: self.now or monotonic()
        )
        self.handling.shell = cast("InstanceShell", self.shell)

    def on(self, handler: Any, of: roq.Endpoint[Any, Any] = TEXT, most: int = 0) -> None:
        self.handling.register(of, handler, most)

    def run_all(self, values: list[object], *, flags: int = 0) -> list[Any]:
        """What is told of requests with these values that came together, in order of index."""
        head = ENVELOPE.pack(ENVELOPE_VERSION, flags, 0)
        data = [head + msgspec.msgpack.encode(value) for value in values]
        batch = Batch(data, TEXT.topic, PublisherId(b"p" * 16), 0, time_ns() // 1_000, len(data))
        holding = RequestHolding(LogId(1, 1), 5, 7, 3, 1, batch)
        self.handling.enqueue(holding, range(len(values)))
        told: dict[int, Any] = {}
        while len(told) < len(values):
            for index, each in self.shell.runs.get(timeout=20):
                assert told.setdefault(index, each) is each, "each request is answered once"
        return [told[index] for index in sorted(told)]

    def run(
        self, value: object, of: roq.Endpoint[Any, Any] = TEXT, attempt: int = 1, losses: int = 0
    ) -> Any:
        """What is told of a request with this value; whatever is, it is told in time."""
        data = ENVELOPE.pack(ENVELOPE_VERSION, 0, 0) + msgspec.msgpack.encode(value)
        batch = Batch([data], of.topic, PublisherId(b"p" * 16), 0, time_ns() // 1_000, len(data))
        holding = RequestHolding(LogId(1, 1), 0, 7, 0, attempt, batch)
        holding.losses = losses
        self.handling.enqueue(holding, range(1))
        return self.shell.told.get(timeout=20)

    def hold(self, count: int) -> RequestHolding:
        """So many requests are to run."""
        data = [ENVELOPE.pack(ENVELOPE_VERSION, 0, 0) + msgspec.msgpack.encode("x")] * count
        batch = Batch(data, TEXT.topic, PublisherId(b"p" * 16), 0, time_ns() // 1_000, len(data))
        holding = RequestHolding(LogId(1, 1), 0, 7, 0, 1, batch)
        self.handling.enqueue(holding, range(count))
        return holding


@pytest.fixture
def instance() -> Iterator[Instance]:
    made = Instance()
    yield made
    made.handling.stop()


def raising(error: BaseException) -> Any:
    def handler(value: str, _: roq.RequestContext) -> str:
        if value == "raise":
            raise error
        return value

    return handler


def as_coroutine(handler: Any) -> Any:
    async def coroutine(value: str, context: roq.RequestContext) -> Any:
        return handler(value, context)

    return coroutine


@pytest.mark.parametrize("wrap", [lambda handler: handler, as_coroutine], ids=["def", "async def"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_handler_raises_fails_its_request_and_nothing_else(
    instance: Instance, wrap: Any, error: BaseException
) -> None:
    instance.on(wrap(raising(error)))
    instance.handling.start(None)
    failed = instance.run("raise")
    assert failed.state is RequestState.FAILED
    assert type(error).__name__ in failed.text
    assert failed.text.encode()
    assert instance.run("fine").value == msgspec.msgpack.encode("fine"), "it goes on"
    assert instance.handling.wait_idle(20)


def test_a_batch_of_coroutines_fails_whatever_it_raises(instance: Instance) -> None:
    async def leave(_: list[str], __: list[roq.RequestContext]) -> list[str]:
        raise GeneratorExit

    instance.on(leave, most=2)
    instance.handling.start(None)
    assert {each.state for each in instance.run_all(["a", "b"])} == {RequestState.FAILED}


def test_nothing_is_told_of_what_is_collected_with_its_loop(instance: Instance) -> None:
    begun = threading.Event()

    async def hang(_: str, __: roq.RequestContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    instance.on(hang)
    instance.handling.start(loop)
    instance.hold(1)
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    assert begun.is_set()
    (task,) = asyncio.all_tasks(loop)
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()
    assert instance.shell.told.empty()
    loop.close()


def leaves_the_loop(value: str) -> None:
    """A handler does what ends an event loop, in one way or another."""
    loop = asyncio.get_running_loop()
    if value == "stop":
        loop.stop()
    else:
        loop.call_soon(raise_exit)


def raise_exit() -> NoReturn:
    raise SystemExit(3)


@pytest.mark.parametrize("how", ["stop", "raise"])
def test_a_loop_that_a_handler_ends_goes_on(instance: Instance, how: str) -> None:
    async def handler(value: str, _: roq.RequestContext) -> str:
        if value != "fine":
            leaves_the_loop(value)
        return value

    instance.on(handler)
    instance.handling.start(None)
    for _ in range(20):  # it ends with the turn in which that is said
        assert instance.run(how).state is RequestState.DONE
        assert instance.run("fine").state is RequestState.DONE


def test_a_loop_ends_also_if_what_ran_there_ends_with_it(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: SimpleQueue[object] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", errors.put)

    async def handler(value: str, _: roq.RequestContext) -> str:
        instance.handling.stop()
        asyncio.get_running_loop().stop()
        return value

    instance.on(handler)
    before = set(threading.enumerate())  # the loop of an earlier test may be about to end
    instance.handling.start(None)
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "roq-s-loop")
    assert instance.run("fine").state is RequestState.DONE
    thread.join(20)
    assert not thread.is_alive()
    assert errors.empty()


def test_what_is_run_again_is_given_back_with_a_reason_that_can_travel(instance: Instance) -> None:
    class AgainError(Mute):
        """Its name matches, without a word of its own."""

    AgainError.__name__ = AgainError.__qualname__ = "again"
    instance.on(raising(AgainError()))
    instance.handling.start(None)
    again = instance.run("raise")
    assert isinstance(again, Settlement)
    assert again.reason == "again, which cannot be printed"
    assert instance.run("raise", attempt=2).state is RequestState.FAILED
    again = instance.run("raise", attempt=3, losses=2)
    assert isinstance(again, Settlement), "that its instances were lost is no error"
    assert instance.run("raise", attempt=4, losses=2).state is RequestState.FAILED


def test_what_cannot_be_read_or_written_fails_and_says_so(instance: Instance) -> None:
    unread = endpoint("s.unread", request=str, response=str, codec=Unreadable())
    no_bytes = endpoint("s.bytes", request=bytes, response=str, codec=Unreadable())
    instance.on(raising(Mute()), unread)
    instance.on(lambda value, _: str(value), no_bytes)
    instance.handling.start(None)
    assert "Mute, which cannot be printed" in instance.run("x", unread).text
    failed = instance.run("x", no_bytes)
    assert failed.state is RequestState.FAILED
    assert "TypeError: it is str, not bytes" in failed.text


def test_an_error_says_what_it_can() -> None:
    assert brief(ValueError("no")) == "ValueError: no"
    assert brief(Mute()) == "Mute, which cannot be printed"


def shout(values: list[str], contexts: list[roq.RequestContext]) -> list[Any]:
    assert [context.id for context in contexts] == sorted(context.id for context in contexts)
    calls.append(len(values))
    return [ValueError(value) if value in {"no", "again"} else value.upper() for value in values]


calls: list[int] = []


def as_batch_coroutine(handler: Any) -> Any:
    async def coroutine(values: list[str], contexts: list[roq.RequestContext]) -> Any:
        return handler(values, contexts)

    return coroutine


both = pytest.mark.parametrize(
    "wrap", [lambda handler: handler, as_batch_coroutine], ids=["def", "async def"]
)


@both
def test_a_batch_handler_answers_each_request(instance: Instance, wrap: Any) -> None:
    instance.on(wrap(shout), most=4)
    instance.handling.start(None)
    calls.clear()
    told = instance.run_all(["a", "no", 7, "b", "again", "c"])
    assert [each.value for each in (told[0], told[3], told[5])] == [
        msgspec.msgpack.encode(text) for text in ("A", "B", "C")
    ]
    assert told[1].state is RequestState.FAILED
    assert "ValueError: no" in told[1].text, "one fails alone"
    assert "the request is no" in told[2].text, "and what cannot be read does not get there"
    assert told[4].reason == "ValueError: again", "and what may be run again is given back"
    assert sum(calls) == 5
    assert max(calls) <= 4
    assert instance.handling.wait_idle(20)
    assert (instance.handling.stats.failed, instance.handling.stats.retried) == (1, 1)


@both
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda values, _: values[1:], "2 answers to 3 requests"),
        (lambda values, _: [*values, "d"], "4 answers to 3 requests"),
        (lambda _values, _: None, "NoneType, and not a list"),
        (lambda _values, _: "abc", "str, and not a list"),
        (lambda values, _: set(values), "set, and not a list"),
        (lambda _values, _: itertools.repeat("x"), "repeat, and not a list"),
        (lambda _values, _: [1, 2, 3], "it is int, not str"),
        (raising(SystemExit(3)), "SystemExit"),
    ],
    ids=["too few", "too many", "none", "text", "no order", "no end", "other type", "raises"],
)
def test_what_a_batch_handler_gets_wrong_fails_its_requests(
    instance: Instance, wrap: Any, wrong: Any, told: str
) -> None:
    def handler(values: list[str], contexts: list[roq.RequestContext]) -> Any:
        return wrong(values[0] if told == "SystemExit" else values, contexts)

    instance.on(wrap(handler), most=10)
    instance.handling.start(None)
    for failed in instance.run_all(["raise", "b", "c"]):
        assert failed.state is RequestState.FAILED
        assert told in failed.text
    assert instance.handling.wait_idle(20)


@both
def test_all_of_a_batch_that_fails_are_told_the_same(instance: Instance, wrap: Any) -> None:
    def handler(values: list[str], contexts: list[roq.RequestContext]) -> list[str]:
        raise ValueError("why")

    instance.on(wrap(handler), most=10)
    instance.handling.start(None)
    first, *others = instance.run_all(["a", "b", "c", "d"])
    assert "ValueError: why" in first.text
    assert [each.text for each in others] == [first.text] * 3


def test_what_a_batch_handler_is_called_with_is_answered_in_one_word(instance: Instance) -> None:
    instance.on(shout, most=10)
    instance.handling.start(None)
    told = instance.run_all(["a", "b", "c"], flags=SILENT)
    assert [each.value for each in told] == [b""] * 3, "nobody waits"
    assert all(each.silent for each in told)
    assert instance.shell.runs.empty()


def test_a_request_inside_a_batch_has_the_time_of_the_one_that_is_over_first(
    instance: Instance,
) -> None:
    seen = SimpleQueue[tuple[float, float]]()

    def handler(values: list[str], contexts: list[roq.RequestContext]) -> list[str]:
        current = CURRENT.get()
        assert current is not None
        seen.put((current.remaining, min(each.remaining for each in contexts)))
        return values

    instance.on(handler, most=10)
    data = [
        ENVELOPE.pack(ENVELOPE_VERSION, 0, within) + msgspec.msgpack.encode("x")
        for within in (90_000, 30_000, 60_000)
    ]
    batch = Batch(data, TEXT.topic, PublisherId(b"p" * 16), 0, time_ns() // 1_000, len(data))
    instance.handling.start(None)
    instance.handling.enqueue(RequestHolding(LogId(1, 1), 5, 7, 0, 1, batch), range(3))
    remaining, least = seen.get(timeout=20)
    assert least <= remaining <= 30


def test_what_is_lost_or_is_given_back_does_not_get_to_a_batch_handler(instance: Instance) -> None:
    instance.on(shout, most=10)
    data = [ENVELOPE.pack(ENVELOPE_VERSION, 0, 0) + msgspec.msgpack.encode("x")] * 2
    batch = Batch(data, TEXT.topic, PublisherId(b"p" * 16), 0, time_ns() // 1_000, len(data))
    holding = RequestHolding(LogId(1, 1), 5, 7, 0, 1, batch)
    holding.lose([0])
    calls.clear()
    instance.handling.enqueue(holding, range(2))
    instance.handling.start(None)
    assert instance.shell.runs.get(timeout=20)[0][0] == 1
    assert calls == [1]
    assert instance.handling.stats.lost == 1
    instance.handling.draining = True
    assert isinstance(instance.run_all(["x"])[0], Settlement)


class Gate:
    """A handler that is not back before it is told so."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.out = threading.Semaphore(0)

    def __call__(self, value: Any, _: object) -> Any:
        self.inside.release()
        self.out.acquire(timeout=20)
        return value


@pytest.mark.parametrize("most", [0, 1], ids=["one by one", "batches"])
def test_what_waits_behind_handlers_that_hang_is_given_back_and_never_runs_here(
    instance: Instance, most: int
) -> None:
    gate = Gate()
    instance.on(gate, most=most)
    instance.handling.start(None)
    holding = instance.hold(3)
    assert gate.inside.acquire(timeout=20)
    assert (instance.handling.used, instance.handling.busy, instance.handling.waiting) == (3, 1, 2)
    moves = instance.handling.moves
    instance.handling.withdraw(holding)
    assert [index for index, _ in instance.shell.runs.get(timeout=20)] == [1, 2]
    assert instance.handling.moves == moves, "no thread was free"
    instance.handling.withdraw(holding)
    assert instance.shell.runs.empty(), "once"
    holding.lose([1])  # its lease ends before the exchange has heard that
    assert (instance.handling.used, instance.handling.waiting) == (1, 0)
    gate.out.release(4)
    assert instance.shell.runs.get(timeout=20)[0][0] == 0
    assert instance.run("next", attempt=1).state is RequestState.DONE
    assert instance.handling.wait_idle(20)
    assert (instance.handling.stats.answered, instance.handling.stats.lost) == (2, 0)
    assert instance.handling.moves == 4 + 2, "it has come for what was given back, too"


def test_either_a_thread_begins_with_a_request_or_it_is_given_back(instance: Instance) -> None:
    instance.on(lambda value, _: value)
    instance.handling.start(None)
    for count in range(1, 200):
        holding = instance.hold(count)
        instance.handling.withdraw(holding)
        told: list[int] = []
        while len(told) < count:
            told += [index for index, _ in instance.shell.runs.get(timeout=20)]
        assert sorted(told) == list(range(count))
        assert instance.handling.wait_idle(20)
    assert instance.shell.runs.empty()


def test_coroutines_have_no_threads(instance: Instance) -> None:
    inside, out = threading.Semaphore(0), asyncio.Event()

    async def handler(value: str, _: roq.RequestContext) -> str:
        inside.release()
        await out.wait()
        return value

    instance.on(handler)
    assert instance.handling.at_once == 0
    instance.handling.start(None)
    instance.hold(2)
    for _ in range(2):
        assert inside.acquire(timeout=20)
    assert (instance.handling.busy, instance.handling.used) == (2, 0)
    assert instance.handling._loop is not None
    instance.handling._loop.call_soon_threadsafe(out.set)
    for _ in range(2):
        instance.shell.told.get(timeout=20)
    assert instance.handling.wait_idle(20)
    assert until(lambda: instance.handling.used == 0, 20)


def test_how_long_handlers_have_run_counts_for_a_while_only(instance: Instance) -> None:
    def handler(value: str, _: roq.RequestContext) -> str:
        instance.now += 30.0 if value == "slow" else 0.1
        return value

    instance.now = 1.0
    instance.on(handler)
    instance.handling.start(None)
    assert instance.handling.response_ms == 0
    instance.run("slow")
    assert instance.handling.response_ms == pytest.approx(30_000)
    instance.now += LATELY_SECONDS - 1
    instance.run("quick")
    assert instance.handling.response_ms == pytest.approx(15_050)
    instance.now += LATELY_SECONDS - 1
    assert instance.handling.response_ms == pytest.approx(100)
    instance.now += 2
    assert instance.handling.response_ms == 0, "else it would take nothing, and never be quick"
