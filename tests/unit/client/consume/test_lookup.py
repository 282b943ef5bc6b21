"""Messages are looked up by id and key in what exchanges hold, and it is said what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from keyed_batch import batch_of

from roq.client.consume import lookup
from roq.client.consume.lookup import MessageCommands, parse_id
from roq.errors import InvalidName, InvalidRequest, QueueStopped, StaleEpoch, Unavailable
from roq.protocol.batch import read_header
from roq.protocol.channel import KeyPlaces
from roq.read.log_reader import LogEnds
from roq.read.range_reader import LogBatch

Exchange = msgspec.defstruct("Exchange", ["name", "data", "state"])
Queue = msgspec.defstruct("Queue", ["name", "queue_id", "running", "exchanges"])


class PaperLog:
    """A log of an exchange: batches by offset, all in reach of an index but those from `open`."""

    def __init__(self, batches: list[bytes], opened: int = 1 << 60, step: int = 3) -> None:
        self.batches = batches
        self.opened = min(opened, len(batches))
        self.step = step
        self.generation = 7
        self.read_offsets: list[int] = []
        self.answer: KeyPlaces | None = None
        self.asked: int | None = None

    def __enter__(self) -> PaperLog:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ends(self) -> LogEnds:
        return LogEnds(self.generation, 0, len(self.batches))

    def find(self, key: int, before: int) -> KeyPlaces:
        if self.answer is not None:
            return self.answer
        before = min(before, len(self.batches))
        places = [(self.opened, before)] if self.opened < before else []
        top = min(self.opened, before)
        reached = max(0, top - self.step)
        places += [(each, each + 1) for each in range(top - 1, reached - 1, -1)]
        return KeyPlaces(id=1, generation=7, places=places, reached=reached, floor=0)

    def read(self, first: int, until: int) -> Iterator[LogBatch]:
        if self.asked not in {None, self.generation}:
            raise StaleEpoch("another log")
        for offset in range(first, min(until, len(self.batches))):
            self.read_offsets.append(offset)
            data = self.batches[offset]
            yield LogBatch(offset, 1_000_000 * offset, b"eu", read_header(data), data)


class Paper(MessageCommands):
    """A queue of these exchanges."""

    def __init__(self, patch: pytest.MonkeyPatch, **logs: PaperLog | None) -> None:
        self.logs = logs
        self.running = True
        self._engine: Any = msgspec.defstruct("Engine", ["translate"])(str)
        patch.setattr(lookup, "LogReader", self._reader)

    def _reader(
        self, address: str, _queue: bytes, *, number: int, generation: int | None, timeout: float
    ) -> PaperLog:
        log = self.logs[f"x{number}"]
        assert log is not None
        assert address == f"at x{number}"
        log.asked = generation
        return log

    def describe(self, queue: str) -> Any:
        return Queue(
            "q", "00" * 16, self.running,
            [Exchange(name, f"at {name}" * bool(log), "away") for name, log in self.logs.items()],
        )  # fmt: skip

    def _seconds(self, timeout: float | None) -> float:
        return 10.0 if timeout is None else timeout


def test_the_newest_of_a_key_come_first_from_all_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    one = PaperLog(
        [batch_of(["a", "k", "k"]), batch_of(["a"]), batch_of(["k"]), batch_of([None])], 2
    )
    two = PaperLog([batch_of([None]), batch_of(["k", "a"])])
    paper = Paper(monkeypatch, x1=one, x2=two, x3=None)
    found = paper.find_messages("q", "k")
    assert [each.id for each in found.messages] == ["x1-7-2-0", "x2-7-1-0", "x1-7-0-2", "x1-7-0-1"]
    assert (found.more, found.missing) == (True, {"x3": "it is away"})
    message = found.messages[0]
    assert (message.topic, message.key, message.payload, message.priority) == ("eu", "k", b"x", 0)
    del paper.logs["x3"]
    found = paper.find_messages("q", "k")
    assert (len(found.messages), found.more, found.missing) == (4, False, {})
    found = paper.find_messages("q", "k", most=2)
    assert [each.id for each in found.messages] == ["x1-7-2-0", "x2-7-1-0"]
    assert found.more
    assert paper.find_messages("q", "stranger").messages == []


def test_no_more_is_read_than_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    log = PaperLog([batch_of(["k"]) for _ in range(1_000)])
    found = Paper(monkeypatch, x1=log).find_messages("q", "k", most=10)
    assert [each.id for each in found.messages] == [f"x1-7-{at}-0" for at in range(999, 989, -1)]
    assert found.more
    assert min(log.read_offsets) == 989


def test_time_that_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = PaperLog([batch_of(["k"]) for _ in range(5)])
    found = Paper(monkeypatch, x1=log).find_messages("q", "k", timeout=0.0)
    assert found.messages == []
    assert found.more
    assert "time was over" in found.missing["x1"]


@pytest.mark.parametrize(
    "answer",
    [([(3, 9)], 3, 0), ([(0, 1), (2, 3)], 0, 0), ([(2, 2)], 0, 0), ([(1, 2)], 2, 0), ([], 9, 0)],
)  # fmt: skip
def test_answers_that_no_exchange_gives_end_the_search_there(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[list[tuple[int, int]], int, int]
) -> None:
    log = PaperLog([batch_of(["k"])])
    places, reached, floor = answer
    log.answer = KeyPlaces(id=1, generation=7, places=places, reached=reached, floor=floor)
    paper = Paper(monkeypatch, x1=log)
    monkeypatch.setattr(lookup, "OFFSET_MAX", 8)
    assert set(paper.find_messages("q", "k").missing) == {"x1"}


def test_a_message_has_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    log = PaperLog([batch_of(["a", "b"]), batch_of([None])])
    paper = Paper(monkeypatch, x1=log, x2=None)
    found = paper.find_message("q", "x1-7-0-1")
    assert found is not None
    assert (found.id, found.key, found.sequence) == ("x1-7-0-1", "b", 1)
    for gone in ("x1-7-0-2", "x1-7-5-0", "x1-8-0-0", "x9-7-0-0"):
        assert paper.find_message("q", gone) is None
    with pytest.raises(Unavailable, match="x2, which has it, is away"):
        paper.find_message("q", "x2-7-0-0")
    paper.running = False
    with pytest.raises(QueueStopped):
        paper.find_message("q", "x1-7-0-0")


def test_what_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_id("x1-65537-1200-3") == (1, 65_537, 1_200, 3)
    for text in ("", "x1", "1-2-3-4", "x1-2-3-4-5", "x1-2-3-99999999", f"x1-2-{1 << 62}-0",
                 "x1-99999999999-3-4", "x¹-1-1-1", None, 5, b"x1-1-1-1"):  # fmt: skip
        with pytest.raises(InvalidName, match="is no id of a message"):
            parse_id(text)
    paper = Paper(monkeypatch)
    for key in ("k" * 65_536, "\udc80", b"k"):  # the second as a terminal gives what is no UTF-8
        with pytest.raises(InvalidName):
            paper.find_messages("q", key)  # type: ignore[arg-type]
    for most in (0, 1_001):
        with pytest.raises(InvalidRequest):
            paper.find_messages("q", "k", most=most)
