"""A worker does what each line says, answers each with a line, and measures what it was asked."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from roq.benchmarks.case import Run
from roq.benchmarks.processes import Answer
from roq.benchmarks.worker import PublisherWorker, SubscriberWorker, serve

FAST = Run(topic="t.", size=8, batch=3, count=10)
PACED = msgspec.structs.replace(FAST, rate=100)


class PaperClient:
    """Either side of a contender: notes what it is told."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.calls: list[Any] = []
        self.breaks = breaks
        self.ack_us = [1.0, 2.0]

    def open(self, run: Run) -> None:
        self.calls.append(("open", run))
        if self.breaks:
            raise ValueError("no port")

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        self.calls.append(("publish", run, [len(each) for each in payloads]))

    def pace(self, run: Run) -> None:
        self.calls.append(("pace", run))

    def receive(self, run: Run) -> None:
        self.calls.append(("receive", run))

    def ages(self, run: Run) -> list[float]:
        self.calls.append(("ages", run))
        return [3.0]

    def close(self) -> None:
        self.calls.append("close")


def told(worker: Any, *commands: tuple[str, Run | None]) -> list[Answer]:
    answers = io.BytesIO()
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in commands)
    serve(worker, io.BytesIO(lines), answers)
    return [msgspec.json.decode(line, type=Answer) for line in answers.getvalue().splitlines()]


def test_a_publisher_sends_as_fast_as_it_goes_out_of_one_batch_of_payloads() -> None:
    client = PaperClient()
    opened, went, closed = told(
        PublisherWorker(client), ("open", FAST), ("go", None), ("close", None)
    )
    assert client.calls == [("open", FAST), ("publish", FAST, [8, 8, 8]), "close"]
    assert opened == closed == Answer()
    assert 0.0 < went.started <= went.finished
    assert (went.cpu >= 0.0, went.latencies_us) == (True, [])


def test_at_a_rate_a_publisher_tells_how_long_acknowledgements_took_if_it_knows() -> None:
    client = PaperClient()
    assert told(PublisherWorker(client), ("open", PACED), ("go", None))[1].latencies_us == [1, 2]
    assert client.calls[1] == ("pace", PACED)
    del client.ack_us
    assert told(PublisherWorker(client), ("open", PACED), ("go", None))[1].latencies_us == []


def test_a_subscriber_receives_all_or_tells_ages_at_a_rate() -> None:
    client = PaperClient()
    worker = SubscriberWorker(client)
    fast = told(worker, ("open", FAST), ("go", None), ("close", None))[1]
    paced = told(worker, ("open", PACED), ("go", None))[1]
    assert client.calls == [
        ("open", FAST), ("receive", FAST), "close", ("open", PACED), ("ages", PACED),
    ]  # fmt: skip
    assert (fast.latencies_us, paced.latencies_us) == ([], [3.0])
    assert fast.finished > 0.0


def test_what_goes_wrong_is_the_answer_and_the_next_command_is_taken() -> None:
    client = PaperClient(breaks=True)
    opened, closed = told(SubscriberWorker(client), ("open", FAST), ("close", None))
    assert opened.error == "ValueError: no port"
    assert closed == Answer()
    (not_opened,) = told(PublisherWorker(client), ("go", None))
    assert not_opened.error.startswith("AssertionError")
