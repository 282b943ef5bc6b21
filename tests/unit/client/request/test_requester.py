"""What a requester keeps, sends once more, and says if it cannot."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.client.publish.receipt import Receipt
from roq.client.request.endpoint import endpoint
from roq.client.request.pending import Pending
from roq.client.request.requester import Requester
from roq.client.request.shell import Sent
from roq.protocol.requesting import ServiceSettings

ECHO = endpoint("s.echo", request=bytes, response=bytes, idempotent=True)


class PaperPublisher:
    """Has what was published, or raises what it is told to."""

    queue = "work"
    trouble = ""

    def __init__(self) -> None:
        links = SimpleNamespace(
            replay=SimpleNamespace(keep_nothing=lambda: None), bound=SimpleNamespace(topics=set())
        )
        self._shell = SimpleNamespace(machine=SimpleNamespace(links=links))
        self.published: list[bytes] = []
        self.errors: list[roq.RoQError] = []
        self.flushed = 0

    def publish(self, data: bytes, topic: str, *, properties: object) -> Receipt:
        if self.errors:
            raise self.errors.pop(0)
        self.published.append(data)
        return Receipt(cast("Any", self))

    def flush(self, _timeout: float | None) -> None:
        self.flushed += 1

    def close(self, _timeout: float | None) -> None: ...


class PaperCollector:
    """Notes what is asked of it."""

    open_count = 0
    trouble = ""

    def __init__(self, on_lost: Callable[[Pending[Any]], bool]) -> None:
        self.on_lost = on_lost
        self.kept: list[Pending[Any]] = []
        self.calls: list[tuple[Callable[[], object], Callable[[], object]]] = []
        self.failed: list[tuple[Pending[Any], roq.RoQError]] = []

    def need_exchanges(self, _timeout: float) -> None: ...

    def attend(self, *_: object) -> None: ...

    def settings(self, _service: str) -> ServiceSettings:
        return ServiceSettings()

    def expect(self, *_: object) -> None: ...

    def keep(self, pending: Pending[Any], data: bytes) -> None:
        self.kept.append(pending)
        pending.repeat = data

    def later(self, call: Callable[[], object], left_out: Callable[[], object]) -> None:
        self.calls.append((call, left_out))

    def fail(self, pending: Pending[Any], error: roq.RoQError) -> None:
        self.failed.append((pending, error))

    def wait_for(self, condition: Callable[[], bool], _timeout: float) -> bool:
        return condition()

    def accepted(self, _sent: Sent) -> None: ...

    def close(self) -> None: ...


class Scene:
    """A requester, and both sides of it."""

    def __init__(self) -> None:
        self.publisher = PaperPublisher()
        made: list[PaperCollector] = []

        def make(on_lost: Callable[[Pending[Any]], bool]) -> Any:
            made.append(PaperCollector(on_lost))
            return made[0]

        self.requester = Requester(
            cast("Any", self.publisher), make, settings=ServiceSettings(), timeout=1.0, block=False
        )
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
    assert scene.collector.kept == []
    pending = scene.requester.request(ECHO, b"x")
    assert scene.collector.kept == [pending]


def test_what_is_lost_is_sent_once_more_and_waits_for_room(scene: Scene) -> None:
    pending = scene.lost()
    scene.publisher.errors.append(roq.WouldBlock("full"))
    call, _ = scene.collector.calls.pop()
    call()
    assert scene.publisher.flushed == 1
    assert scene.publisher.published == [pending.repeat, pending.repeat]
    assert scene.collector.failed == []


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
