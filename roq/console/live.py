"""Fragments as they change: made once for all browsers that have the same page open.

A page is made anew at most once a second, and only while somebody has it open. Each browser gets
the fragments that are newer than those it has, so a slow one costs nothing but its connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.concurrency import run_in_threadpool

PERIOD_SECONDS: Final = 1.0
KEEP_ALIVE_ROUNDS: Final = 15
"""After so many without news this is said, so that nobody takes the connection for dead."""
STREAMS_MAX: Final = 128
"""There are no more channels than streams: one ends with the last that reads it."""

Make = Callable[[], dict[str, str]]
"""Makes the fragments of a page."""


class Channel:
    """One page, as those see it who may do the same.

    Args:
        make: makes its fragments, in a thread.
        now: seconds; a monotonic clock.
    """

    def __init__(self, make: Make, now: Callable[[], float]) -> None:
        self._make = make
        self._now = now
        self._lock = asyncio.Lock()
        self._made = float("-inf")
        self._known: dict[str, tuple[int, str]] = {}
        self.version = 0
        self.readers = 0

    async def news(self, since: int) -> dict[str, str]:
        """Fragments that are newer than a version, after a look whether there are any."""
        async with self._lock:
            if self._now() - self._made >= PERIOD_SECONDS * 0.9:
                self._made = self._now()
                self._take(await run_in_threadpool(self._make))
        return {name: html for name, (version, html) in self._known.items() if version > since}

    def _take(self, fragments: dict[str, str]) -> None:
        changed = [
            name for name, html in fragments.items() if self._known.get(name, (0, None))[1] != html
        ]
        if changed:
            self.version += 1
            self._known.update({name: (self.version, fragments[name]) for name in changed})


class Live:
    """All streams to browsers.

    Args:
        now: seconds; a monotonic clock.

    Attributes:
        ending: the console stops: streams end.
        streams: that are open.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.ending = False
        self.streams = 0
        self._now = now
        self._channels: dict[str, Channel] = {}

    @property
    def full(self) -> bool:
        """Whether there are as many streams as there may be."""
        return self.streams >= STREAMS_MAX

    async def stream(
        self, key: str, make: Make, lives: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """The events of one browser, until it goes.

        Args:
            key: what makes two pages the same.
            make: makes the fragments.
            lives: whether the session of the browser has not ended.
        """
        channel = self._channels.setdefault(key, Channel(make, self._now))
        channel.readers += 1
        self.streams += 1
        try:
            version, silent = 0, 0
            yield b"retry: 2000\n\n"
            while not self.ending:
                if not lives():
                    yield b"event: ended\ndata: session\n\n"
                    return
                news = await channel.news(version)
                version, silent = channel.version, 0 if news else silent + 1
                if news:
                    yield b"data: " + json.dumps(news).encode() + b"\n\n"
                elif silent % KEEP_ALIVE_ROUNDS == 0:
                    yield b"event: still\ndata: here\n\n"
                await asyncio.sleep(PERIOD_SECONDS)
        finally:
            self.streams -= 1
            channel.readers -= 1
            if not channel.readers:
                self._channels.pop(key, None)
