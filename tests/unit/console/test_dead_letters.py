"""Dead letters are shown as text, cut, and never more of them are changed than was agreed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from paper_console import SCRIPT, PaperConsole

from roq.client.consume.dead_letters import DeadLetter
from roq.client.operate.dead_letters import Wanted
from roq.console import dead_letters as module
from roq.console.dead_letters import AT_ONCE_MAX, PAYLOAD_MAX, Letters, agreed, shown
from roq.errors import Busy, InvalidRequest

DIED = datetime(2026, 11, 25, tzinfo=UTC)


class PaperLetter:
    def __init__(self, number: int, payload: bytes = b"x", reason: str = "bad") -> None:
        self.acked = False
        self.died = DIED + timedelta(seconds=number)
        self.letter = DeadLetter("load", "eu", "billing", f"x1-1-{number}-0", 3, reason, {"a": "b"})
        self.message = SimpleNamespace(
            payload=payload, key=None, tags=(), ack=lambda: setattr(self, "acked", True)
        )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[PaperLetter]:
    letters = [PaperLetter(number) for number in range(3)]

    @contextmanager
    def held(_cluster: Any, _queue: str, wanted: Wanted) -> Iterator[list[PaperLetter]]:
        yield [each for each in letters if wanted.admits(each.letter, each.died)][: wanted.count]

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
        assert console.get("/queues/load/dead/nix").status == 404
        assert "x1-1-9-0" in console.get("/queues/load/dead?reason=script").text
        assert "x1-1-0-0" not in console.get("/queues/load/dead?reason=script").text


def test_no_more_are_purged_than_were_counted(found: list[PaperLetter]) -> None:
    page = "/do/purge-letters?queue=load"
    with PaperConsole() as console:
        assert "3 match now" in console.get(page).text
        form = {
            "form": console.form(page), "stamp": console.field(page, "stamp"), "queue": "load",
            "typed": "load", "count": console.field(page, "count"),
            "until": console.field(page, "until"),
        }  # fmt: skip
        del found[0]  # somebody else has requeued it meanwhile
        found.append(PaperLetter(3))
        console.post("/do/purge-letters", form)
        assert [each.acked for each in found] == [True, True, False], "not one that came later"


@pytest.mark.parametrize("action", ["purge-letters", "requeue-letters"])
def test_a_page_that_counted_none_drops_none(action: str, found: list[PaperLetter]) -> None:
    found.clear()
    page = f"/do/{action}?queue=load"
    with PaperConsole() as console:
        assert "0 match now" in console.get(page).text
        form = {
            "form": console.form(page), "stamp": console.field(page, "stamp"), "queue": "load",
            "typed": "load", "count": console.field(page, "count"),
            "until": console.field(page, "until"),
        }  # fmt: skip
        found.append(PaperLetter(3))
        console.post(f"/do/{action}", form)
        (deed,) = console.console.audit.deeds()
        assert deed.state == "failed"
        assert not found[0].acked


def test_whoever_looks_waits_for_a_turn_and_not_for_ever(
    found: list[PaperLetter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Letters, "TURN_SECONDS", 0.0)
    with PaperConsole() as console:
        letters = console.console.letters
        with letters._turn:
            answer = console.get("/queues/load/dead")
            assert answer.status == 503
            assert "try again in a few seconds" in answer.text
            assert "data-live" not in answer.text or "/live?" not in answer.text
        assert console.get("/queues/load/dead").status == 200, "its place is free again"
        for _ in range(AT_ONCE_MAX):
            letters._places.acquire()
        with pytest.raises(Busy, match="others look"):
            letters.list("load", Wanted(None, "", "", "", 9, 1.0))


def test_a_page_of_letters_is_not_made_anew_as_it_changes(found: list[PaperLetter]) -> None:
    with PaperConsole() as console:
        assert console.get("/live?page=/queues/load/dead").status == 404
        assert console.get("/live?page=/queues/load/dead/x1-1-0-0").status == 404


def test_a_count_is_bounded() -> None:
    wanted = Wanted(None, "", "", "", 9, 1.0)
    until = DIED.isoformat()
    assert [agreed(wanted, count, until).count for count in (5, 10**9)] == [5, 100_000]
    assert agreed(wanted, 5, until).until == DIED
    for count, when in ((0, until), (5, ""), (5, "yesterday"), (5, "2026-11-25T00:00:00")):
        with pytest.raises(InvalidRequest):
            agreed(wanted, count, when)
