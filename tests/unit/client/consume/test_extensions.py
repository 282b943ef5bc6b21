"""What a member has asked more time for, until its exchange has answered and after it forgot."""

from __future__ import annotations

from typing import NoReturn

import pytest

from roq.client.consume.extensions import Extensions, _Extension
from roq.client.consume.holding import ACKED, Holding, Segment
from roq.model import LogId, PublisherId
from roq.protocol import consuming
from roq.protocol.consuming import EXTEND, EXTENDED_MAX, Extend, Run
from roq.read.message import Batch


def held(count: int = 2) -> Holding:
    batch = Batch([b"x"] * count, "t", PublisherId(b"p" * 16), 0, 0, 1, None)
    return Holding(LogId(1, 1), 5, 8, 0, 1, batch)


def asked(frames: list[list[bytes]]) -> list[Extend]:
    assert {letter for letter, _ in frames} <= {EXTEND}
    return [consuming.decode(document, Extend) for _, document in frames]


def test_one_is_asked_for_and_answered_once() -> None:
    extensions, holding = Extensions(), held()
    extensions.add(holding, Run(5, 0, 1), 30.0, 1)
    frames, refused = extensions.ask(10.0, of=1)
    assert (asked(frames), refused) == ([Extend(1, 20.0, [(8, 0, 1)])], [])
    assert extensions.ask(10.0, of=2) == ([], [])
    assert extensions.answered(1, 20.0) == [(1, 30.0)]
    assert extensions.answered(1, 20.0) == []
    extensions.add(holding, Run(5, 0, 1), 12.0, 2)
    assert extensions.answered(2, 2.0) == [(2, 30.0)], "what it has already, it has"
    assert extensions.answered(3, 2.0) == []


def test_what_runs_is_asked_for_anew_under_the_leases_of_today() -> None:
    extensions, holding = Extensions(), held()
    extensions.add(holding, Run(5, 0, 2), 30.0, 1)
    extensions.answered(1, 20.0)
    holding.segments = [Segment(20, 0, 1), Segment(21, 1, 1)]
    holding.settle(0, 1, ACKED)
    frames, _ = extensions.ask(20.0)
    assert asked(frames) == [Extend(0, 10.0, [(21, 1, 1)])], "of what is to be done still"
    assert extensions.ask(30.0) == ([], []), "its time is over"
    assert len(extensions) == 0


def test_who_waits_for_what_is_lost_settled_refused_or_over_is_told() -> None:
    extensions, lost, done, late, many = Extensions(), held(), held(), held(), held()
    lost.lose(range(2))
    done.settle(0, 2, ACKED)
    many.segments = [Segment(n, n % 2, 1) for n in range(EXTENDED_MAX + 1)]
    for number, each in enumerate((lost, done, many)):
        extensions.add(each, Run(5, 0, 2), 30.0, number)
        assert extensions.ask(0.0, of=number) == ([], [(number, 0.0)])
    extensions.add(late, Run(5, 0, 2), 30.0, 3)
    extensions.ask(0.0, of=3)
    assert extensions.expire(29.0) == []
    assert extensions.expire(30.0) == [(3, 0.0)]
    extensions.add(late, Run(5, 0, 2), 90.0, 4)
    assert extensions.answered(4, 0.0) == [(4, 0.0)]
    assert len(extensions) == 0


def test_of_thousands_that_are_asked_for_each_is_looked_at_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, frames = 0, _Extension.frames

    def counted(self: _Extension, request: int, now: float) -> list[bytes] | None:
        nonlocal looks
        looks += 1
        return frames(self, request, now)

    class Every(dict[tuple[Holding, Run], _Extension]):
        def items(self) -> NoReturn:
            raise AssertionError("looked at each for one")

    monkeypatch.setattr(_Extension, "frames", counted)
    extensions = Extensions()
    extensions._every = Every()
    for request in range(100):
        extensions.add(held(), Run(5, 0, 1), 30.0, request)
        assert len(extensions.ask(0.0, of=request)[0]) == 1
    assert looks == 100
    assert all(extensions.answered(request, 9.0) == [(request, 30.0)] for request in range(100))
    assert not extensions._asked
