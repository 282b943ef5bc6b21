"""Delayed messages of all exchanges are one answer, and it says what is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from roq.client.consume import delayed
from roq.client.consume.delayed import DelayedCommands
from roq.client.io.exchange_questions import Answers
from roq.errors import InvalidName, Unavailable
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.delayed import CANCEL_DELAYED, DELAYED, CancelledDelayed, DelayedList


class Paper(DelayedCommands):
    """A queue whose exchanges answer so."""

    _engine: Any = None

    def describe(self, queue: str) -> Any:
        assert queue == "q"
        return msgspec.defstruct("Queue", ["queue_id"])("00" * 16)

    def _seconds(self, timeout: float | None) -> float:
        return timeout or 1.0


def answers(patch: pytest.MonkeyPatch, missing: dict[str, str], **letters: list[bytes]) -> None:
    patch.setattr(delayed, "ask_all", lambda *_: Answers(letters, missing))


def listing(*messages: tuple[bytes, int]) -> list[bytes]:
    answer = DelayedList(id=1, generation=1, pending=5, size=50, messages=list(messages))
    return [DELAYED, documents.encode(answer)]


def cancelled(*, found: bool) -> list[bytes]:
    answer = CancelledDelayed(id=1, generation=1, found=found)
    return [CANCEL_DELAYED, documents.encode(answer)]


def test_the_soonest_of_all_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, {"x3": "away"}, x1=listing((b"a" * 8, 3_000_000), (b"b" * 8, 9_000_000)),
            x2=listing((b"c" * 8, 5_000_000)))  # fmt: skip
    found = Paper().delayed_messages("q", most=2)
    assert (found.pending, found.size, found.missing) == (10, 100, {"x3": "away"})
    assert [(each.exchange, each.due) for each in found.messages] == [
        ("x1", datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)),
        ("x2", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ]
    answers(monkeypatch, {"x3": "away"})
    with pytest.raises(Unavailable, match="exchange x3: away"):
        Paper().delayed_messages("q")


def test_a_message_is_cancelled_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, {"x3": "away"}, x1=cancelled(found=False), x2=cancelled(found=True))
    assert Paper().cancel_message("q", "00" * 8)
    answers(monkeypatch, {}, x1=cancelled(found=False))
    assert not Paper().cancel_message("q", "00" * 8)


@pytest.mark.parametrize(
    "answer",
    [[b"\xffQ", b""], [CANCEL_DELAYED, b"garbage"],
     [REFUSED, documents.encode(Refused(code="full", text="no room"))]],
)  # fmt: skip
def test_what_is_not_certain_is_said(monkeypatch: pytest.MonkeyPatch, answer: list[bytes]) -> None:
    answers(monkeypatch, {}, x1=answer, x2=cancelled(found=False))
    with pytest.raises(Unavailable, match="x1"):
        Paper().cancel_message("q", "00" * 8)


@pytest.mark.parametrize("name", ["", "x" * 16, "00" * 7, "00" * 9, None, 5, b"00" * 8])
def test_what_is_no_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="16 hexadecimal digits"):
        Paper().cancel_message("q", name)
