"""The policy that moves somebody all the time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roq.model import ElasticRules, PublisherId
from roq.policy.snapshot import ExchangeView, Memory, Move, PublisherView, QueueView
from roq.runtime import plugins
from roq.simulation.real.shuffle import NAME, Shuffle, offered


def publisher(digit: int, at: int, *, moving: bool = False) -> PublisherView:
    return PublisherView(PublisherId(bytes([digit]) * 16), 1.0, (at,), moving)


def view(*exchanges: tuple[int, list[PublisherView]], now: float = 1.0) -> QueueView:
    return QueueView(
        now=now,
        limit=1.0,
        rules=ElasticRules(),
        exchanges=tuple(
            ExchangeView(number, "host", 1.0, 1.0, len(top), tuple(top))
            for number, top in exchanges
        ),
    )


def test_one_publisher_goes_to_the_next_exchange() -> None:
    shown = view(
        (1, [publisher(1, 1), publisher(2, 1)]), (2, []), (3, [publisher(3, 3), publisher(4, 3)])
    )
    decisions, _ = Shuffle().decide(shown, Memory())
    [move] = decisions
    assert isinstance(move, Move)
    assert (move.publisher[0], move.source, move.target) == (1, 1, 2)


def test_all_have_their_turn_and_the_last_exchange_is_followed_by_the_first() -> None:
    shown = view((1, [publisher(1, 1)]), (2, [publisher(2, 2)]))
    _, memory = Shuffle().decide(shown, Memory())
    [second], _ = Shuffle().decide(shown, memory)
    assert isinstance(second, Move)
    assert (second.publisher[0], second.target) == (2, 1)


def test_whoever_moves_is_left_alone() -> None:
    shown = view((1, [publisher(1, 1, moving=True)]), (2, []))
    assert Shuffle().decide(shown, Memory())[0] == []


def test_one_exchange_is_nowhere_to_go() -> None:
    assert Shuffle().decide(view((1, [publisher(1, 1)])), Memory())[0] == []


def test_it_is_found_as_any_other_plugin_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ.get("PYTHONPATH")
    with offered(tmp_path):
        assert str(tmp_path) in os.environ["PYTHONPATH"]
        monkeypatch.syspath_prepend(str(tmp_path))
        assert isinstance(plugins.policy(NAME), Shuffle)
    assert os.environ.get("PYTHONPATH") == before
