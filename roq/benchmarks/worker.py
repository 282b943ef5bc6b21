"""One publisher or one subscriber: `python -m roq.benchmarks.worker CONTENDER ROLE STYLE OPTIONS`.

Reads commands from standard input, one JSON array a line, and answers each with one JSON object:
`["open", run]`, `["go", null]`, `["close", null]`. Ends at the end of its input.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from typing import BinaryIO

import msgspec

from roq.benchmarks.case import Run
from roq.benchmarks.clients import BenchPublisher, BenchSubscriber, payloads_of
from roq.benchmarks.processes import Answer


class PublisherWorker:
    """Does what the harness says with a publisher."""

    def __init__(self, client: BenchPublisher) -> None:
        self._client = client
        self._run: Run | None = None
        self._payloads: list[bytes] = []

    def open(self, run: Run) -> None:
        """Prepare for one measurement."""
        self._run = run
        self._payloads = payloads_of(run)
        self._client.open(run)

    def go(self) -> Answer:
        """Publish, and tell when it began and ended."""
        assert self._run is not None  # noqa: S101 - the harness opens first
        cpu, started = time.process_time(), time.monotonic()
        if self._run.rate:
            self._client.pace(self._run)
        else:
            self._client.publish(self._run, self._payloads)
        return Answer(
            started=started, finished=time.monotonic(), cpu=time.process_time() - cpu,
            latencies_us=getattr(self._client, "ack_us", []) if self._run.rate else [],
        )  # fmt: skip

    def close(self) -> None:
        """End the measurement."""
        self._client.close()


class SubscriberWorker:
    """Does what the harness says with a subscriber."""

    def __init__(self, client: BenchSubscriber) -> None:
        self._client = client
        self._run: Run | None = None

    def open(self, run: Run) -> None:
        """Subscribe for one measurement."""
        self._run = run
        self._client.open(run)

    def go(self) -> Answer:
        """Receive everything, and tell when it was there."""
        assert self._run is not None  # noqa: S101 - the harness opens first
        cpu, ages = time.process_time(), list[float]()
        if self._run.rate:
            ages = self._client.ages(self._run)
        else:
            self._client.receive(self._run)
        finished = time.monotonic()
        return Answer(finished=finished, cpu=time.process_time() - cpu, latencies_us=ages)

    def close(self) -> None:
        """Unsubscribe."""
        self._client.close()


def serve(
    worker: PublisherWorker | SubscriberWorker, commands: BinaryIO, answers: BinaryIO
) -> None:
    """Answer commands until they end."""
    for line in commands:
        command, argument = msgspec.json.decode(line, type=tuple[str, Run | None])
        answer = Answer()
        try:
            if command == "open" and argument is not None:
                worker.open(argument)
            elif command == "go":
                answer = worker.go()
            else:
                worker.close()
        except Exception as error:  # noqa: BLE001 - told to the harness, which decides
            traceback.print_exc()
            answer = Answer(error=f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def main(contender: str, role: str, style: str, options_json: str) -> None:
    """Run one client until standard input ends."""
    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    options = msgspec.json.decode(options_json, type=dict[str, str])
    module = importlib.import_module(f"roq.benchmarks.contenders.{contender}")
    worker: PublisherWorker | SubscriberWorker
    if role == "publisher":
        worker = PublisherWorker(module.publisher(style, options))
    else:
        worker = SubscriberWorker(module.subscriber(style, options))
    serve(worker, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
