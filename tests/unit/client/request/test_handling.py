"""What becomes of the runs of handlers: in threads and in a loop, whatever handlers do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from queue import SimpleQueue
from time import time_ns
from typing import Any, NoReturn, cast

import msgspec
import pytest

import roq
from roq.client.consume.message import Settlement
from roq.client.request.endpoint import endpoint
from roq.client.request.handling import Handling, brief
from roq.client.request.instance import HandlerResult, RequestHolding
from roq.client.request.instance_shell import InstanceShell
from roq.client.subscribe.message import Batch
from roq.model import LogId, PublisherId
from roq.protocol.requesting import ENVELOPE, ENVELOPE_VERSION, RequestState

TEXT = endpoint("s.text", request=str, response=str)


class Mute(ValueError):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Mute(), OSError("\ud800")]


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

    def answer(self, _holding: object, _index: int, answered: HandlerResult) -> None:
        self.told.put(answered)

    def give_back(self, _holding: object, _index: int, verdict: Settlement) -> None:
        self.told.put(verdict)


class Instance:
    """One thread for handlers, and one loop."""

    def __init__(self) -> None:
        self.shell = PaperShell()
        self.handling = Handling("s", "work", "here", 1, re.compile("again"), 1)
        self.handling.shell = cast("InstanceShell", self.shell)

    def on(self, handler: Any, of: roq.Endpoint[Any, Any] = TEXT) -> None:
        self.handling.register(of, handler)

    def run(self, value: object, of: roq.Endpoint[Any, Any] = TEXT, attempt: int = 1) -> Any:
        """What is told of a request with this value; whatever is, it is told in time."""
        data = ENVELOPE.pack(ENVELOPE_VERSION, 0, 0) + msgspec.msgpack.encode(value)
        batch = Batch([data], of.topic, PublisherId(b"p" * 16), 0, time_ns() // 1_000, len(data))
        self.handling.enqueue(RequestHolding(LogId(1, 1), 0, 7, 0, attempt, batch), 0)
        return self.shell.told.get(timeout=20)


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
