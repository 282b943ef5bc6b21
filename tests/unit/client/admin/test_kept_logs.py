"""What goes with the logs of a host."""

from __future__ import annotations

from types import TracebackType

import pytest
from paper_console import described, summary

from roq.client.admin import kept_logs
from roq.client.admin.kept_logs import KeptLog, logs_on
from roq.client.admin.views import Listing
from roq.errors import Unavailable
from roq.protocol.public_answers import QueueDescription, QueueSummary
from roq.read.log_reader import LogEnds


class PaperQueues:
    """Some queues, each with an exchange on two hosts."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def queues(self) -> Listing[QueueSummary]:
        kinds = {"orders": "flush", "ticks": "none", "broken": "", "quick": "async"}
        return Listing([summary(name, Durability=kind) for name, kind in kinds.items()], None)

    def describe(self, queue: str) -> QueueDescription:
        self.described.append(queue)
        rows = [
            {"Name": f"x{number}", "Number": number, "Host": host, "Data": f"{queue}/x{number}",
             "Live": "", "State": "running", "Epoch": 1, "Pid": 7}
            for number, host in ((1, "h1"), (2, "h2"), (3, "h1"))
        ]  # fmt: skip
        return described(queue, QueueId="ab" * 16, Exchanges=rows)


class PaperReader:
    """Stands for the exchange at an address."""

    ENDS = {"orders/x1": (3, 15), "orders/x3": (7, 7), "quick/x1": (0, 4_000)}  # noqa: RUF012

    def __init__(self, address: str, queue_id: bytes, *, number: int, timeout: float) -> None:
        assert queue_id == b"\xab" * 16
        assert address.endswith(str(number))
        assert timeout <= 2.0
        self.address = address

    def __enter__(self) -> PaperReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...  # fmt: skip

    def ends(self) -> LogEnds:
        if self.address not in self.ENDS:
            raise Unavailable("it does not answer")
        floor, end = self.ENDS[self.address]
        return LogEnds(1, floor, end)


def test_logs_that_hold_something_or_may_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "LogReader", PaperReader)
    queues = PaperQueues()
    found = logs_on(queues, "h1")
    assert found == [
        KeptLog("orders", "x1", 12), KeptLog("quick", "x1", 4_000), KeptLog("quick", "x3", None),
    ]  # fmt: skip
    assert queues.described == ["orders", "quick"]
    assert [str(each) for each in found[1:]] == [
        "queue quick, log of x1: up to 4,000 batches of messages",
        "queue quick, log of x3: it is not known what",
    ]
    assert str(KeptLog("orders", "x1", 1)).endswith("up to 1 batch of messages")
    assert logs_on(queues, "h9") == []


def test_an_exchange_that_does_not_run_yet_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"Name": "x1", "Number": 1, "Host": "h1", "Data": "", "Live": "", "State": "creating",
           "Epoch": 0, "Pid": 0}  # fmt: skip
    queues = PaperQueues()
    told = described("orders", QueueId="ab" * 16, Exchanges=[row])
    monkeypatch.setattr(queues, "describe", lambda _: told)
    assert logs_on(queues, "h1")[0] == KeptLog("orders", "x1", None)
