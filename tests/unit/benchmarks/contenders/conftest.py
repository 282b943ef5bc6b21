"""What clients leave to the end of their process is closed at the end of each test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from roq.benchmarks import clients


class PaperAsyncio:
    """The library, that knows which loops it has made."""

    def __init__(self) -> None:
        self.runners: list[asyncio.Runner] = []
        self.loops: list[asyncio.AbstractEventLoop] = []

    def Runner(self) -> asyncio.Runner:  # noqa: N802 - as the library has it
        self.runners.append(asyncio.Runner())
        return self.runners[-1]

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        self.loops.append(asyncio.new_event_loop())
        return self.loops[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


@pytest.fixture(autouse=True)
def _loops_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    paper = PaperAsyncio()
    monkeypatch.setattr(clients, "asyncio", paper)
    before = set(threading.enumerate())
    yield
    for runner in paper.runners:
        runner.close()
    for loop in paper.loops:
        if loop.is_running():
            loop.call_soon_threadsafe(loop.stop)
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
    for loop in paper.loops:
        loop.close()
