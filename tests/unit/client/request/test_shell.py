"""What waits for the ends of requests, beyond what its machine decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import roq
from roq.client.io.engine import Engine
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.request import shell
from roq.client.request.endpoint import endpoint
from roq.client.request.machine import SURE_SECONDS
from roq.client.request.pending import Pending
from roq.client.request.shell import GRACE_SECONDS, Collector, Sent
from roq.model import ExchangeInfo, LogId
from roq.protocol import requesting
from roq.protocol.control import Topology
from roq.protocol.requesting import (
    OUTCOMES,
    WANT,
    Position,
    RequestEnd,
    RequestEnds,
    RequestState,
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

    def ask(self, frames: list[bytes]) -> None:
        self.asked.append(frames)

    def close(self, _farewells: list[list[bytes]]) -> None: ...

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


def test_the_allowance_is_given_back_whoever_takes_and_gives(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "REPEAT_BYTES", 25)
    pendings = [scene.pending() for _ in range(3)]
    for each in pendings:
        scene.collector.keep(each, b"x" * 10)
    assert [each.repeat is None for each in pendings] == [False, False, True]
    threads = [threading.Thread(target=scene.collector.let_go, args=[each]) for each in pendings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scene.collector._kept_bytes == 0


@pytest.mark.parametrize("ended", [False, True])
def test_what_is_not_sent_once_more_says_why(scene: Scene, ended: bool) -> None:
    pending = scene.pending()
    if ended:
        scene.engine.close()
    scene.collector.fail(pending, roq.Unavailable("because"))
    with pytest.raises(roq.Unavailable, match="because"):
        pending.result(20)
