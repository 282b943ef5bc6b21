"""What changes is told once, to the user and to the log; what is over is over."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from roq.client.io.engine import Engine
from roq.client.session.events import Cause, ClientState, StateChange
from roq.client.session.status import CONNECTED, Status
from roq.client.session.status_reporter import Losses, StatusReporter

WAITS = Status(ClientState.WAITING, Cause.NO_EXCHANGE, "there is no exchange")


class Watched:
    """A reporter of whatever a test sets, on an engine whose thread is this one."""

    def __init__(self) -> None:
        self.stands = Status(ClientState.CONNECTING)
        self.lost = Losses()
        self.told: list[StateChange] = []
        self.logged: list[str] = []
        self.beats: list[Callable[[float], None]] = []
        self.engine = SimpleNamespace(
            forked=False, ticker=SimpleNamespace(
                late=0.0, add=self.beats.append, remove=self.beats.remove
            ),
            call_soon=lambda function: function(), reactor=SimpleNamespace(now=lambda: 0.0),
            limited=SimpleNamespace(warning=lambda key, *_: self.logged.append(key)),
            callbacks=SimpleNamespace(post=lambda function: function()),
        )  # fmt: skip
        self.reporter = StatusReporter(
            cast("Engine", self.engine), "publisher of queue q", lambda _: self.stands,
            lambda: self.lost, self.told.append,
        )  # fmt: skip
        self.reporter.start()

    def look(self) -> list[tuple[ClientState, Cause]]:
        """What is told at a beat."""
        before = len(self.told)
        for beat in list(self.beats):
            beat(0.0)
        return [(each.state, each.cause) for each in self.told[before:]]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_change_is_told_once(watched: Watched) -> None:
    assert watched.look() == []
    watched.stands = CONNECTED
    assert watched.look() == [(ClientState.CONNECTED, Cause.NONE)]
    assert watched.look() == []


def test_who_waits_is_logged_at_each_look_unless_only_the_application_can_change_it(
    watched: Watched,
) -> None:
    watched.stands = WAITS
    watched.look()
    watched.look()
    assert watched.logged == ["publisher of queue q no_exchange"] * 2
    watched.stands = Status(ClientState.WAITING, Cause.NOT_TAKEN, "nothing is taken")
    assert watched.look() == [(ClientState.WAITING, Cause.NOT_TAKEN)]
    assert len(watched.logged) == 2


def test_what_is_lost_is_told_by_how_much_it_is_more(watched: Watched) -> None:
    watched.lost = Losses(3, 0, "the exchange is gone")
    watched.look()
    watched.lost = Losses(5, 1, "another one is gone")
    watched.look()
    watched.look()
    assert [(each.messages, each.reason) for each in watched.told] == [
        (3, "the exchange is gone"), (2, "another one is gone")
    ]  # fmt: skip


def test_what_happens_is_looked_at_without_waiting_for_a_beat(watched: Watched) -> None:
    watched.stands = CONNECTED
    watched.reporter.look_soon()
    assert [each.state for each in watched.told] == [ClientState.CONNECTED]


def test_the_end_is_told_once_after_the_losses_and_nothing_comes_behind_it(
    watched: Watched,
) -> None:
    watched.lost = Losses(1, 0, "it did not leave")
    watched.reporter.close("closed by its owner")
    watched.reporter.close("again")
    assert [each.state for each in watched.told] == [ClientState.LOST_DATA, ClientState.CLOSED]
    watched.stands = CONNECTED
    watched.reporter.look_soon()
    assert watched.look() == []
    assert watched.beats == []


def test_in_a_forked_child_it_is_closed_and_says_nothing(watched: Watched) -> None:
    watched.engine.forked = True
    assert watched.reporter.status.state is ClientState.CLOSED
    watched.reporter.close("closed")
    assert watched.told == []
