"""What waits for the ends of requests, beyond what its machine decides."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.client.io.engine import Engine
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.request import shell
from roq.client.request.context import RequestContext
from roq.client.request.endpoint import endpoint
from roq.client.request.machine import SURE_SECONDS, RequesterMachine
from roq.client.request.many import ManyPart, PendingMany
from roq.client.request.pending import Pending, PendingRun
from roq.client.request.shell import GRACE_SECONDS, Collector
from roq.client.request.waiting_requests import Sent
from roq.errors import Unavailable
from roq.model import ExchangeInfo, LogId
from roq.protocol import documents, requesting
from roq.protocol.control import Topology
from roq.protocol.requesting import (
    ATTEND,
    OUTCOMES,
    WANT,
    Attended,
    Position,
    RequestEnd,
    RequestEnds,
    RequestState,
    ServiceSettings,
    Want,
)

ECHO = endpoint("s.echo", request=bytes, response=bytes)
ONE = LogId(1, 1)
INFO = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")


class PaperLines:
    """Connections that stand at once and note what is asked."""

    def __init__(self) -> None:
        self.asked: list[list[bytes]] = []

    def open(self, _address: str, *, on_up: Callable[[], None], **_: Any) -> PaperLines:
        self.up = on_up
        return self

    def end(self) -> None:
        """The client has ended."""

    def ask(self, frames: list[bytes]) -> None:
        self.asked.append(frames)

    def close(self, farewells: list[list[bytes]]) -> None:
        self.asked += farewells

    @property
    def wanted(self) -> list[Position]:
        wants = [requesting.decode(each[1], Want) for each in self.asked if each[0] == WANT]
        return [position for want in wants for position in want.wanted]


class Scene:
    """A collector whose exchange is on paper."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lines = engine.exchanges = cast("Any", PaperLines())
        self.collector = Collector(engine, ["127.0.0.1:1"], "work", b"p" * 16)
        topology = Topology(queue_id=b"q" * 16, epoch=1, version=1, exchanges=[INFO])
        self.inside(lambda: self.collector._topology(topology))
        self.inside(self.lines.up)

    def inside(self, call: Callable[[], object]) -> None:
        self.engine.run_sync(call)

    def pending(self) -> Pending[bytes]:
        return Pending(self.collector, "work", ECHO)

    def accepted(
        self, offset: int | None = 3, outcome: Outcome = Outcome.OK, reason: str = ""
    ) -> tuple[Sent, Pending[bytes]]:
        """A request that an exchange has; the collector is not told yet."""
        receipt = Receipt(cast("Any", None))
        status = SendStatus(outcome=outcome, log=ONE, offset=offset, exchange="x1", reason=reason)
        receipt.settle(status)
        sent, pending = Sent(receipt), self.pending()
        pending.sent(receipt, 0)
        sent.pendings.append(pending)
        return sent, pending


@pytest.fixture
def scene(engine: Engine) -> Iterator[Scene]:
    made = Scene(engine)
    yield made
    made.collector.close()


def test_what_is_overdue_is_asked_for_before_it_is_given_up(scene: Scene) -> None:
    sent, pending = scene.accepted()
    scene.collector.expect(pending, 0.0)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    now = scene.engine.reactor.now()
    scene.inside(lambda: scene.collector._machine.tick(now + SURE_SECONDS))
    scene.lines.asked.clear()
    scene.inside(lambda: scene.collector._overdue(pending, pending.due))
    scene.inside(lambda: scene.collector._perform(scene.collector._machine.tick(now + 4.0)))
    assert Position(3, 0) in scene.lines.wanted
    scene.inside(lambda: scene.collector._overdue(pending, pending.due + GRACE_SECONDS))
    assert pending.state == "unavailable"


