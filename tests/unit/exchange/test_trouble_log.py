"""What goes wrong around an exchange is told in few lines, and each thing once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.exchange.counters import Counters
from roq.exchange.trouble_log import REPEAT_SECONDS, TroubleLog
from roq.runtime import descriptors


class Watched:
    """A log, and what stands in it since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.counters = Counters()
        self.backlogs = SimpleNamespace(cut_off=0)
        self._lines = caplog
        self._log: TroubleLog[Any] = TroubleLog(self.counters, cast("Any", self.backlogs))

    def look(self, now: float, **given: Any) -> list[str]:
        self._lines.clear()
        self._log.look(now, **given)
        return [each.getMessage() for each in self._lines.records]


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(descriptors, "exhausted", lambda: False)
    return Watched(caplog)


def test_where_all_is_well_nothing_is_said(watched: Watched) -> None:
    watched.counters.messages = 7
    assert watched.look(0.0) == []


def test_abuse_is_told_by_how_much_it_has_risen_and_not_more_often_than_every_few_seconds(
    watched: Watched,
) -> None:
    watched.counters.malformed = 3
    assert watched.look(0.0) == ["peers misbehave: 3 malformed"]
    watched.counters.malformed, watched.counters.bad_subscriptions = 5, 1
    assert watched.look(REPEAT_SECONDS / 2) == []
    assert watched.look(REPEAT_SECONDS) == ["peers misbehave: 2 malformed, 1 bad_subscriptions"]
    assert watched.look(2 * REPEAT_SECONDS) == []


def test_a_full_disk_is_told_when_it_begins_and_when_it_ends(watched: Watched) -> None:
    assert watched.look(0.0, disk_full="no room") == ["no room"]
    assert watched.look(0.1, disk_full="no room") == []
    assert watched.look(0.2) == ["the disk has room again: everything is accepted"]


def test_delayed_messages_that_are_lost_are_told_at_once_and_once(watched: Watched) -> None:
    watched.look(0.0)
    (line,) = watched.look(0.1, delayed_lost=4)
    assert line.startswith("4 delayed messages are lost")
    assert watched.look(0.2, delayed_lost=4) == []
    (line,) = watched.look(0.3, delayed_lost=5)
    assert line.startswith("1 delayed messages are lost")


def test_what_is_not_read_of_the_log_is_told_again_only_if_it_changes(watched: Watched) -> None:
    assert watched.look(0.0, unread="a segment") == ["a segment"]
    assert watched.look(REPEAT_SECONDS, unread="a segment") == []
    assert watched.look(2 * REPEAT_SECONDS, unread="another one") == ["another one"]


def test_subscribers_that_were_cut_off_are_told_as_they_become_more(watched: Watched) -> None:
    watched.backlogs.cut_off = 2
    (line,) = watched.look(0.0)
    assert line.endswith("2 of their connections ended")
    watched.backlogs.cut_off = 3
    (line,) = watched.look(REPEAT_SECONDS)
    assert line.endswith("1 of their connections ended")


def test_that_descriptors_are_exhausted_is_told_as_long_as_it_is_so(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "exhausted", lambda: True)
    assert watched.look(0.0) == [descriptors.EXHAUSTED]
    assert watched.look(REPEAT_SECONDS) == [descriptors.EXHAUSTED]
