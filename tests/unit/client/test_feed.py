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


def test_an_exchange_that_does_not_know_the_subscriber_yet_is_read_while_nothing_is_taken() -> None:
    paused: list[int] = []
    confirmed = {1: True, 2: False}

    def tap(number: int) -> SimpleNamespace:
        def pause() -> None:
            here.reading = False
            paused.append(number)

        here = SimpleNamespace(reading=True, pause=pause)
        return here

    feed = SimpleNamespace(
        _taps={1: tap(1), 2: tap(2)}, _watch=lambda: None, _resting=False,
        _reception=SimpleNamespace(
            readers={each: SimpleNamespace(confirmed=is_so) for each, is_so in confirmed.items()}
        ),
    )  # fmt: skip
    Feed._rest(cast("Feed", feed))
    assert paused == [1]
    feed._reception.readers[2].confirmed = True
    Feed._rest(cast("Feed", feed))
    assert paused == [1, 2]
