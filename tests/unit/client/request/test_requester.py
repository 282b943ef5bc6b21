"""What a requester keeps, sends once more, and says if it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.client.publish.batching import Attributed
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.request.context import CURRENT, RequestContext
from roq.client.request.endpoint import endpoint
from roq.client.request.many import PendingMany
from roq.client.request.pending import Pending
from roq.client.request.requester import Requester
from roq.client.request.waiting_requests import InnerRequests, Sent
from roq.model import LogId
from roq.protocol.delayed import DELAYED_TOPIC, decode_delayed
from roq.protocol.orphaned_answers import BEFORE, before_of
from roq.protocol.requesting import (
    ENVELOPE,
    Position,
    RequestEnd,
    RequestState,
    ServiceSettings,
    delayed_position,
)

ECHO = endpoint("s.echo", request=bytes, response=bytes, idempotent=True)


class PaperPublisher:
    """Has what was published, or raises what it is told to."""

    queue = "work"
    trouble = ""

    def __init__(self) -> None:
        links = SimpleNamespace(
            replay=SimpleNamespace(keep_nothing=lambda: None), bound=SimpleNamespace(topics=set())
        )
        self._shell = SimpleNamespace(
            machine=SimpleNamespace(links=links),
            publish_chunk=self.publish_chunk,
            guard=SimpleNamespace(check=self.check),
        )
        self.most = 2
        """Messages of one batch."""
        self.room = 100
        """Batches for which there is room."""
        self.published: list[bytes] = []
        self.topics: list[str] = []
        self.errors: list[roq.RoQError] = []
        self.flushed = 0
        self.reentered = False
        """By a signal handler."""

    def check(self) -> None:
        if self.reentered:
            raise roq.Reentered("in the middle of another call")

    def publish(self, data: bytes, topic: str) -> Receipt:
        assert type(data) is bytes
        return self.publish_raw(data, topic)

    def publish_raw(self, data: bytes, topic: str) -> Receipt:
        if self.errors:
            raise self.errors.pop(0)
        self.published.append(data)
        self.topics.append(topic)
        return Receipt(cast("Any", self))

    def publish_chunk(
        self, payloads: list[bytes], position: int, _topic: str
    ) -> tuple[int, Receipt | None]:
        if self.errors:
            raise self.errors.pop(0)
        if not self.room:
            return 0, None
        self.room -= 1
        chunk = payloads[position : position + self.most]
        self.published += chunk
        return len(chunk), Receipt(cast("Any", self))

    def flush(self, _timeout: float | None) -> None:
        self.flushed += 1
        self.room += 1

    def close(self, _timeout: float | None) -> None: ...


class PaperCollector:
    """Notes what is asked of it."""

    open_count = 0
    trouble = ""
    wall_clock = staticmethod(time.time)

    def check_process(self) -> None:
        """It is no forked child."""

    def __init__(self, on_lost: Callable[[Any], bool]) -> None:
        self.on_lost = on_lost
        self.kept = self
        self.bytes, self.left_out = 30, 2
        self.inner = InnerRequests(nullcontext())
        self.kept_single: list[Pending[Any]] = []
        self.kept_many: list[PendingMany[Any]] = []
        self.let_go_of: list[PendingMany[Any]] = []
        self.expected: list[float] = []
        self.given = ServiceSettings()
        self.calls: list[tuple[Callable[[], object], Callable[[], object]]] = []
        self.failed: list[tuple[Any, roq.RoQError]] = []

    def need_exchanges(self, _timeout: float) -> None: ...

    def read_by(self, _shell: object) -> None: ...

    def left(self, _sent: object) -> None: ...

    def attend(self, *_: object) -> None: ...

    def settings(self, _service: str) -> ServiceSettings:
        return self.given

    def expect(self, pending: Any, seconds: float) -> None:
        self.expected.append(seconds)
        pending.due = float(len(self.expected))

    def keep(self, pending: Pending[Any], data: bytes) -> None:
        self.kept_single.append(pending)
        pending.repeat = data

    def keep_many(self, many: PendingMany[Any], data: list[bytes]) -> None:
        self.kept_many.append(many)
        many.repeat = data

    def renew(self, pending: Pending[Any], data: bytes) -> None:
        pending.repeat = data

    def renew_some(self, many: PendingMany[Any], data: dict[int, bytes]) -> None:
        many.repeat = [data.get(at, each) for at, each in enumerate(many.repeat or [])]

    def let_go(self, many: Any) -> None:
        self.let_go_of.append(many)

    def repeat(self, call: Callable[[], object], left_out: Callable[[], object]) -> None:
        self.calls.append((call, left_out))

    def fail(self, pending: Any, error: roq.RoQError) -> None:
        self.failed.append((pending, error))

    def wait_for(self, condition: Callable[[], bool], _timeout: float) -> bool:
        return condition()

    def accepted(self, _sent: Sent) -> None: ...

    def close(self) -> None: ...


class Scene:
    """A requester, and both sides of it."""

    def __init__(self, *, block: bool = False, collect: bool = True) -> None:
        self.publisher = PaperPublisher()
        made: list[PaperCollector] = []

        def make(on_lost: Callable[[Any], bool]) -> Any:
            made.append(PaperCollector(on_lost))
            return made[0]

        self.requester = Requester(
            cast("Any", self.publisher), make, settings=ServiceSettings(), timeout=1.0,
            block=block, collect=collect,
        )  # fmt: skip
        self.collector = made[0]

    def lost(self) -> Pending[bytes]:
        """A request whose exchange is gone."""
        pending = self.requester.request(ECHO, b"x")
        assert self.collector.on_lost(pending)
        return pending


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_kept_of_what_does_not_leave(scene: Scene) -> None:
    scene.publisher.errors.append(roq.WouldBlock("full"))
    with pytest.raises(roq.WouldBlock):
        scene.requester.request(ECHO, b"x")
    assert scene.collector.kept_single == []
    pending = scene.requester.request(ECHO, b"x")
    assert scene.collector.kept_single == [pending]


def test_what_is_lost_is_sent_once_more_and_waits_for_room(scene: Scene) -> None:
    pending = scene.lost()
    scene.publisher.errors.append(roq.WouldBlock("full"))
    call, _ = scene.collector.calls.pop()
    call()
    assert scene.publisher.flushed == 1
    assert scene.publisher.published == [pending.repeat, pending.repeat]
    assert scene.collector.failed == []


def beside(data: bytes) -> tuple[dict[str, str], int]:
    """Headers and priority of what was published."""
    assert isinstance(data, Attributed)
    given = data.beside.attributes
    return given.properties, given.priority


def test_a_request_travels_with_its_headers_and_priority_also_once_more(scene: Scene) -> None:
    pending = scene.requester.request(ECHO, b"x", headers={"who": "me"}, priority=7)
    assert scene.collector.on_lost(pending)
    call, _ = scene.collector.calls.pop()
    call()
    assert list(map(beside, scene.publisher.published)) == [({"who": "me"}, 7)] * 2


def test_many_travel_with_their_headers_and_priority_also_once_more(scene: Scene) -> None:
    many = scene.requester.request_many(ECHO, [b"a", b"b"], headers={"who": "me"}, priority=3)
    assert scene.collector.on_lost(many.parts[0])
    call, _ = scene.collector.calls.pop()
    call()
    assert list(map(beside, scene.publisher.published)) == [({"who": "me"}, 3)] * 4


def accepted(receipt: Receipt | None, number: int, offset: int) -> None:
    assert receipt is not None
    receipt.settle(SendStatus(outcome=Outcome.OK, log=LogId(number, 1), offset=offset))


def test_what_is_sent_once_more_says_as_what_it_was_known_each_time(scene: Scene) -> None:
    pending = scene.requester.request(ECHO, b"x", headers={"who": "me"}, priority=7)
    for number in (1, 2):
        accepted(pending.accepted, number, 40 + number)
        assert scene.collector.on_lost(pending)
        scene.collector.calls.pop()[0]()
    first, *again = scene.publisher.published
    assert beside(first) == ({"who": "me"}, 7)
    assert [beside(data) for data in again] == [
        ({"who": "me", BEFORE: "x1-1-41-0"}, 7),
        ({"who": "me", BEFORE: "x1-1-41-0 x2-1-42-0"}, 7),
    ]
    assert [cast("Attributed", data).beside.again for data in again] == [True, True]
    assert set(map(bytes, again)) == {bytes(first)}, "by what was requested it is found"


def test_many_that_are_sent_once_more_say_as_what_each_was_known(scene: Scene) -> None:
    many = scene.requester.request_many(ECHO, [b"a", b"b", b"c"])
    for number, part in enumerate(many.parts):
        accepted(part.receipt, 1, 40 + number)
    many.settle(0, RequestEnd(40, 0, RequestState.DONE), None)
    for number, part in enumerate(list(many.parts)):
        assert scene.collector.on_lost(part)
        scene.collector.calls.pop()[0]()
        accepted(many.parts[-1].receipt, 2, 50 + number)
    b, c = scene.publisher.published[3:]
    assert (b[-1:], beside(b)) == (b"b", ({BEFORE: "x1-1-40-1"}, 0))
    assert (c[-1:], beside(c)) == (b"c", ({BEFORE: "x1-1-41-0"}, 0))
    assert scene.collector.on_lost(many.parts[-1])
    scene.collector.calls.pop()[0]()
    assert beside(scene.publisher.published[-1]) == ({BEFORE: "x1-1-41-0 x2-1-51-0"}, 0)


def test_a_delayed_request_says_by_which_message_it_was_known(scene: Scene) -> None:
    pending = scene.requester.request(ECHO, b"x", delay=60)
    assert pending.delayed is not None
    accepted(pending.accepted, 1, 41)
    assert pending.at is not None
    assert scene.collector.on_lost(pending)
    scene.collector.calls.pop()[0]()
    properties, _ = beside(scene.publisher.published[-1])
    assert before_of(properties) == [(LogId(1, 1), delayed_position(pending.delayed[1]))]


def test_where_that_finds_no_room_it_is_sent_once_more_without_it(scene: Scene) -> None:
    pending, many = scene.requester.request(ECHO, b"x"), scene.requester.request_many(ECHO, [b"a"])
    accepted(pending.accepted, 1, 41)
    accepted(many.parts[0].receipt, 1, 42)
    for lost in (pending, many.parts[0]):
        assert scene.collector.on_lost(lost)
        scene.publisher.errors.append(roq.MessageTooLarge("as large as may be"))
        scene.collector.calls.pop()[0]()
    assert [type(data) for data in scene.publisher.published[2:]] == [bytes, bytes]
    assert scene.collector.failed == []


@pytest.mark.parametrize("priority", [-1, 10, 1.5, "high", None])
def test_priorities_that_cannot_be(scene: Scene, priority: Any) -> None:
    requester = scene.requester
    for make in (
        lambda: requester.request(ECHO, b"x", priority=priority),
        lambda: requester.request_many(ECHO, [b"x"], priority=priority),
        lambda: requester.send(ECHO, b"x", priority=priority),
    ):
        with pytest.raises(roq.InvalidRequest, match="priority is a whole number from 0 to 9"):
            make()
    assert scene.publisher.published == []


def test_what_cannot_be_sent_once_more_says_so(scene: Scene) -> None:
    pending = scene.lost()
    scene.publisher.errors.append(roq.QueueNotFound("gone"))
    call, left_out = scene.collector.calls.pop()
    call()
    left_out()
    (_, gone), (failed, left) = scene.collector.failed
    assert isinstance(gone, roq.QueueNotFound)
    assert failed is pending
    assert "before it was sent once more" in str(left)


def test_what_ends_after_the_requester_is_not_sent_once_more(scene: Scene) -> None:
    pending = scene.requester.request(ECHO, b"x")
    scene.requester.close()
    assert not scene.collector.on_lost(pending)


# --- many -----------------------------------------------------------------------------------------


def test_many_are_one_object_over_the_batches_that_they_went_into() -> None:
    scene = Scene(block=True)
    scene.publisher.room = 1
    many = scene.requester.request_many(ECHO, [b"a", b"b", b"c", b"d", b"e"])
    assert [data[-1:] for data in scene.publisher.published] == [b"a", b"b", b"c", b"d", b"e"]
    assert [list(part.members) for part in many.parts] == [[0, 1], [2, 3], [4]]
    assert scene.publisher.flushed == 2, "it has waited for room"
    assert many.repeat == scene.publisher.published
    assert not many.done()


def test_the_time_of_many_that_wait_for_room_begins_when_they_leave() -> None:
    scene = Scene(block=True)
    scene.publisher.room = 1
    many = scene.requester.request_many(ECHO, [b"a", b"b", b"c"], within=5)
    first, second = many.parts
    assert first.due < second.due
    assert set(scene.collector.expected) == {5.0}
    assert scene.collector.on_lost(first)
    scene.collector.calls.pop()[0]()
    assert many.parts[-1].due <= second.due, "and goes on when they are sent once more"


def test_many_and_one_share_a_batch(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = Receipt(cast("Any", scene.publisher))
    monkeypatch.setattr(scene.publisher, "publish", lambda *_, **__: receipt)
    monkeypatch.setattr(scene.requester._shell, "publish_chunk", lambda *_: (2, receipt))
    first = scene.requester.request(ECHO, b"x")
    many = scene.requester.request_many(ECHO, [b"a", b"b"])
    last = scene.requester.request(ECHO, b"y")
    assert (first._index, many.parts[0].first, last._index) == (0, 1, 3)


def test_many_of_which_none_can_be_made_raise(scene: Scene) -> None:
    scene.publisher.room = 0
    with pytest.raises(roq.WouldBlock):
        scene.requester.request_many(ECHO, [b"a"])
    scene.publisher.errors.append(roq.QueueNotFound("gone"))
    with pytest.raises(roq.QueueNotFound):
        scene.requester.request_many(ECHO, [b"a"])
    with pytest.raises(roq.InvalidRequest, match="cannot be encoded"):
        scene.requester.request_many(ECHO, [b"a", cast("bytes", 7)])
    scene.publisher.reentered, scene.publisher.room = True, 1
    with pytest.raises(roq.Reentered):
        scene.requester.request_many(ECHO, [b"a"])
    assert scene.publisher.published == []


def test_nothing_is_kept_of_many_that_do_not_leave(scene: Scene) -> None:
    scene.publisher.room = 0
    for _ in range(2):
        with pytest.raises(roq.WouldBlock):
            scene.requester.request_many(ECHO, [b"a", b"b"])
    kept, let_go = scene.collector.kept_many, scene.collector.let_go_of
    assert len(kept) == 2
    assert let_go == kept


def test_many_of_which_some_cannot_be_made_say_so_of_these(scene: Scene) -> None:
    scene.publisher.errors.append(roq.MessageTooLarge("too large"))
    scene.publisher.room = 1
    many = scene.requester.request_many(ECHO, [b"a", b"b", b"c", b"d"])
    assert [data[-1:] for data in scene.publisher.published] == [b"b", b"c"]
    assert isinstance(many.ends[0], roq.MessageTooLarge)
    assert many.ends[1:3] == [None, None]
    assert isinstance(many.ends[3], roq.WouldBlock)


def test_those_of_a_lost_exchange_are_sent_once_more(scene: Scene) -> None:
    many = scene.requester.request_many(ECHO, [b"a", b"b", b"c"])
    many.settle(0, None, roq.Unavailable("known"))
    scene.publisher.published.clear()
    scene.publisher.room = 0
    assert scene.collector.on_lost(many.parts[0])
    call, _ = scene.collector.calls.pop()
    call()
    assert [data[-1:] for data in scene.publisher.published] == [b"b"]
    assert list(many.parts[-1].members) == [1]
    assert scene.publisher.flushed == 1, "it waits for room"
    assert scene.collector.on_lost(many.parts[1])
    scene.publisher.errors.append(roq.QueueNotFound("gone"))
    call, _ = scene.collector.calls.pop()
    call()
    ((rest, error),) = scene.collector.failed
    assert (list(rest.members), type(error)) == ([2], roq.QueueNotFound)


# --- later ----------------------------------------------------------------------------------------


def accept(pending: Pending[bytes]) -> Position:
    assert pending.accepted is not None
    status = SendStatus(outcome=Outcome.OK, log=LogId(1, 1), offset=3, exchange="x1")
    pending.accepted.settle(status)
    assert pending.at is not None
    return pending.at[1]


def test_a_delayed_request_travels_as_a_delayed_message_and_has_its_name(scene: Scene) -> None:
    pending = scene.requester.request(ECHO, b"x", within=5.0, delay=60.0)
    (data,) = scene.publisher.published
    message = decode_delayed(data)
    assert (message.topic, message.payload[-1:]) == (b"s/echo", b"x")
    assert message.due_us / 1e6 == pytest.approx(time.time() + 60, abs=30)
    assert scene.publisher.topics == [DELAYED_TOPIC.decode()]
    assert accept(pending) == delayed_position(message.id)
    assert scene.collector.expected[0] == pytest.approx(65.0, abs=1)


def test_a_delayed_request_has_its_headers_and_priority(scene: Scene) -> None:
    scene.requester.request(ECHO, b"x", delay=60.0, headers={"who": "me"}, priority=2)
    scene.requester.send(ECHO, b"x", delay=60.0, priority=1)
    assert list(map(beside, scene.publisher.published)) == [({"who": "me"}, 2), ({}, 1)]
    assert scene.publisher.topics == [DELAYED_TOPIC.decode()] * 2


def test_what_a_service_delays_is_delayed_unless_a_request_says_otherwise(scene: Scene) -> None:
    scene.collector.given = ServiceSettings(delay=60.0)
    scene.requester.request(ECHO, b"x")
    scene.requester.request(ECHO, b"x", delay=0)
    scene.requester.send(ECHO, b"x")
    later = DELAYED_TOPIC.decode()
    assert scene.publisher.topics == [later, "s/echo", later]


def test_a_delayed_request_whose_exchange_is_lost_is_delayed_anew_by_its_name(
    scene: Scene,
) -> None:
    pending = scene.requester.request(ECHO, b"x", delay=60.0)
    assert scene.collector.on_lost(pending)
    call, _ = scene.collector.calls.pop()
    call()
    first, second = scene.publisher.published
    assert first == second


def test_what_must_not_be_begun_twice_is_not_sent_to_two_exchanges_when_it_is_delayed(
    scene: Scene,
) -> None:
    once = endpoint("s.once", request=bytes, response=bytes)
    scene.requester.request(once, b"x", delay=60.0)
    assert DELAYED_TOPIC.decode() in scene.requester._once


@pytest.mark.parametrize("delay", [1e12, datetime(2030, 1, 1)])  # noqa: DTZ001 - that is the point
def test_delays_that_cannot_be(scene: Scene, delay: Any) -> None:
    with pytest.raises(roq.InvalidRequest):
        scene.requester.request(ECHO, b"x", delay=delay)
    assert scene.publisher.published == []


# --- inside a handler -----------------------------------------------------------------------------

WAYS = pytest.mark.parametrize("way", ["request", "request_many", "send"])
NOW = 100.0


@pytest.fixture
def outer() -> Iterator[SimpleNamespace]:
    """A handler runs here; its request has 2.5 s left, and is held by this."""
    held = SimpleNamespace(id="work/x1-1-0-0", headers={}, lost=False)
    token = CURRENT.set(RequestContext(held, "s.outer", 1, NOW + 2.5, lambda: NOW))
    yield held
    CURRENT.reset(token)


def within_ms(scene: Scene, way: str, **given: Any) -> int:
    """The time that a request takes along, made in this way; 0: it says nothing."""
    value: Any = [b"x"] if way == "request_many" else b"x"
    getattr(scene.requester, way)(ECHO, value, **given)
    milliseconds: int = ENVELOPE.unpack_from(scene.publisher.published[-1])[2]
    return milliseconds


@WAYS
@pytest.mark.usefixtures("outer")
def test_a_request_inside_a_handler_takes_the_time_that_is_left(scene: Scene, way: str) -> None:
    assert within_ms(scene, way) == 2_500
    assert within_ms(scene, way, inherit=True) == 2_500
    assert within_ms(scene, way, within=60.0) == 2_500, "no more than that"
    assert within_ms(scene, way, within=1.0) == 1_000, "but less if it says so"


@WAYS
@pytest.mark.usefixtures("outer")
def test_a_request_inside_a_handler_may_have_its_own_time(scene: Scene, way: str) -> None:
    assert within_ms(scene, way, inherit=False) == 0
    assert within_ms(scene, way, inherit=False, within=60.0) == 60_000


@WAYS
def test_a_request_outside_of_handlers_inherits_nothing(scene: Scene, way: str) -> None:
    assert within_ms(scene, way) == 0
    assert within_ms(scene, way, within=60.0) == 60_000
    assert len(scene.collector.inner) == 0


def test_a_handler_whose_time_is_over_asks_for_as_little_as_can_be(
    scene: Scene, outer: SimpleNamespace
) -> None:
    token = CURRENT.set(RequestContext(outer, "s.outer", 1, NOW - 1.0, lambda: NOW))
    assert within_ms(scene, "request") == 1
    CURRENT.reset(token)


def test_what_is_requested_inside_a_handler_is_cancelled_with_its_own_request(
    scene: Scene, outer: SimpleNamespace
) -> None:
    one = scene.requester.request(ECHO, b"x")
    many = scene.requester.request_many(ECHO, [b"x", b"y"])
    scene.requester.request(ECHO, b"x", inherit=False)
    scene.requester.request_many(ECHO, [b"x"], inherit=False)
    scene.requester.send(ECHO, b"x")
    assert len(scene.collector.inner) == 2
    outer.lost = True
    assert scene.collector.inner.unwanted() == [(one, False), (many, False)]


@pytest.mark.usefixtures("outer")
def test_what_does_not_leave_is_not_noted_to_be_cancelled(scene: Scene) -> None:
    scene.publisher.errors.append(roq.WouldBlock("full"))
    with pytest.raises(roq.WouldBlock):
        scene.requester.request(ECHO, b"x")
    assert len(scene.collector.inner) == 0


@pytest.mark.usefixtures("outer")
def test_what_is_requested_inside_a_handler_and_not_collected_is_not_noted() -> None:
    scene = Scene(collect=False)
    scene.requester.request(ECHO, b"x")
    scene.requester.request_many(ECHO, [b"x"])
    assert len(scene.collector.inner) == 0, "it would never be known to have ended"


def test_a_requester_says_what_it_keeps(scene: Scene) -> None:
    assert scene.requester.stats == roq.RequesterStats(open=0, kept_bytes=30, not_kept=2)


@pytest.mark.parametrize(
    "within",
    [0, -1.0, float("nan"), "5", 10**400, pytest.param(-(10**9_999), id="long"), "x" * 9_999],
)
def test_a_time_that_cannot_be_is_refused_in_short(scene: Scene, within: Any) -> None:
    with pytest.raises(
        roq.InvalidRequest, match="within is a number of seconds above 0"
    ) as refused:
        scene.requester.request(ECHO, b"x", within=within)
    assert len(str(refused.value)) < 200