def test_in_a_forked_child_who_waits_for_a_request_is_told_that_nothing_comes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, ended = scene.pending(), scene.pending()
    many: PendingMany[bytes] = PendingMany(scene.collector, "work", ECHO, 1)
    ended.settle(None, Unavailable("known before"))
    monkeypatch.setattr(scene.engine, "forked", True)
    for ask in (
        pending.future, many.future, lambda: pending.result(0.1), lambda: many.results(0.1),
        lambda: pending.on_done(print), lambda: many.on_done(print),
    ):  # fmt: skip
        with pytest.raises(roq.Closed, match="forked"):
            ask()
    assert isinstance(ended.future().exception(0), Unavailable)
    monkeypatch.undo()


def test_what_is_accepted_when_its_time_was_long_over_is_asked_for_as_well(scene: Scene) -> None:
    """Its exchange was away until then, or its own process stood still."""
    sent, pending = scene.accepted()
    scene.collector.expect(pending, -2 * GRACE_SECONDS)
    scene.collector.accepted(sent)
    scene.inside(lambda: scene.collector._pass_time(monotonic()))
    scene.inside(lambda: scene.collector._perform(scene.collector._machine.say()))
    late = [requesting.decode(each[1], Want).late for each in scene.lines.asked if each[0] == WANT]
    assert [position for some in late for position in some] == [Position(3, 0)]
    scene.inside(lambda: scene.collector._pass_time(monotonic() + GRACE_SECONDS / 2))
    assert pending.state == "pending"
    scene.inside(lambda: scene.collector._pass_time(monotonic() + GRACE_SECONDS + 1.0))
    assert pending.state == "unavailable"


def test_what_is_sent_once_more_does_not_wait_for_callbacks_of_the_user(scene: Scene) -> None:
    hold, called, sent = threading.Event(), threading.Event(), threading.Event()
    scene.collector.later(lambda: called.set() or hold.wait(20))
    assert called.wait(20)
    try:
        scene.collector.repeat(sent.set, lambda: None)
        assert sent.wait(5)
    finally:
        hold.set()


def test_what_is_not_sent_once_more_before_the_client_ends_is_told_so(scene: Scene) -> None:
    told = threading.Event()
    scene.collector.close()
    scene.engine.close()
    scene.collector.repeat(lambda: None, told.set)
    assert told.is_set()


def test_what_is_sent_once_more_and_accepted_too_late_is_not_begun_either(scene: Scene) -> None:
    collector, two = scene.collector, LogId(2, 2)
    collector._reader = cast(
        "Any", SimpleNamespace(why=lambda: "its disk is full", wake=lambda: None, threads=set())
    )
    sent, pending = scene.accepted()
    collector.expect(pending, 1.0)
    collector.accepted(sent)
    again = Sent(Receipt(cast("Any", None)))

    def repeat(_waiter: object) -> bool:
        pending.sent(again.receipt, 0)
        again.pendings.append(pending)
        collector.left(again)
        return True

    collector._on_lost = repeat  # type: ignore[assignment]
    other = ExchangeInfo(number=2, epoch=2, generation=2, host="h", data="d2", live="l")
    told = Topology(queue_id=b"q" * 16, epoch=1, version=2, exchanges=[other])
    scene.inside(lambda: collector._topology(told))
    scene.inside(scene.lines.up)
    for late in (0.0, 1.3, 3.0, GRACE_SECONDS + 0.5, GRACE_SECONDS + 1.6, GRACE_SECONDS + 4.0):
        scene.inside(lambda late=late: collector._pass_time(monotonic() + late))  # type: ignore[misc]
        scene.inside(collector._look)
    assert pending.state == "unavailable"
    with pytest.raises(Unavailable, match=r"no exchange has said .*its disk is full"):
        pending.result(0)
    scene.lines.asked.clear()
    again.receipt.settle(SendStatus(outcome=Outcome.OK, log=two, offset=9, exchange="x2"))
    collector.accepted(again)
    scene.inside(lambda: None)
    scene.inside(lambda: collector._perform(collector._machine.say()))
    late = [requesting.decode(each[1], Want).late for each in scene.lines.asked if each[0] == WANT]
    assert [position for some in late for position in some] == [Position(9, 0)]


