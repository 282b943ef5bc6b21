"""What a program hears at its end of what it has left open."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from roq.client.io import at_exit as farewell
from roq.client.publish.publisher import Publisher


class Thing:
    """Has so many messages; its first flush ends as the test wants."""

    def __init__(self, queue: str, flush: Callable[[], None] = lambda: None) -> None:
        self.queue = queue
        self.flush: Callable[[], None] | None = flush

    @property
    def _left_open(self) -> bool:
        return True

    def _part(self, seconds: float) -> tuple[str, int]:
        flush, self.flush = self.flush, None
        if flush is not None:
            flush()
        return self.queue, 3


@pytest.fixture(autouse=True)
def nothing_else_open(monkeypatch: pytest.MonkeyPatch) -> None:
    open_things: dict[int, weakref.ref[farewell.Leftover]] = {}
    monkeypatch.setattr(farewell, "_open", open_things)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(1)])
def test_a_signal_handler_that_raises_ends_the_patience_and_not_the_report(
    raised: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise raised

    things = [Thing("a", interrupted), Thing("b")]
    for thing in things:
        farewell.opened(thing)
    with pytest.warns(ResourceWarning, match="unclosed"):
        farewell.part()
    assert "6 messages not acknowledged" in capsys.readouterr().err


def test_a_publisher_without_a_descriptor_to_wait_with_tells_what_it_owes() -> None:
    def wait_for(*_: object) -> bool:
        raise OSError(errno.EMFILE, "too many open files")

    publisher = SimpleNamespace(
        queue="q", is_flushed=lambda: False, _reported=1, _shell=SimpleNamespace(
            wait_for=wait_for, lock=nullcontext(), machine=SimpleNamespace(unacknowledged=5)
        ),
    )  # fmt: skip
    assert Publisher._part(cast("Publisher", publisher), 1.0) == ("q", 4)
