"""What people see, and what they are told of errors."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from roq.errors import ConfigError, Unavailable
from roq.runtime.signals import SignalEvent
from roq.simulation.lab.live import messages
from roq.simulation.lab.live.interrupts import Aside, interrupts
from roq.simulation.lab.live.messages import BadMessage
from roq.simulation.lab.live.show import Picture, Silent, show
from roq.simulation.lab.live.tasks import _understood
from roq.simulation.lab.report.terminal import spark
from roq.simulation.lab.traces.view import Seen

PICTURE = Picture(
    phase="rush", elapsed=12.0, seconds=30.0, due=10_000.0,
    seen=Seen(
        sent=9_000, received=18_000, failed=3, late=900, messages_in=750.0, bytes_in=75_000.0,
        messages_out=1_500.0, exchanges=2, moves=3, moving=1, p99=0.0123,
    ),
)  # fmt: skip


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    with show(console, "A test") as display:
        display.step("Spark starts")
        display.picture(PICTURE._replace(phase="", elapsed=-0.5, seen=None))
        display.picture(PICTURE)
        display.happened(3.0, "kill exchange 0")
        display.picture(PICTURE)
        display.step("everything ends")
    return out.getvalue()


def test_a_terminal_gets_a_picture_that_says_what_is_wrong() -> None:
    text = shown(terminal=True)
    for part in ("A test", "rush", "12 of 30 s", "9,000", "of 10,000", "3 failed", "10.0% late",
                 "p99 12.3 ms", "■ ■", "1 being moved", "kill exchange 0"):  # fmt: skip
        assert part in text, part


def test_a_pipe_gets_lines() -> None:
    lines = shown(terminal=False).splitlines()
    assert len(lines) == 4
    assert "rush: sent 9,000" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_rates_are_drawn_as_heights() -> None:
    assert spark([0, 1, 2, 7]) == " ▁▂█"
    assert spark([]) == spark([0.0]).strip() == ""


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("…\nModuleNotFoundError: No module named 'simulation'\n…", ConfigError, "'simulation'"),
        ("[SPARK-24942]: Barrier execution mode does not …", ConfigError, "--plain"),
        ("Job aborted\n\tat org.x\nValueError: that\n\tat org.y", Unavailable, "ValueError: that"),
    ],
)
def test_errors_of_spark_are_told_in_a_sentence(text: str, kind: type, part: str) -> None:
    found = _understood(RuntimeError(text))
    assert isinstance(found, kind)
    assert part in str(found)
    assert "\tat" not in str(found)


def test_words_come_out_as_they_went_in() -> None:
    told = messages.Ended(run="r", task=1, sent={"a": 2})
    assert messages.from_task(messages.encode(told)) == told
    begin = messages.Begin(run="r", at_us=5, clock_error=0.0)
    assert messages.from_driver(messages.encode(begin)) == begin
    for damaged in (b"", b"{}", b'{"word":"begin"}', messages.encode(told)):
        with pytest.raises(BadMessage):
            messages.from_driver(damaged)


def test_who_wants_the_end_is_told_once_that_it_was_heard() -> None:
    stop, told = SignalEvent(), threading.Semaphore(0)
    with interrupts(stop, told.release):
        stop.set()
        assert told.acquire(timeout=10)
    assert not told.acquire(blocking=False)


def test_work_aside_raises_where_it_is_waited_for() -> None:
    def work() -> None:
        raise Unavailable("nobody")

    with pytest.raises(Unavailable):
        Aside(work, "work").wait()


def test_silence_is_a_show_as_well() -> None:
    silent = Silent()
    silent.step("a")
    silent.picture(PICTURE)
    silent.happened(0.0, "b")
