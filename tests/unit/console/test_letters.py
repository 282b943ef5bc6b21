"""Dead letters are shown as text, cut, and never more of them are changed than was agreed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from paper_console import SCRIPT, PaperConsole

from roq.client.consume.dead_letters import DeadLetter
from roq.client.letters import Wanted
from roq.console import letters as module
from roq.console.letters import PAYLOAD_MAX, at_most, shown


class PaperLetter:
    def __init__(self, number: int, payload: bytes = b"x", reason: str = "bad") -> None:
        self.acked = False
        self.died = datetime(2026, 11, 25, tzinfo=UTC)
        self.letter = DeadLetter("load", "eu", "billing", f"x1-1-{number}-0", 3, reason, {"a": "b"})
        self.message = SimpleNamespace(
            payload=payload, key=None, tags=(), ack=lambda: setattr(self, "acked", True)
        )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[PaperLetter]:
    letters = [PaperLetter(number) for number in range(3)]

    @contextmanager
    def held(_cluster: Any, _queue: str, wanted: Wanted) -> Iterator[list[PaperLetter]]:
        yield [each for each in letters if wanted.admits(each.letter)][: wanted.count]

    monkeypatch.setattr(module, "held", held)
    return letters


@pytest.mark.parametrize(
    ("payload", "text"),
    [(b"caf\xc3\xa9\n\t{}", "café\n\t{}"), (b"a\x00\xff\x1b[1m", "a\\x00\\xff\\x1b[1m"),
     ("\u202eabc".encode(), "\\u202eabc"), (b"y" * 5000, "y" * PAYLOAD_MAX)],
)  # fmt: skip
def test_a_payload_is_text_that_does_nothing_and_is_cut(payload: bytes, text: str) -> None:
    assert shown(payload) == text


def test_letters_are_listed_and_shown(found: list[PaperLetter]) -> None:
    found.append(PaperLetter(9, SCRIPT.encode() * 400, SCRIPT))
    with PaperConsole() as console:
        listed = console.get("/queues/load/dead").text
        assert "x1-1-0-0" in listed
        one = console.get("/queues/load/dead/x1-1-9-0").text
        assert "its first 4 KiB" in one
        for text in (listed, one):
            assert SCRIPT not in text
            assert "&lt;script&gt;" in text
        assert console.get("/queues/load/dead/nix").status == 400
        assert "x1-1-9-0" in console.get("/queues/load/dead?reason=script").text
        assert "x1-1-0-0" not in console.get("/queues/load/dead?reason=script").text


def test_no_more_are_purged_than_were_counted(found: list[PaperLetter]) -> None:
    page = "/do/purge-letters?queue=load"
    with PaperConsole() as console:
        assert "3 match now" in console.get(page).text
        form = {
            "form": console.form(page), "stamp": console.field(page, "stamp"), "queue": "load",
            "typed": "load", "count": console.field(page, "count"),
        }  # fmt: skip
        found.append(PaperLetter(3))
        console.post("/do/purge-letters", form)
        assert [each.acked for each in found] == [True, True, True, False]


def test_a_count_is_bounded() -> None:
    wanted = Wanted(None, "", "", "", 9, 1.0)
    assert [at_most(wanted, count).count for count in (0, 5, 10**9)] == [1, 5, 100_000]
