"""Fragments are made once for all browsers, and sent to each as they change."""

from __future__ import annotations

import asyncio
import json

import pytest
from paper_console import PaperConsole

from roq.console import live as module
from roq.console.live import Channel, Live


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_page_is_made_once_a_second_whoever_looks() -> None:
    async def look() -> None:
        clock, made = Clock(), list[int]()
        pages = [{"a": "1", "b": "1"}, {"a": "1", "b": "2"}]

        def make() -> dict[str, str]:
            made.append(1)
            return pages[min(len(made), 2) - 1]

        channel = Channel(make, clock)
        for _ in range(50):
            assert await channel.news(0) == pages[0]
        assert len(made) == 1
        clock.now = 1.0
        assert await channel.news(1) == {"b": "2"}, "only what has changed"
        assert await channel.news(2) == {}
        assert await channel.news(0) == pages[1], "who comes later gets all"
        assert len(made) == 2

    asyncio.run(look())


def test_streams_are_counted_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAMS_MAX", 1)
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.001)

    async def stream() -> None:
        live = Live(Clock())
        events = live.stream("k", lambda: {"a": "1"})
        assert (await anext(events)).startswith(b"retry")
        assert json.loads((await anext(events)).removeprefix(b"data: ")) == {"a": "1"}
        assert live.full
        assert await anext(events) == b"event: still\ndata: here\n\n"
        live.ending = True
        assert [each async for each in events] == []
        assert not live.full
        assert live._channels == {}

    asyncio.run(stream())


def test_a_stream_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.001)

    async def stream() -> None:
        live, session = Live(Clock()), [True]
        events = live.stream("k", lambda: {"a": "1"}, lambda: session[0])
        assert (await anext(events)).startswith(b"retry")
        assert (await anext(events)).startswith(b"data")
        session[0] = False
        rest = [each async for each in events]
        assert rest[-1] == b"event: ended\ndata: session\n\n"
        assert live.streams == 0

    asyncio.run(stream())


@pytest.mark.parametrize("page", ["//[", "/?" + "a%3D1%26" * 60])
def test_what_is_no_path_is_refused(page: str) -> None:
    with PaperConsole() as console:
        answer = console.get(f"/live?page={page}")
        assert answer.status == 400
        assert answer.header("x-frame-options") == "DENY"


def test_a_browser_gets_the_fragments_of_its_page() -> None:
    with PaperConsole() as console:
        answer = console.get("/live?page=/queues/load", chunks=2)
        assert answer.header("content-type").startswith("text/event-stream")
        line = next(each for each in answer.text.splitlines() if each.startswith("data: "))
        fragments = json.loads(line.removeprefix("data: "))
        assert {"live_status", "live_exchanges", "live_events"} <= fragments.keys()
        assert "x1" in fragments["live_exchanges"]


def test_a_page_whose_subject_goes_says_so() -> None:
    with PaperConsole() as console:
        for page, told in (("/queues/load", ""), ("/queues/nix", "does not exist")):
            text = console.get(f"/live?page={page}", chunks=2).text
            line = next(each for each in text.splitlines() if each.startswith("data: "))
            gone = json.loads(line.removeprefix("data: "))["live_gone"]
            assert told in gone
            assert bool(gone) is bool(told)


def test_there_are_no_more_streams_than_there_may_be() -> None:
    with PaperConsole() as console:
        console.console.live.streams = module.STREAMS_MAX
        assert console.get("/live?page=/").status == 503
        assert console.get("/live?page=/nothing").status == 404
        assert console.get("/live").status == 404