def test_what_nobody_accepts_ends_with_the_reason_and_is_not_begun_when_it_is_accepted(
    scene: Scene,
) -> None:
    receipt, pending = Receipt(cast("Any", None)), scene.pending()
    pending.sent(receipt, 0)
    sent = Sent(receipt)
    sent.pendings.append(pending)
    scene.collector._reader = cast(
        "Any", SimpleNamespace(why=lambda: "its disk is full", wake=lambda: None, threads=set())
    )
    scene.collector.expect(pending, 0.0)
    scene.collector.left(sent)
    for late in (0.0, GRACE_SECONDS + 0.1):
        assert not pending.done()
        scene.inside(lambda late=late: scene.collector._pass_time(monotonic() + late))
    with pytest.raises(roq.Unavailable, match="its disk is full"):
        pending.result(0)
    receipt.settle(SendStatus(outcome=Outcome.OK, log=ONE, offset=3, exchange="x1"))
    scene.collector.accepted(sent)
    scene.inside(lambda: scene.collector._perform(scene.collector._machine.say()))
    late = [requesting.decode(each[1], Want).late for each in scene.lines.asked if each[0] == WANT]
    assert [position for some in late for position in some] == [Position(3, 0)]
    assert scene.collector.open_count == 0


def test_what_was_requested_inside_a_handler_is_cancelled_with_its_own_request(
    scene: Scene,
) -> None:
    held = SimpleNamespace(id="", headers={}, lost=False)
    sent, pending = scene.accepted()
    scene.collector.inner.add(RequestContext(held, "s.e", 1, 1e9, monotonic), pending)
    scene.collector.accepted(sent)

    def cancelled() -> list[Position]:
        scene.inside(scene.collector._tick)
        wants = [requesting.decode(each[1], Want) for each in scene.lines.asked if each[0] == WANT]
        return [position for want in wants for position in want.cancelled]

    document = Attended(id=1, generation=1, settings=ServiceSettings())
    scene.collector._machine.attend("s", ServiceSettings(), b"", 0.0)
    answer = [[ATTEND, documents.encode(document)]]
    scene.inside(lambda: scene.collector._take(ONE, answer))
    assert cancelled() == []
    held.lost = True
    assert cancelled() == [Position(3, 0)]


@pytest.mark.parametrize(
    ("outcome", "reason", "error", "told"),
    [
        (Outcome.OK, "", roq.RequestUnknown, "does not know where"),
        (Outcome.UNKNOWN, "exchange x1 may have it", roq.RequestUnknown, "x1 may have it"),
        (Outcome.FAILED, "it never left", roq.DeliveryError, "never left"),
    ],
)
def test_what_may_have_been_accepted_is_unknown_and_what_was_not_is_told_so(
    scene: Scene, outcome: Outcome, reason: str, error: type[roq.RoQError], told: str
) -> None:
    sent, pending = scene.accepted(None, outcome, reason)
    scene.collector.accepted(sent)
    with pytest.raises(error, match=told):
        pending.result(20)


def test_what_is_asked_for_by_ids_has_a_bound_and_room_comes_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "OPEN_MAX", 2)

    def find() -> None:
        pending = scene.pending()
        pending.place(ONE, Position(3, 0))
        scene.collector.find(pending)
        scene.inside(lambda: None)

    find()
    find()
    with pytest.raises(roq.Unavailable, match="2 responses are waited for already"):
        find()
    ends = RequestEnds("s", [RequestEnd(3, 0, RequestState.DONE)])
    parts = [OUTCOMES, requesting.encode(ends)]
    scene.inside(lambda: scene.collector._take(ONE, [parts]))
    assert scene.collector.open_count == 0
    find()


def test_what_is_accepted_after_the_end_is_told_so(scene: Scene) -> None:
    """Whoever waits for it does not wait for ever."""
    sent, pending = scene.accepted()
    scene.collector.close()
    scene.collector.accepted(sent)
    with pytest.raises(roq.Closed):
        pending.result(20)
    sent, pending = scene.accepted()
    scene.engine.close()
    scene.collector.accepted(sent)
    with pytest.raises(roq.Closed):
        pending.result(20)


