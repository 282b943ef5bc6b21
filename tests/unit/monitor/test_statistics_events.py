"""What is told at once of moves and scaling: a document each, and a line if people want it."""

from __future__ import annotations

import pytest

from roq.model import PublisherId
from roq.monitor.events import Note, Publish
from roq.monitor.moves import Relocation
from roq.monitor.statistics_events import StatisticsEvents

EVENTS = StatisticsEvents("orders", b"id")
MOVE = Relocation(
    publisher=PublisherId(b"p"), epoch=9, sources=((1, 7),), targets=((2, 7), (3, 7)), infos=[],
    load=600.0, reason="too much", repeat_at=1.0,
)  # fmt: skip


def test_the_beginning_of_a_move_is_no_line_in_the_log() -> None:
    assert [type(each) for each in EVENTS.move(MOVE, "started", "why")] == [Publish]


@pytest.mark.parametrize(
    ("state", "warning"), [("accepted", False), ("failed", True), ("given_up", True)]
)
def test_its_end_is_and_one_that_failed_is_a_warning(state: str, warning: bool) -> None:
    document, note = EVENTS.move(MOVE, state, "why", pause_us=1_500)
    assert isinstance(document, Publish)
    assert isinstance(note, Note)
    assert (note.event, note.warning) == (f"move_{state}", warning)
    assert f"from x1 to x2+x3 {state}: why" in note.text


@pytest.mark.parametrize(
    ("state", "warning"), [("started", False), ("done", False), ("failed", True)]
)
def test_scaling_is_always_a_line_and_names_the_exchange_if_it_is_known(
    state: str, warning: bool
) -> None:
    _, note = EVENTS.scale("out", state, "too busy", number=4, host="h1", seconds=1.0)
    assert note == Note(f"scale_out_{state}", f"scale-out of x4 {state}: too busy", warning=warning)
    _, unknown = EVENTS.scale("out", state, "too busy")
    assert unknown.text == f"scale-out {state}: too busy"
