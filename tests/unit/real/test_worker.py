"""What workers are told, and how they publish."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from roq.simulation.real import commands
from roq.simulation.real.commands import Command, Commands, Finish, Move, Open, Rate
from roq.simulation.real.journal import Journal, State, Tail, Upto
from roq.simulation.real.naive import Stats
from roq.simulation.real.worker import Job, Sender, payload

if TYPE_CHECKING:
    from roq.simulation.real.naive import Publisher


def told(*lines: bytes) -> Commands:
    read, write = os.pipe()
    os.write(write, b"".join(lines))
    os.close(write)
    return Commands(read)


@pytest.mark.parametrize("command", [Open(), Rate(per_second=2.5), Move(), Finish()])
def test_a_command_is_a_line(command: Command) -> None:
    assert told(commands.line(command)).next(1.0) == command


def test_anything_else_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        told(b'{"command": "dance"}\n').next(1.0)


def test_commands_are_read_line_by_line_until_nobody_is_there() -> None:
    read, write = os.pipe()
    found = Commands(read)
    assert found.next(0.0) is None
    os.write(write, commands.line(Rate(per_second=1.0)) + commands.line(Move()))
    os.close(write)
    assert found.next(1.0) == Rate(per_second=1.0)
    assert found.next(1.0) == Move()
    with pytest.raises(EOFError):
        found.next(1.0)
    os.close(read)


def test_what_comes_before_the_command_that_is_waited_for_is_passed_over() -> None:
    found = told(commands.line(Move()), commands.line(Open()), commands.line(Finish()))
    found.wait_for(Open)
    assert found.next(1.0) == Finish()


class Paper:
    """Takes messages down."""

    id = b"p" * 16

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def publish(self, payload: bytes, topic: str = "") -> None:
        assert topic == "load"
        self.payloads.append(payload)

    def stats(self) -> Stats:
        return Stats(len(self.payloads))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def sender(paper: Paper, journal: Path, burst: int = 1) -> Sender:
    job = Job(
        name="p", addresses=[], queue="q", publishes=True, journal=str(journal), size=40,
        burst=burst,
    )  # fmt: skip
    return Sender(job, cast("Publisher", paper), Journal(journal))


def test_without_a_rate_nothing_is_published(journal: Path) -> None:
    paper = Paper()
    quiet = sender(paper, journal)
    quiet.publish_due()
    assert paper.payloads == []
    assert quiet.wait_seconds() > 0


def test_below_zero_means_as_fast_as_it_goes(journal: Path) -> None:
    paper = Paper()
    fast = sender(paper, journal)
    fast.set_rate(-1.0)
    assert fast.wait_seconds() == 0
    fast.publish_due()
    assert len(paper.payloads) > 1
    assert {len(payload) for payload in paper.payloads} == {40}
    assert len(set(paper.payloads)) == len(paper.payloads)


def test_messages_may_come_in_bursts(journal: Path) -> None:
    paper = Paper()
    bursting = sender(paper, journal, burst=5)
    bursting.set_rate(100.0)
    deadline = time.monotonic() + 10
    while not paper.payloads and time.monotonic() < deadline:
        bursting.publish_due()
    assert len(paper.payloads) >= 5
    assert bursting.wait_seconds() > 0


def test_a_rate_that_changes_often_starves_nobody(journal: Path) -> None:
    paper = Paper()
    slow = sender(paper, journal)
    deadline = time.monotonic() + 10
    while len(paper.payloads) < 3 and time.monotonic() < deadline:
        slow.set_rate(20.0 + len(paper.payloads))
        slow.publish_due()
    assert len(paper.payloads) == 3


def test_a_sender_says_how_far_it_goes_before_it_publishes(journal: Path) -> None:
    paper = Paper()
    fast = sender(paper, journal)
    fast.set_rate(-1.0)
    fast.publish_due()
    fast.tell()
    first, *_, last = Tail(journal).read()
    assert isinstance(first, Upto)
    assert isinstance(last, State)
    assert first.count == last.published == last.acked == len(paper.payloads)


def test_the_receiver_makes_the_same_payload(journal: Path) -> None:
    paper = Paper()
    fast = sender(paper, journal)
    fast.set_rate(-1.0)
    fast.publish_due()
    stream = paper.id.hex()
    assert paper.payloads == [payload(stream, at, 40) for at in range(len(paper.payloads))]
    assert payload(stream, 7, 40) != payload("ff" * 16, 7, 40)
    assert payload(stream, 7, 40)[:39] != payload(stream, 7, 39)  # a part is no message
