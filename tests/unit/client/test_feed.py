"""What a feed does with its taps."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

from roq.client.feed import Feed


def test_who_is_full_again_while_reading_begins_reads_no_further_exchange() -> None:
    resumed: list[int] = []

    def nothing(*_: object) -> None:
        return None

    def tap(number: int) -> SimpleNamespace:
        def resume() -> None:
            resumed.append(number)
            feed._paused = True

        return SimpleNamespace(resume=resume)

    feed = SimpleNamespace(
        _lock=nullcontext(), _paused=True, _closed=False, _clock=lambda: 0.0,
        _reception=SimpleNamespace(read_again=nothing), _taps={1: tap(1), 2: tap(2)},
        _watch=nothing, _arm=nothing, _attendance=SimpleNamespace(ring=nothing),
    )  # fmt: skip
    Feed._resume(cast("Feed", feed))
    assert resumed == [1]
