"""What a feed does with its taps."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from roq.client.subscribe.shell import CLOCK_STEP_SECONDS, ActiveClock, ReadBy, SubscriberShell


def test_who_is_full_again_while_reading_begins_reads_no_further_exchange() -> None:
    resumed: list[int] = []

    def nothing(*_: object) -> None:
        return None

    def connection(number: int) -> SimpleNamespace:
        def resume() -> None:
            resumed.append(number)
            shell._reads = ReadBy.NOBODY

        return SimpleNamespace(resume=resume)

    shell = SimpleNamespace(
        _lock=nullcontext(), _reads=ReadBy.NOBODY, _closed=False, _clock=lambda: 0.0,
        _machine=SimpleNamespace(read_again=nothing), _connections={1: connection(1), 2:
        connection(2)}, _watch=nothing, _arm=nothing, _attendance=SimpleNamespace(ring=nothing),
    )  # fmt: skip
    SubscriberShell._resume(cast("SubscriberShell", shell))
    assert resumed == [1]


def test_an_exchange_that_does_not_know_the_subscriber_yet_is_read_while_nothing_is_taken() -> None:
    paused: list[int] = []
    confirmed = {1: True, 2: False}

    def connection(number: int) -> SimpleNamespace:
        def pause() -> None:
            here.reading = False
            paused.append(number)

        here = SimpleNamespace(reading=True, pause=pause)
        return here

    shell = SimpleNamespace(
        _connections={1: connection(1), 2: connection(2)}, _watch=lambda: None, _resting=False,
        _machine=SimpleNamespace(
            readers={each: SimpleNamespace(confirmed=is_so) for each, is_so in confirmed.items()}
        ),
    )  # fmt: skip
    SubscriberShell._rest(cast("SubscriberShell", shell))
    assert paused == [1]
    shell._machine.readers[2].confirmed = True
    SubscriberShell._rest(cast("SubscriberShell", shell))
    assert paused == [1, 2]


def test_who_was_woken_reads_what_has_come_and_asks_no_other_connection() -> None:
    done: list[str] = []

    def connection(name: str, fd: int) -> SimpleNamespace:
        return SimpleNamespace(live_fd=fd, pending=False, take_burst=lambda _: done.append(name))

    shell = SimpleNamespace(
        _clock=lambda: 0.0, _torn=False, _settling=False, _announced=(7,),
        _machine=SimpleNamespace(pass_on=lambda *_: False, out=[]),
        _read_taps={1: connection("a", 7), 2: connection("b", 8)},
    )  # fmt: skip
    SubscriberShell._read_here(cast("SubscriberShell", shell))
    assert done == ["a"]
    SubscriberShell._read_here(cast("SubscriberShell", shell))
    assert done[1:] == ["a", "b"]


def test_the_time_in_which_the_process_was_stopped_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = ActiveClock()
    now += 0.1
    assert clock() == pytest.approx(0.1)
    now += 3_600.0
    assert clock() == pytest.approx(0.1 + CLOCK_STEP_SECONDS)
    now += 0.1
    assert clock() == pytest.approx(0.2 + CLOCK_STEP_SECONDS)


def test_what_others_measure_is_compared_with_all_the_time_that_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: now)
    clock = ActiveClock()
    now += 3_600.0
    assert clock.elapsed() == pytest.approx(3_600.0)
