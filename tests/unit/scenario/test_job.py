"""What workers are told and say."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from roq.simulation.scenario import job
from roq.simulation.scenario.worker import Commands, Sender


@pytest.mark.parametrize("told", [job.Open(), job.Rate(per_second=2.5), job.Move(), job.Finish()])
def test_a_command_is_a_line(told: job.Command) -> None:
    assert job.command(job.line(told)) == told


@pytest.mark.parametrize(
    "said",
    [
        job.Ready(id="aa"),
        job.Progress(messages=1, bytes=2, latency_ms=3.0),
        job.Finished(messages=1, bytes=2, latency={"1": 2}),
        job.Broken(reason="why"),
    ],
)
def test_a_report_is_a_line(said: job.Report) -> None:
    assert job.report(job.line(said)) == said


def test_anything_else_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        job.command(b'{"command": "dance"}')


def test_commands_are_read_line_by_line_until_nobody_is_there() -> None:
    read, write = os.pipe()
    commands = Commands(read)
    assert commands.next(0.0) is None
    os.write(write, job.line(job.Rate(per_second=1.0)) + job.line(job.Move()))
    os.close(write)
    assert commands.next(1.0) == job.Rate(per_second=1.0)
    assert commands.next(1.0) == job.Move()
    with pytest.raises(EOFError):
        commands.next(1.0)
    os.close(read)


class Paper:
    """Takes messages down."""

    id = b"p" * 16

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def publish(self, payload: bytes, topic: str = "") -> None:
        assert topic == "load"
        self.payloads.append(payload)


def sender(paper: Paper) -> Sender:
    described = job.Job(name="p", address="", queue="q", publishes=True, payload=40)
    return Sender(described, paper, lambda _: None)


def test_without_a_rate_nothing_is_published() -> None:
    paper = Paper()
    quiet = sender(paper)
    quiet.publish_due()
    assert paper.payloads == []
    assert quiet.wait_seconds() > 0


def test_below_zero_means_as_fast_as_it_goes() -> None:
    paper = Paper()
    fast = sender(paper)
    fast.set_rate(-1.0)
    assert fast.wait_seconds() == 0
    fast.publish_due()
    assert len(paper.payloads) > 1
    assert {len(payload) for payload in paper.payloads} == {40}
    assert len(set(paper.payloads)) == len(paper.payloads)


def test_messages_may_come_in_bursts() -> None:
    paper = Paper()
    described = job.Job(name="p", address="", queue="q", publishes=True, payload=40, burst=5)
    bursting = Sender(described, paper, lambda _: None)
    bursting.set_rate(100.0)
    deadline = time.monotonic() + 10
    while not paper.payloads and time.monotonic() < deadline:
        bursting.publish_due()
    assert len(paper.payloads) >= 5
    assert bursting.wait_seconds() > 0


def test_a_rate_that_changes_often_starves_nobody() -> None:
    paper = Paper()
    slow = sender(paper)
    deadline = time.monotonic() + 10
    while len(paper.payloads) < 3 and time.monotonic() < deadline:
        slow.set_rate(20.0 + len(paper.payloads))
        slow.publish_due()
    assert len(paper.payloads) == 3