def test_what_is_accepted_and_not_seen_before_the_end_is_told_so(scene: Scene) -> None:
    sent, pending = scene.accepted()
    scene.collector._accepted.append(sent)
    scene.inside(lambda: scene.collector._end(roq.QueueNotFound("gone")))
    with pytest.raises(roq.QueueNotFound):
        pending.result(20)


@pytest.mark.parametrize("ended", [False, True])
def test_what_is_not_sent_once_more_says_why(scene: Scene, ended: bool) -> None:
    pending = scene.pending()
    if ended:
        scene.engine.close()
    scene.collector.fail(pending, roq.Unavailable("because"))
    with pytest.raises(roq.Unavailable, match="because"):
        pending.result(20)


# --- those that were made together ----------------------------------------------------------------


def together(
    scene: Scene, count: int = 3, offset: int = 3, within: float = 60.0
) -> tuple[Sent, PendingMany[bytes]]:
    """Requests that an exchange has in one batch; the collector is not told yet."""
    receipt = Receipt(cast("Any", None))
    receipt.settle(SendStatus(outcome=Outcome.OK, log=ONE, offset=offset, exchange="x1"))
    many: PendingMany[bytes] = PendingMany(scene.collector, "work", ECHO, count)
    scene.collector.expect(many, within)
    part = ManyPart(many, receipt, 0, range(count))
    many.parts.append(part)
    sent = Sent(receipt)
    sent.pendings += [part] * count
    return sent, many


def ended(scene: Scene, *indexes: int, offset: int = 3) -> None:
    ends = RequestEnds("s", [RequestEnd(offset, at, RequestState.DONE, b"v") for at in indexes])
    parts = [OUTCOMES, requesting.encode(ends)]
    scene.inside(lambda: scene.collector._take(ONE, [parts]))


def fetched(scene: Scene) -> list[Position]:
    wants = [requesting.decode(each[1], Want) for each in scene.lines.asked if each[0] == WANT]
    runs = [run for want in wants for run in want.fetched]
    return [Position(offset, first + at) for offset, first, count in runs for at in range(count)]


def test_many_end_one_after_the_other_and_are_confirmed_as_they_come(scene: Scene) -> None:
    sent, many = together(scene)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    assert (scene.collector.open_count, len(scene.collector._requests.due)) == (3, 1)
    ended(scene, 0, 2)
    assert not many.done()
    assert scene.collector.wait_for(lambda: fetched(scene) == [Position(3, 0), Position(3, 2)], 20)
    ended(scene, 1)
    assert many.result(20) == [b"v"] * 3
    assert (scene.collector.open_count, scene.collector._requests.due) == (0, {}), (
        "nothing is left of them"
    )
    scene.collector.close()
    assert len(fetched(scene)) == 3, "with the last word, if not before"


def test_many_whose_callbacks_run_are_confirmed_afterwards(scene: Scene) -> None:
    sent, many = together(scene)
    gate, called = threading.Event(), threading.Event()
    many.on_done(lambda _: (gate.wait(20), called.set()))
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    ended(scene, 0, 1, 2)
    assert fetched(scene) == []
    gate.set()
    assert called.wait(20)
    assert scene.collector.wait_for(lambda: len(fetched(scene)) == 3, 20)


