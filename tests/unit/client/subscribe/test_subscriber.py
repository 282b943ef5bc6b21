"""What a subscriber tells its user: where it begins, or why not, what was lost, and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from roq.client.io.engine import Engine
from roq.client.session.events import SessionState
from roq.client.session.status import SubscriberFacts
from roq.client.subscribe import subscriber as module
from roq.client.subscribe.receive_queue import ReceiveQueue
from roq.client.subscribe.subscriber import Subscriber, remaining
from roq.errors import (
    Closed,
    InvalidName,
    InvalidRequest,
    NotKept,
    QueueNotFound,
    QueueStopped,
    RoQError,
    Unavailable,
)
from roq.protocol.channel import PREFIXES_MAX
from roq.read.events import From, Start
from roq.read.message import Batch, Gap


def batch(*payloads: bytes, sequence: int = 1) -> Batch:
    return Batch([*payloads], "t", b"p" * 16, sequence, 0, sum(map(len, payloads)), None)


class PaperShell:
    """A queue that confirms at once; who waits finds what `meanwhile` has made of it."""

    made: list[PaperShell]
    begin: Callable[[Any], None] = staticmethod(lambda shell: shell.on_confirmed())

    def __init__(
        self, _engine: Any, _id: bytes, prefixes: list[bytes], start: Any, queue: ReceiveQueue,
        **given: Any,
    ) -> None:  # fmt: skip
        self.prefixes, self.start, self.queue, self.given = prefixes, start, queue, given
        self.on_confirmed, self.on_refused = given["on_confirmed"], given["on_refused"]
        self.confirmed = True
        self.waits: list[float] = []
        self.ended: list[str] = []
        self.closed = self.empty = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.made.append(self)

    def alive(self) -> Mapping[str, object]:
        return {}

    def losses(self) -> Any:
        return SimpleNamespace(messages=7)

    def facts(self, _queue: str, _session: Any) -> SubscriberFacts | None:
        return None

    def read(self) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.meanwhile()

    def end(self, error: RoQError) -> None:
        self.queue.items.append(error)
        self.ended.append(str(error))

    def emptied(self) -> None:
        self.empty += 1

    def stats(self) -> str:
        return "stats"

    def close(self) -> None:
        self.closed += 1


class PaperSession:
    """Says what `PaperShell.begin` lets it say."""

    shell: PaperShell

    def __init__(self, *_: Any, on_state: Callable[[str, str], None], **__: Any) -> None:
        PaperShell.made[-1].on_state = on_state  # type: ignore[attr-defined]

    def start(self) -> None:
        PaperShell.begin(PaperShell.made[-1])

    def close(self) -> None: ...


Make = Callable[..., tuple[Subscriber, Any]]


@pytest.fixture
def make(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Make:
    class PaperReporter(SimpleNamespace):
        def __init__(self, *_: Any) -> None:
            super().__init__(
                start=lambda: None, close=lambda _: None, look_soon=lambda: None,
                status=SimpleNamespace(reason="nobody confirms"),
            )  # fmt: skip

    monkeypatch.setattr(PaperShell, "made", [], raising=False)
    monkeypatch.setattr(module, "SubscriberShell", PaperShell)
    monkeypatch.setattr(module, "MonitorSession", PaperSession)
    monkeypatch.setattr(module, "StatusReporter", PaperReporter)

    def made(*topics: Any, begin: Any = None, **given: Any) -> tuple[Subscriber, PaperShell]:
        if begin is not None:
            monkeypatch.setattr(PaperShell, "begin", staticmethod(begin))
        subscriber = Subscriber(engine, ["a"], "q", *topics, **given)
        return subscriber, PaperShell.made[-1]

    return made


@pytest.mark.parametrize(
    ("option", "start"),
    [
        ("latest", Start(From.LATEST)),
        ("earliest", Start(From.EARLIEST)),
        (7, Start(From.OFFSET, 7)),
        (datetime(2030, 1, 1, tzinfo=UTC), Start(From.TIME, 1_893_456_000_000_000)),
        ({"x1": 5, "x12": 0}, {1: 5, 12: 0}),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(option: Any, start: Any, make: Make) -> None:
    assert make(start=option)[1].start == start


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"start": "first"}, InvalidRequest),
        ({"start": -1}, InvalidRequest),
        ({"start": True}, InvalidRequest),
        ({"start": datetime(2030, 1, 1)}, InvalidRequest),  # noqa: DTZ001 - no zone is the point
        ({"start": {"x1": -1}}, InvalidRequest),
        ({"start": {"one": 1}}, InvalidRequest),
        ({"start": {"x": 1}}, InvalidRequest),
        ({"topic": []}, InvalidRequest),
        ({"topic": ["t"] * (PREFIXES_MAX + 1)}, InvalidRequest),
        ({"topic": "t" * 256}, InvalidName),
        ({"below_floor": "ignore"}, InvalidRequest),
        ({"away_seconds": -1.0}, InvalidRequest),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(
    given: dict[str, Any], error: type[RoQError], make: Make
) -> None:
    with pytest.raises(error):
        make(**given)
    assert PaperShell.made == []


def test_topics_are_one_or_several_prefixes(make: Make) -> None:
    assert make()[1].prefixes == [b""]
    assert make("a")[1].prefixes == [b"a"]
    assert make(["a", "b"])[1].prefixes == [b"a", b"b"]


@pytest.mark.parametrize(
    ("begin", "error", "text"),
    [
        (lambda _: None, Unavailable, "no subscription to queue q within 0.01 s: nobody confirms"),
        (lambda shell: shell.on_state(SessionState.REMOVED, "no queue q"), QueueNotFound, "no q"),
        (lambda shell: shell.on_refused("it is gone"), NotKept, "it is gone. Begin at 'earliest'"),
    ],
)
def test_why_it_is_not_in_force_is_said_and_nothing_is_left_open(
    begin: Any, error: type[RoQError], text: str, make: Make
) -> None:
    with pytest.raises(error, match=text):
        make(begin=begin, timeout=0.01)
    assert PaperShell.made[0].closed == 1


def test_a_queue_that_is_stopped_refuses_only_those_that_have_not_begun(make: Make) -> None:
    def stopped(shell: Any) -> None:
        shell.confirmed = False
        shell.on_state(SessionState.STOPPED, "q is stopped")

    with pytest.raises(QueueStopped, match="q is stopped"):
        make(begin=stopped)
    subscriber, shell = make(begin=lambda shell: shell.on_confirmed())
    shell.on_state(SessionState.STOPPED, "q is stopped")
    assert subscriber.receive(0) is None


def test_what_has_come_is_read_before_it_is_said_that_the_queue_was_removed(make: Make) -> None:
    subscriber, shell = make()
    shell.queue.items.append(batch(b"1"))
    shell.on_state(SessionState.REMOVED, "no queue q")
    message = subscriber.receive()
    assert message is not None
    assert message.payload == b"1"
    for _ in range(2):
        with pytest.raises(QueueNotFound, match="no queue q"):
            subscriber.receive()


def test_messages_come_one_by_one_and_nothing_in_time_is_none(make: Make) -> None:
    subscriber, shell = make()
    assert subscriber.receive(0) is None
    assert shell.waits == []
    shell.meanwhile = lambda: shell.queue.items.append(batch(b"1", b"2"))
    got = [subscriber.receive(60) for _ in range(2)]
    assert [each.payload for each in got if each is not None] == [b"1", b"2"]
    assert shell.waits == [module.WAIT_SECONDS], "it looks again, whoever forgets to wake it"
    with pytest.raises(InvalidRequest):
        subscriber.receive(float("nan"))


def test_what_was_lost_is_told_in_its_place(make: Make) -> None:
    told: list[object] = []
    subscriber, shell = make(on_gap=told.append)
    gap = Gap("t", "gone")
    shell.queue.items += [batch(b"1"), gap, batch(b"3")]
    first = subscriber.receive()
    assert (first is not None, told) == (True, [])
    second = subscriber.receive()
    assert (second is not None, told) == (True, [gap])


def test_a_loop_ends_when_it_is_closed_and_one_over_batches_goes_on_with_the_rest(
    make: Make,
) -> None:
    subscriber, shell = make()
    shell.queue.items += [batch(b"1", b"2"), batch(b"3", sequence=3)]
    assert next(iter(subscriber)).payload == b"1"
    shell.meanwhile = subscriber.close
    assert [each.payloads for each in subscriber.batches()] == [[b"2"], [b"3"]]
    assert list(subscriber) == []


def test_what_is_left_of_a_batch_is_one_from_its_own_sequence_on() -> None:
    messages = batch(b"1", b"2", b"3", sequence=5).messages()
    next(messages)
    rest = remaining(messages)
    assert rest is not None
    assert (rest.payloads, rest.sequence) == ([b"2", b"3"], 6)
    assert remaining(iter(())) is None


def test_a_loop_of_events_takes_what_is_there_up_to_the_next_loss(make: Make) -> None:
    told: list[object] = []
    subscriber, shell = make(on_gap=told.append)
    gap = Gap("t", "gone")
    shell.queue.items += [batch(b"1"), batch(b"2"), batch(b"3"), gap, batch(b"4")]
    assert [each.payloads for each in subscriber._take(2)] == [[b"1"], [b"2"]]
    assert [each.payloads for each in subscriber._take(9)] == [[b"3"]]
    assert (told, shell.empty) == ([], 0)
    assert [each.payloads for each in subscriber._take(9)] == [[b"4"]]
    assert (told, shell.empty) == ([gap], 1)


def test_closing_happens_once_and_ends_every_wait(make: Make) -> None:
    subscriber, shell = make()
    with subscriber:
        assert subscriber.stats() == "stats"
        assert repr(subscriber) == "<roq.Subscriber of q: subscribed, 0 batches to take, 7 lost>"
    subscriber.close()
    assert (shell.closed, shell.ended) == (1, ["the subscriber is closed"])
    with pytest.raises(Closed):
        subscriber.receive()
    assert "closed" in repr(subscriber)
    assert repr(object.__new__(Subscriber)) == "<roq.Subscriber>"