def test_a_thread_that_calls_back_reads_nothing_that_others_change(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no lock when it says that what it was called for has arrived."""
    locked: list[bool] = []
    talks = lambda _: locked.append(scene.collector._guard.held())  # noqa: E731
    monkeypatch.setattr(RequesterMachine, "talks", property(talks))
    _, pending = scene.accepted()
    scene.collector.confirm(pending)
    scene.inside(scene.collector._look)
    assert locked
    assert all(locked)


def test_what_a_signal_handler_ends_in_the_middle_is_confirmed_all_the_same(scene: Scene) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    scene.collector._confirmations._engine = cast("Any", SimpleNamespace(call_soon=interrupted))
    _, pending = scene.accepted()
    with pytest.raises(KeyboardInterrupt):
        scene.collector.confirm(pending)
    scene.inside(scene.collector._tick)
    assert fetched(scene) == [Position(3, 0)]


def test_many_may_end_before_it_is_known_where_they_are(scene: Scene) -> None:
    sent, many = together(scene)
    ended(scene, 0, 1)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    assert [each is None for each in many.ends] == [False, False, True]
    assert scene.collector.open_count == 1
    ended(scene, 2)
    assert many.done()
    assert not scene.collector._requests.early


def test_one_of_many_that_another_asks_for_is_told_to_both(scene: Scene) -> None:
    sent, many = together(scene)
    scene.collector.accepted(sent)
    found = scene.pending()
    found.place(ONE, Position(3, 1))
    scene.collector.find(found)
    scene.inside(lambda: None)
    ended(scene, 0, 1, 2)
    assert (found.result(20), many.done()) == (b"v", True)
    assert scene.collector.open_count == 0


def test_many_that_are_overdue_are_asked_for_before_they_are_given_up(scene: Scene) -> None:
    sent, many = together(scene, within=0.0)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    ended(scene, 1)
    part = many.parts[0]
    scene.lines.asked.clear()
    scene.inside(lambda: scene.collector._overdue(part, many.due))
    scene.inside(lambda: scene.collector._perform(scene.collector._machine.say()))
    late = [requesting.decode(each[1], Want).late for each in scene.lines.asked]
    assert [position for some in late for position in some] == [Position(3, 0), Position(3, 2)]
    scene.inside(lambda: scene.collector._overdue(part, many.due + GRACE_SECONDS))
    assert [each.state for each in many] == ["unavailable", "done", "unavailable"]
    assert scene.collector.open_count == 0


def test_who_gives_up_takes_nothing_from_others_who_wait_for_the_same(scene: Scene) -> None:
    sent, many = together(scene, within=0.0)
    scene.collector.accepted(sent)
    found = scene.pending()
    found.place(ONE, Position(3, 1))
    scene.collector.find(found)
    scene.inside(lambda: None)
    part = many.parts[0]
    scene.inside(lambda: scene.collector._overdue(part, many.due))
    scene.inside(lambda: scene.collector._overdue(part, many.due + GRACE_SECONDS))
    assert [each.state for each in many] == ["unavailable"] * 3
    assert scene.collector.open_count == scene.collector._machine.open_count == 1
    ended(scene, 1)
    assert found.result(20) == b"v"


def test_what_was_not_told_of_in_time_is_looked_for_with_the_lock(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait take in what comes, and open places meanwhile."""
    free: list[bool] = []

    def overdue() -> None:
        lock = scene.collector._guard.lock

        def look() -> None:
            free.append(lock.acquire(blocking=False))
            if free[-1]:
                lock.release()

        other = threading.Thread(target=look)
        other.start()
        other.join()

    monkeypatch.setattr(scene.collector._connections, "overdue", overdue)
    scene.inside(scene.collector._tick)
    assert free[0] is False


def test_many_are_cancelled_where_they_are(scene: Scene) -> None:
    sent, many = together(scene)
    scene.collector.accepted(sent)
    many.cancel()
    scene.inside(lambda: None)
    scene.inside(lambda: None)
    wants = [requesting.decode(each[1], Want) for each in scene.lines.asked if each[0] == WANT]
    assert [at for want in wants for at in want.cancelled] == [Position(3, at) for at in range(3)]


def test_many_whose_exchange_is_gone_are_unknown_but_for_those_that_have_ended(
    scene: Scene,
) -> None:
    sent, many = together(scene)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    ended(scene, 1)
    nobody = Topology(queue_id=b"q" * 16, epoch=1, version=2, exchanges=[])
    scene.inside(lambda: scene.collector._topology(nobody))
    assert [each.state for each in many] == ["unknown", "done", "unknown"]
    assert scene.collector.open_count == 0


def test_many_that_are_sent_once_more_are_looked_after_as_what_they_are_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, many = together(scene)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    monkeypatch.setattr(scene.collector, "_on_lost", lambda _: True)
    nobody = Topology(queue_id=b"q" * 16, epoch=1, version=2, exchanges=[])
    scene.inside(lambda: scene.collector._topology(nobody))
    assert not many.done()
    assert scene.collector._requests.due == {}, "else it ends those that are open elsewhere"


def test_many_are_told_when_all_ends(scene: Scene) -> None:
    sent, many = together(scene)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    scene.collector.close()
    assert {type(each) for each in many.results(20)} == {roq.Closed}


# --- what comes with the acknowledgements of the publisher ----------------------------------------


class PaperPublisher:
    """Whoever waits for it hears this next."""

    failure: Exception | None = None

    def __init__(self, collector: Collector) -> None:
        self._connections = SimpleNamespace()
        link = SimpleNamespace(number=4, log=ONE)
        self.machine = SimpleNamespace(links=SimpleNamespace(all=[link]))
        self.heard: deque[Callable[[], None]] = deque()
        collector.read_by(cast("Any", self))

    def says(self, *indexes: int) -> None:
        ends = RequestEnds("s", [RequestEnd(3, at, RequestState.DONE, b"v") for at in indexes])
        parts = [OUTCOMES, requesting.encode(ends)]
        self.heard.append(lambda: self._connections.on_outcomes(4, parts))

    def wait_for(self, condition: Callable[[], bool], _timeout: float) -> bool:
        if self.heard:
            self.heard.popleft()()
        return condition()

    def wake(self) -> None: ...


def test_who_waits_takes_in_what_comes_and_others_are_called_as_ever(scene: Scene) -> None:
    publisher = PaperPublisher(scene.collector)
    (sent, pending), called = scene.accepted(), Future[int | None]()
    pending.future().add_done_callback(lambda _: called.set_result(threading.get_ident()))
    publisher.heard.append(lambda: scene.collector.accepted(sent))
    publisher.says(0)
    assert pending.result(20) == b"v"
    assert called.result(20) == scene.engine._thread.ident, "it must not wait, so not here"
    scene.inside(lambda: None)
    assert fetched(scene) == [Position(3, 0)]
    assert scene.collector.open_count == 0


def test_what_comes_while_nobody_waits_is_taken_in_as_well(scene: Scene) -> None:
    publisher = PaperPublisher(scene.collector)
    sent, pending = scene.accepted()
    scene.collector.accepted(sent)
    publisher.says(0)
    publisher.heard.popleft()()
    scene.inside(lambda: None)
    assert pending.done()


def test_what_may_be_lost_with_a_connection_is_asked_for(scene: Scene) -> None:
    publisher = PaperPublisher(scene.collector)
    sent, _ = scene.accepted()
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    scene.lines.asked.clear()
    publisher._connections.on_cut()
    scene.inside(lambda: None)
    assert scene.lines.wanted == [Position(3, 0)]


def test_what_is_accepted_and_was_not_looked_at_is_asked_for_as_well(scene: Scene) -> None:
    """Who waits for an end does not look because its request was accepted."""
    publisher = PaperPublisher(scene.collector)
    scene.inside(lambda: cast("Any", scene.collector._timer).cancel())
    cast("Any", scene.collector._reader).threads.add(1)
    sent, _ = scene.accepted()
    scene.collector.accepted(sent)
    publisher._connections.on_cut()
    scene.inside(lambda: None)
    assert scene.lines.wanted == [Position(3, 0)]
    # Of a new exchange: it may have ended before the exchange knew whom to tell.
    scene.lines.asked.clear()
    place = scene.collector._machine.places[ONE]
    place.attended["s"] = 7
    sent, _ = scene.accepted(offset=4)
    scene.collector.accepted(sent)
    answer = documents.encode(Attended(id=7, generation=1, settings=ServiceSettings()))
    scene.inside(lambda: scene.collector._take(ONE, [[ATTEND, answer]]))
    scene.inside(lambda: scene.collector._perform(scene.collector._machine.say()))
    assert Position(4, 0) in scene.lines.wanted


def taken_in_by_the_io_thread(scene: Scene, sent: Sent) -> None:
    """Requests are accepted, and the I/O thread has said all of it and is idle: what comes now is
    taken in by who waits."""
    scene.inside(lambda: cast("Any", scene.collector._timer).cancel())
    scene.collector.accepted(sent)
    while scene.collector._has_news() or scene.collector._looking:
        scene.inside(lambda: None)


def test_who_is_interrupted_while_it_takes_in_does_so_once_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = PaperPublisher(scene.collector)
    sent, many = together(scene)
    settle, interrupts = PendingMany.settle, [1]

    def interrupted(
        self: PendingMany[Any], member: int, outcome: RequestEnd | None, error: Any
    ) -> bool:
        if interrupts and member == 1:
            self.ends[interrupts.pop()] = outcome  # and nothing is counted
            raise KeyboardInterrupt
        return settle(self, member, outcome, error)

    monkeypatch.setattr(PendingMany, "settle", interrupted)
    taken_in_by_the_io_thread(scene, sent)
    publisher.says(0, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        many.results(20)
    assert many.results(20) == [b"v"] * 3
    assert scene.collector.open_count == 0


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("said", [False, True])
def test_who_is_interrupted_while_it_has_callbacks_called_has_each_called_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, several: bool, said: bool
) -> None:
    publisher = PaperPublisher(scene.collector)
    sent, pending = together(scene, 1) if several else scene.accepted()
    called: list[object] = []
    pending.when_done(lambda: called.append(pending))
    ring, interrupts = scene.collector.ring, [1]

    def interrupted(rings: list[Callable[[], None]]) -> None:
        if not interrupts or said:
            ring(rings)
        if interrupts:
            interrupts.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(scene.collector, "ring", interrupted)
    taken_in_by_the_io_thread(scene, sent)
    publisher.says(0)
    with pytest.raises(KeyboardInterrupt):
        pending.result(20)
    scene.inside(lambda: None)
    scene.inside(lambda: None)
    assert pending.result(20) == ([b"v"] if several else b"v")
    assert called == [pending]


def test_what_has_come_is_not_lost_with_its_exchange(scene: Scene) -> None:
    publisher = PaperPublisher(scene.collector)
    sent, pending = scene.accepted()
    publisher.says(0)
    empty = Topology(queue_id=b"q" * 16, epoch=1, version=2, exchanges=[])

    def come_and_go() -> None:
        scene.collector.accepted(sent)
        publisher.heard.popleft()()
        scene.collector._topology(empty)

    scene.inside(come_and_go)
    assert pending.state == "done"


# --- those that were made one by one, and are accepted together -----------------------------------


def side_by_side(scene: Scene, count: int = 3, offset: int = 3) -> list[Pending[bytes]]:
    """Requests that an exchange has in one batch, and the collector knows it."""
    receipt = Receipt(cast("Any", None))
    receipt.settle(SendStatus(outcome=Outcome.OK, log=ONE, offset=offset, exchange="x1"))
    sent, made = Sent(receipt), [scene.pending() for _ in range(count)]
    for index, pending in enumerate(made):
        scene.collector.expect(pending, 60.0)
        scene.collector.kept.keep(pending, b"data")
        pending.sent(receipt, index)
        sent.pendings.append(pending)
    scene.collector.accepted(sent)
    scene.inside(lambda: None)
    return made


def test_they_end_together_and_nothing_is_left_of_them(scene: Scene) -> None:
    made, collector = side_by_side(scene), scene.collector
    assert (collector.open_count, len(collector._requests.due)) == (3, 1)
    end = RequestEnd(3, 0, RequestState.DONE, b"a", more=[b"b"])
    parts = [OUTCOMES, requesting.encode(RequestEnds("s", [end]))]
    scene.inside(lambda: collector._take(ONE, [parts]))
    assert [each.state for each in made] == ["done", "done", "pending"]
    assert (collector.open_count, len(collector._requests.due)) == (1, 1)
    ended(scene, 2)
    assert [each.result(20) for each in made] == [b"a", b"b", b"v"]
    assert (collector.open_count, collector._requests.due, collector.kept.bytes) == (0, {}, 0)
    assert collector.wait_for(lambda: len(fetched(scene)) == 3, 20)


def test_what_has_ended_before_it_was_known_is_taken_in_and_the_others_stay_together(
    scene: Scene,
) -> None:
    ended(scene, 1, 7)  # of another batch, or for the second time
    made, collector = side_by_side(scene), scene.collector
    assert [each.state for each in made] == ["pending", "done", "pending"]
    assert (collector.open_count, len(collector._requests.due)) == (2, 1)
    [waiters] = {collector._requests.open[ONE][at] for at in (Position(3, 0), Position(3, 2))}
    assert isinstance(waiters[0], PendingRun)
    ended(scene, 0, 2)
    assert [each.result(20) for each in made] == [b"v"] * 3
    assert (collector.open_count, collector._requests.due, collector.kept.bytes) == (0, {}, 0)
    assert collector.wait_for(lambda: len(fetched(scene)) == 3, 20)


def test_one_of_them_with_a_callback_is_confirmed_when_that_has_ended(scene: Scene) -> None:
    made = side_by_side(scene)
    gate = threading.Event()
    made[1].on_done(lambda _: gate.wait(20))
    ended(scene, 0, 1, 2)
    others = [Position(3, 0), Position(3, 2)]
    assert scene.collector.wait_for(lambda: fetched(scene) == others, 20)
    gate.set()
    assert scene.collector.wait_for(lambda: len(fetched(scene)) == 3, 20)


def test_who_asks_by_the_id_for_one_of_them_is_told_as_well(scene: Scene) -> None:
    made, other = side_by_side(scene), scene.pending()
    other.place(ONE, Position(3, 1))
    scene.collector.find(other)
    end = RequestEnd(3, 0, RequestState.DONE, b"a", more=[b"b", b"c"])
    parts = [OUTCOMES, requesting.encode(RequestEnds("s", [end]))]
    scene.inside(lambda: scene.collector._take(ONE, [parts]))
    assert [each.result(20) for each in (*made, other)] == [b"a", b"b", b"c", b"b"]
    assert scene.collector.open_count == 0


def test_they_are_unknown_each_when_their_exchange_is_gone(scene: Scene) -> None:
    made, other = side_by_side(scene), ExchangeInfo(
        number=2, epoch=1, generation=1, host="h", data="e", live="m"
    )  # fmt: skip
    topology = Topology(queue_id=b"q" * 16, epoch=1, version=2, exchanges=[other])
    scene.inside(lambda: scene.collector._topology(topology))
    assert [each.state for each in made] == ["unknown"] * 3
    assert (scene.collector.open_count, scene.collector._requests.due) == (0, {})


def test_they_are_asked_for_and_given_up_when_their_time_is_over(scene: Scene) -> None:
    made, now = side_by_side(scene), scene.engine.reactor.now()
    scene.inside(lambda: scene.collector._pass_time(now + 61.0))
    scene.inside(lambda: scene.collector._perform(scene.collector._machine.say()))
    late = [requesting.decode(each[1], Want).late for each in scene.lines.asked if each[0] == WANT]
    assert [at.at for some in late for at in some] == [0, 1, 2]
    scene.inside(lambda: scene.collector._pass_time(now + 62.0 + GRACE_SECONDS))
    assert [each.state for each in made] == ["unavailable"] * 3
    assert scene.collector.open_count == 0
